//! SYN cookies (RFC 4987 section 3.6): where there is no room for another connection in SYN-RECEIVED, the SYN-ACK's sequence
//! number keeps what must be known of the SYN, and the connection is made when the peer sends it back.
//!
//! A SYN-ACK with a cookie costs an entry of the control queue until the turn's end, and nothing after that. Window scale, SACK and ECN
//! are kept in the lowest bits of the SYN-ACK's timestamp, as Linux does; a peer without timestamps gets none of them.
//! `docs/safety.md` says what else is lost.

pub(crate) mod code;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use core::time::Duration;

use sidecore_tcp::{Config, Connection, Instant, TxLimits};
use sidecore_wire::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::DETACHED;
use crate::config::{SocketOptions, SynCookies};
use crate::connections::{Endpoints, NewConnection, Owner};
use crate::control::{Control, Link, SynAck};
use crate::host::Host;
use crate::marking::Marking;
use crate::segment::Payload;
use crate::stack::Stack;
use crate::v6::Control6;
use code::{LIFETIME_SECS, Offered, Request};

/// What a handshake needs beside the connection itself.
struct Opening {
    options: SocketOptions,
    config: Config,
    request: Request,
}

impl Opening {
    /// Up to where there is receive buffer.
    fn limit(&self) -> u64 {
        self.options.receive_window.into()
    }
}

