//! Ethernet, ARP, IPv4, ICMP, TCP and UDP headers: parsing, emitting, checksums, sequence numbers.
