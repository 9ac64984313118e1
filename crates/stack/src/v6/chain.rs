//! What stands between the IPv6 header and the transport: extension headers and fragments (RFC 8200 section 4).

use sidecore_tcp::Instant;
use sidecore_wire::ipv6::extension::{ChainError, FragmentHeader, HeaderChain};
use sidecore_wire::{Icmpv6, ecn, icmpv6, ipv6};

use super::input::Packet6;
use crate::control::Link;
use crate::host::Host;
use crate::input::{Place, Transport};
use crate::reassembly::{Part, Progress};
use crate::stack::Stack;

impl Stack {
    /// A packet that may come from where it says, with all that follows its IP header.
    pub(super) fn handle_chain<H: Host>(
        &mut self,
        now: Instant,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        let chain = match HeaderChain::parse(&packet.header, packet.transport.bytes) {
            Ok(chain) => chain,
            Err(error) => return self.refuse_chain(now, packet, error),
        };
        let inner = Packet6 {
            transport: behind(&packet.transport, chain.payload),
            ..*packet
        };
        match chain.fragment {
            Some(fragment) => self.handle_fragment6(now, fragment, &inner, host),
            None => self.handle_transport6(now, &chain, &inner, host),
        }
        self.six.reschedule();
    }

    fn refuse_chain(&mut self, now: Instant, packet: &Packet6<'_>, error: ChainError) {
        self.counters.ipv6_chain_refused += 1;
        if let ChainError::Problem {
            code,
            pointer,
            even_multicast,
        } = error
            && (!packet.multicast || even_multicast)
        {
            let pointer = u32::from(pointer);
            self.send_error6(now, packet, &Icmpv6::ParameterProblem { code, pointer });
        }
    }

    fn handle_transport6<H: Host>(
        &mut self,
        now: Instant,
        chain: &HeaderChain,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        match chain.protocol {
            ipv6::PROTOCOL_ICMPV6 => self.handle_icmp6(now, packet, chain.alert, host),
            _ if packet.discovery_only => self.counters.ip_bad_source += 1,
            ipv6::PROTOCOL_TCP => self.handle_tcp6(now, packet, host),
            ipv6::PROTOCOL_UDP => self.handle_udp6(now, packet, host),
            // RFC 8200 section 4.7: what follows is ignored.
            ipv6::NO_NEXT_HEADER => {}
            _ => {
                self.counters.ip_other_protocol += 1;
                if !packet.multicast {
                    // RFC 8200 section 4: "the Next Header value … unrecognized".
                    let problem = Icmpv6::ParameterProblem {
                        code: icmpv6::PROBLEM_NEXT_HEADER,
                        pointer: u32::from(chain.protocol_at),
                    };
                    self.send_error6(now, packet, &problem);
                }
            }
        }
    }

    fn handle_fragment6<H: Host>(
        &mut self,
        now: Instant,
        fragment: FragmentHeader,
        packet: &Packet6<'_>,
        host: &mut H,
    ) {
        self.counters.fragments_in += 1;
        // Our own loopback never cuts packets; and neighbour discovery is not taken out of fragments (RFC 6980).
        if packet.link == Link::Loopback || packet.discovery_only {
            self.counters.reassembly_malformed += 1;
            return;
        }
        let part = Part {
            offset: usize::from(fragment.offset),
            more: fragment.more,
            protocol: fragment.next_header,
            ecn: packet.header.traffic_class & ecn::MASK,
        };
        let key = (packet.src(), packet.dst(), fragment.ident);
        let progress = self
            .six
            .reassembly
            .add(now, key, &part, packet.transport.bytes);
        self.counters.reassembly_evicted = self.reassembly.evicted + self.six.reassembly.evicted;
        let buffer = match progress {
            Progress::Incomplete => return,
            Progress::Malformed => {
                self.counters.reassembly_malformed += 1;
                return;
            }
            Progress::Complete(buffer) => buffer,
        };
        self.counters.reassembled += 1;
        let protocol = self.six.reassembly.protocol(buffer);
        let ce = self.six.reassembly.is_ce(buffer);
        let (bytes, len) = self.six.reassembly.take(buffer);
        let all = bytes.get(..len).unwrap_or_default();
        match HeaderChain::parse_rest(protocol, all) {
            Ok(chain) => {
                let whole = Transport {
                    bytes: all,
                    len,
                    place: Place::Buffer,
                    // What a device says of a checksum, it says of single fragments.
                    verified: false,
                    ce,
                };
                let whole = Packet6 {
                    transport: behind(&whole, chain.payload),
                    quotable: None,
                    ..*packet
                };
                self.handle_transport6(now, &chain, &whole, host);
            }
            Err(_) => self.counters.ipv6_chain_refused += 1,
        }
        self.six.reassembly.give_back(buffer, bytes);
    }
}

/// What follows the first `len` bytes.
fn behind<'a>(transport: &Transport<'a>, len: usize) -> Transport<'a> {
    Transport {
        bytes: transport.bytes.get(len..).unwrap_or_default(),
        len: transport.len.saturating_sub(len),
        place: match transport.place {
            Place::Frame(start) => Place::Frame(start + len as u32),
            Place::Buffer => Place::Buffer,
        },
        verified: transport.verified,
        ce: transport.ce,
    }
}