impl Stack {
    /// Whether a SYN is answered with a cookie; `full` says whether its listener's SYN queue, or that of all, is full.
    pub(crate) fn wants_cookie(&self, full: bool) -> bool {
        match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::OnOverflow => full,
            SynCookies::Always => true,
        }
    }

    fn opening(&mut self, at: u32, header: &TcpHeader, endpoints: &Endpoints) -> Opening {
        let (local, remote) = endpoints.addresses();
        let options = self.listeners.options_of(at).clone();
        let config = self.tcp_config(&options, local, remote, endpoints.is_loopback());
        let irs = header.seq;
        Opening {
            options,
            config,
            request: Request { local, remote, irs },
        }
    }

    /// Answers a SYN for the listener at `at` with a cookie. Nothing of it is kept.
    #[cold]
    pub(crate) fn send_cookie(
        &mut self,
        now: Instant,
        syn: &TcpHeader,
        at: u32,
        endpoints: &Endpoints,
        link: Link,
    ) {
        let mut opening = self.opening(at, syn, endpoints);
        let mut syn = *syn;
        if !opening.config.timestamps || syn.options.timestamps.is_none() {
            // Nothing could bring them back.
            syn.options.window_scale = None;
            syn.options.sack_permitted = false;
            syn.flags = TcpFlags::SYN;
        }
        let request = opening.request;
        let mss = syn.options.mss.unwrap_or(0);
        let cookie = self.cookies.encode(now, &request, mss);
        opening.config.timestamps &= syn.options.timestamps.is_some();
        // The very SYN-ACK that a connection would send, which is forgotten at once.
        let mut tcp = Connection::accept(now, &opening.config, cookie, &syn);
        tcp.set_receive_limit(u64::from(opening.options.receive_window));
        let polled = tcp.poll_transmit(now, &TxLimits::default(), &mut self.ranges);
        tcp.release(&mut self.ranges);
        let Some(segment) = polled else { return };
        let mut answer = segment.header;
        let agreed = Offered::agreed(&syn, &answer);
        if let Some(timestamps) = &mut answer.options.timestamps {
            let offset = opening.config.timestamp_offset;
            let clock = timestamps.value.wrapping_sub(offset);
            timestamps.value = agreed.into_clock(clock).wrapping_add(offset);
        }
        if self.push_syn_ack(link, request.local, request.remote, &answer) {
            self.counters.syn_cookies_sent += 1;
            self.listeners.note_cookie(at, now);
        }
    }

    fn push_syn_ack(
        &mut self,
        link: Link,
        local: SocketAddr,
        remote: SocketAddr,
        answer: &TcpHeader,
    ) -> bool {
        let answer = SynAck::new(local.port(), remote.port(), answer);
        match (local, remote) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
                let (src, dst) = (*local.ip(), *remote.ip());
                self.push_control(Control::SynAck {
                    link,
                    src,
                    dst,
                    answer,
                })
            }
            (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
                let (src, dst) = (*local.ip(), *remote.ip());
                self.push_control(Control::Six(Control6::SynAck {
                    link,
                    src,
                    dst,
                    answer,
                }))
            }
            _ => false,
        }
    }

    /// Whether one more connection of the listener at `at` finds a place, with the host and here. If not, its segment is as good as lost:
    /// the peer's data, or its keepalive, brings the cookie again.
    fn has_place<H: Host>(&mut self, at: u32, host: &mut H) -> bool {
        if !host.can_accept(self.listeners.user_of(at)) {
            self.counters.accept_queue_full += 1;
            return false;
        }
        let room = self.make_room();
        self.counters.syn_dropped += u64::from(!room);
        room
    }

    /// A segment for which there is no connection, and at `at` somebody listens: if it brings a cookie back, there is a
    /// connection now, and the segment was its. False if it is to be answered as any other: then nothing was done.
    #[cold]
    pub(crate) fn cookie_returns<H: Host>(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload: Payload<'_>,
        at: u32,
        endpoints: Endpoints,
        host: &mut H,
    ) -> bool {
        let others = TcpFlags::SYN | TcpFlags::RST;
        let flags = header.flags;
        if !flags.contains(TcpFlags::ACK) || flags.intersects(others) || header.src_port == 0 {
            return false;
        }
        // As in Linux (tcp_synq_no_recent_overflow): without an overflow lately, no guess can be right.
        let lifetime = Duration::from_secs(LIFETIME_SECS);
        let sent = self.listeners.last_cookie(at);
        if sent.is_none_or(|sent| now.duration_since(sent) > lifetime) {
            return false;
        }
        let syn = TcpHeader {
            seq: header.seq.sub(1),
            ..TcpHeader::default()
        };
        let opening = self.opening(at, &syn, &endpoints);
        let cookie = header.ack.sub(1);
        let Some(mss) = self.cookies.decode(now, &opening.request, cookie) else {
            self.counters.syn_cookies_failed += 1;
            // A segment that has overtaken the one with the cookie is of another sequence number, and so is the ACK that answers a SYN-ACK
            // which came twice. RFC 9293 section 3.10.7.2 asks for a reset, which would end a connection that the peer has every reason
            // to think is there; it will send its data again.
            return true;
        };
        if !self.has_place(at, host) {
            return true;
        }
        self.open_by_cookie(now, (header, mss), payload, (at, opening), endpoints, host);
        true
    }

    /// Makes the connection of a good cookie that keeps a segment size, and hands it the segment that has brought it.
    fn open_by_cookie<H: Host>(
        &mut self,
        now: Instant,
        (header, mss): (&TcpHeader, u16),
        payload: Payload<'_>,
        (at, opening): (u32, Opening),
        endpoints: Endpoints,
        host: &mut H,
    ) {
        let cookie = header.ack.sub(1);
        let syn = as_it_was(header, mss, &opening.config);
        let tcp = Connection::accept_answered(now, &opening.config, cookie, &syn, opening.limit());
        let new = NewConnection {
            endpoints,
            owner: Owner::Listener,
            user: DETACHED,
            irs: syn.seq,
            listener: at,
            marking: Marking::of(&opening.options),
            tcp,
        };
        let Some(index) = self.insert_embryonic(at, new) else {
            return;
        };
        self.segment_arrives(now, index, header, payload, host);
        if self.connections[index].owner == Owner::Listener {
            // It brought the cookie, but was not what completes a handshake. Nothing is kept of it.
            self.leave_listener(index);
            self.connections.detach(index);
            self.free(index);
        } else {
            self.counters.syn_cookies_accepted += 1;
        }
    }
}

/// The SYN that a segment with a good cookie follows, as far as cookie and timestamp have kept it. Its window is not: that of the
/// segment counts.
fn as_it_was(header: &TcpHeader, mss: u16, config: &Config) -> TcpHeader {
    let echoed = header.options.timestamps.filter(|_| config.timestamps);
    let offered = echoed.map_or_else(Offered::default, |timestamps| {
        Offered::from_clock(timestamps.echo.wrapping_sub(config.timestamp_offset))
    });
    let mut flags = TcpFlags::SYN;
    if offered.ecn {
        flags |= TcpFlags::ECE | TcpFlags::CWR;
    }
    TcpHeader {
        src_port: header.src_port,
        dst_port: header.dst_port,
        seq: header.seq.sub(1),
        flags,
        options: TcpOptions {
            mss: Some(mss),
            window_scale: offered.window_scale,
            sack_permitted: offered.sack,
            // TS.Recent is what the segment says.
            timestamps: echoed.map(|timestamps| Timestamps {
                echo: 0,
                ..timestamps
            }),
            ..TcpOptions::NONE
        },
        ..TcpHeader::default()
    }
}
