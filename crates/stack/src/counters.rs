//! What was counted.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a stack has counted since its start.
        #[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Names and values, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }
        }
    };
}

counters! {
    /// Frames handled.
    frames_in,
    /// Of these, frames from the loopback.
    loopback_in,
    /// Frames sent.
    frames_out,
    /// Of these, frames to the loopback.
    loopback_out,
    /// Frames dropped: Ethernet header cut short, or with a tag.
    ethernet_malformed,
    /// Frames dropped: to another station.
    ethernet_other_station,
    /// Frames dropped: neither IPv4 nor ARP; nor IPv6, where that is on.
    ethernet_other_protocol,
    /// IPv6 packets handled, also from the loopback.
    ipv6_in,
    /// IPv6 packets dropped: for their extension headers.
    ipv6_chain_refused,
    /// IP packets dropped: cut short or contradictory.
    ip_malformed,
    /// IPv4 packets dropped: header checksum.
    ip_bad_checksum,
    /// IP packets dropped: from an address that no single other station can have.
    ip_bad_source,
    /// IP packets dropped: to an address that is not ours.
    ip_other_destination,
    /// IP packets dropped: neither TCP nor UDP nor ICMP.
    ip_other_protocol,
    /// IP fragments handled.
    fragments_in,
    /// Datagrams put together from fragments.
    reassembled,
    /// Incomplete datagrams dropped: time ran out.
    reassembly_timeouts,
    /// Incomplete datagrams dropped: a newer one needed the place.
    reassembly_evicted,
    /// Incomplete datagrams or fragments dropped: overlapping or contradictory.
    reassembly_malformed,
    /// TCP segments dropped: header cut short or contradictory.
    tcp_malformed,
    /// TCP segments dropped: checksum.
    tcp_bad_checksum,
    /// TCP segments handled by connections.
    tcp_segments_in,
    /// TCP segments sent, resets for no connection included; a super-segment counts as one.
    tcp_segments_out,
    /// Of these, retransmissions.
    tcp_retransmissions,
    /// TCP payload bytes accepted.
    tcp_bytes_in,
    /// TCP payload bytes sent, retransmissions included.
    tcp_bytes_out,
    /// TCP segments whose payload was accepted out of order.
    tcp_out_of_order,
    /// TCP segments that belonged to no connection and no listener.
    tcp_to_nowhere,
    /// Resets sent for segments that belonged to no connection.
    tcp_resets_out,
    /// In-order segments dropped: the host had no room.
    tcp_no_room,
    /// Segments or payloads dropped by TCP: old duplicates by their timestamps.
    tcp_dropped_paws,
    /// The same: not in the window.
    tcp_dropped_out_of_window,
    /// The same: received before.
    tcp_dropped_duplicate,
    /// The same: unacceptable acknowledgment, or none.
    tcp_dropped_bad_ack,
    /// The same: SYN or RST that may be forged (RFC 5961).
    tcp_dropped_suspicious,
    /// Challenge ACKs (RFC 5961) that were not sent: too many, of all connections together.
    challenges_withheld,
    /// Segments or payloads dropped by TCP: out of order, and no sequence range was free.
    tcp_dropped_no_ranges,
    /// The same: out of order, and the host had no room.
    tcp_dropped_no_room,
    /// The same: the connection takes no payload any more.
    tcp_dropped_after_end,
    /// Active opens.
    active_opens,
    /// Active opens that led to a connection.
    active_established,
    /// SYNs that opened a connection.
    passive_opens,
    /// Passive opens that led to a connection.
    passive_established,
    /// Connections that the host refused when the handshake was complete.
    incoming_refused,
    /// Segments dropped that would have completed a handshake: the host's accept queue was full.
    accept_queue_full,
    /// Segments dropped that would have completed a handshake: the listener waits for data.
    deferred,
    /// Connections opened by a SYN with data, or with what could have brought some (RFC 7413).
    fast_opens,
    /// Fast Open cookies given to those who asked.
    fast_open_cookies,
    /// SYNs with a wrong or old Fast Open cookie: a usual handshake, and a new one.
    fast_open_bad_cookies,
    /// SYNs with a good Fast Open cookie, but too many such connections: a usual handshake.
    fast_open_overflows,
    /// Active opens without Fast Open, as SYNs with it were lost on that way.
    fast_open_spared,
    /// SYNs dropped: the host's accept queue was full.
    syn_accept_queue_full,
    /// Connections in SYN-RECEIVED that gave way to a newer SYN.
    syn_evicted,
    /// SYNs answered with a cookie.
    syn_cookies_sent,
    /// Connections made of a cookie that came back; passive opens, too.
    syn_cookies_accepted,
    /// Segments whose acknowledgment might have been a cookie, and was none, or too old.
    syn_cookies_failed,
    /// SYNs dropped: SYN backlog; and cookies that came back when there was no place for another connection.
    syn_dropped,
    /// SYNs dropped and active opens refused: no place for another connection.
    connections_full,
    /// Connections in TIME-WAIT that gave way to new ones.
    time_wait_recycled,
    /// Connections in TIME-WAIT replaced by a new one between the same ports.
    time_wait_reused,
    /// Connections reset by the peer.
    resets_in,
    /// Connections that timed out.
    timed_out,
    /// Connections that ended.
    connections_ended,
    /// UDP datagrams delivered; one that reaches several sockets counts once.
    udp_in,
    /// UDP datagrams sent.
    udp_out,
    /// UDP datagrams dropped: header cut short or contradictory.
    udp_malformed,
    /// UDP datagrams dropped: checksum.
    udp_bad_checksum,
    /// UDP datagrams to a port without a socket.
    udp_to_nowhere,
    /// ICMP messages handled.
    icmp_in,
    /// ICMP messages dropped: cut short, or checksum.
    icmp_malformed,
    /// Packets of ours were too large for their path, by ICMP messages that were believed.
    path_mtu_lowered,
    /// ICMP errors that match nothing of ours.
    icmp_unmatched,
    /// Echo requests answered.
    icmp_echo_replies,
    /// ICMP errors sent.
    icmp_errors_out,
    /// ICMP messages not sent: rate limit.
    icmp_rate_limited,
    /// ARP packets handled.
    arp_in,
    /// ARP packets dropped: malformed, or from an address that cannot be a neighbour's.
    arp_malformed,
    /// ARP requests sent.
    arp_requests_out,
    /// ARP replies sent.
    arp_replies_out,
    /// ARP packets in which another station claims an address of ours.
    arp_conflicts,
    /// DHCP messages handled.
    dhcp_in,
    /// DHCP messages sent.
    dhcp_out,
    /// Datagrams to the DHCP client's port dropped: no message of a server to this client.
    dhcp_malformed,
    /// Leases taken and prolonged.
    dhcp_leases,
    /// Leases that ended, or that a server took back.
    dhcp_lost,
    /// Neighbours that did not answer.
    arp_failed,
    /// Neighbours forgotten in favour of others.
    arp_evicted,
    /// Messages of IPv6's neighbour discovery handled.
    ndp_in,
    /// Messages of neighbour discovery dropped: RFC 4861 forbids them.
    ndp_malformed,
    /// Messages of neighbour discovery sent.
    ndp_out,
    /// IPv6 neighbours that did not answer.
    ndp_failed,
    /// IPv6 neighbours forgotten in favour of others.
    ndp_evicted,
    /// Router advertisements listened to.
    routers_heard,
    /// Own IPv6 addresses taken into use.
    addresses_assigned,
    /// Own IPv6 addresses that another station has: not taken into use.
    addresses_duplicate,
    /// Advertisements in which another station claims an IPv6 address that we use.
    addresses_contested,
    /// IGMP messages handled: queries and others' reports about IPv4 groups.
    igmp_in,
    /// Of these, messages that are to be ignored: malformed, not from the link, without router alert.
    igmp_ignored,
    /// Reports about IPv4 groups sent.
    igmp_out,
    /// MLD messages handled: queries and others' reports about IPv6 groups.
    mld_in,
    /// Of these, messages that are to be ignored.
    mld_ignored,
    /// Reports about IPv6 groups sent.
    mld_out,
    /// Segments not sent: the neighbour cannot be reached.
    no_neighbor,
    /// Resets, ARP packets and ICMP messages dropped: too many in one turn.
    control_dropped,
    /// Timers that did something.
    timers_fired,
    /// Timers that were early and were set again.
    timers_rearmed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_name() {
        let counters = Counters {
            frames_in: 7,
            timers_rearmed: 9,
            ..Counters::default()
        };
        let all: Vec<_> = counters.iter().collect();
        assert_eq!(all.first(), Some(&("frames_in", 7)));
        assert_eq!(all.last(), Some(&("timers_rearmed", 9)));
        assert_eq!(all.iter().map(|(_, value)| value).sum::<u64>(), 16);
    }
}
