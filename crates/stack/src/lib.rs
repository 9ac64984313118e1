//! ARP, IPv4, ICMP, UDP, flow table, listeners and timers: frames in, frames and events out.
