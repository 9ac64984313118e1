//! TCP Fast Open (RFC 7413): data with the SYN, and before the handshake's end. Who may do that (cookies, limits, what is known of a
//! server) is the caller's to say.
//!
//! ```text
//!  client                                   server
//!   use_fast_open ── SYN, cookie, data ──►   accept, take_syn_data: SYN-RECEIVED, and data may be answered
//!                 ◄── SYN-ACK ───────────
//!   ESTABLISHED   ◄── data ──────────────
//!                 ─── ACK ──────────────►    ESTABLISHED
//! ```
//!
//! A SYN that is sent again carries neither cookie nor data (section 4.2.1): what does not get through with one gets through as ever.

use serde::{Deserialize, Serialize};
use sidecore_wire::{FastOpenCookie, SeqNumber, TcpOptions};

use crate::Connection;
use crate::connection::{Cold, DEFAULT_PEER_MSS, Seldom};
use crate::flags::Flags;
use crate::receive::Arrival;
use crate::recovery::Phase;
use crate::time::Instant;
use crate::types::{Outcome, RxRange, State};

/// Bytes that the options of a SYN take at most.
const OPTIONS_MAX: u16 = 40;

/// What only connections have that were opened so; none has it else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct FastOpen {
    /// The option of the SYN, or of the SYN-ACK.
    #[serde(with = "cookie")]
    offer: Option<FastOpenCookie>,
    /// The SYN waits for data.
    hold: bool,
    /// The server took the SYN's data: more may be received and sent in SYN-RECEIVED.
    open: bool,
    /// The SYN was sent again: without all this.
    repeated: bool,
    /// ICMP said that the SYN was too large.
    too_large: bool,
    /// The option of the SYN-ACK.
    #[serde(with = "cookie")]
    answer: Option<FastOpenCookie>,
    /// Payload bytes that the SYN may carry.
    room: u16,
    /// … and those that it carried.
    sent: u16,
    /// Of these, what the SYN-ACK acknowledged; of a server, what it took.
    acked: u16,
}

/// What became of a Fast Open: what a client should remember of the server (RFC 7413 section 4.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenResult {
    /// The cookie that the SYN-ACK brought.
    pub cookie: Option<FastOpenCookie>,
    /// The MSS that the server announced, in bytes.
    pub mss: u16,
    /// Payload bytes that the SYN carried.
    pub sent: u16,
    /// Of these, how many the SYN-ACK acknowledged.
    pub acked: u16,
    /// The first SYN, with option and data, was not answered in time: it may have been lost for what it carried.
    pub repeated: bool,
}

impl Connection {
    /// Before the first SYN is sent: it asks for a cookie or, with one, carries data, of `mss` bytes (the server's MSS, as it is
    /// remembered; 0: it is not) less options at most. With a cookie the SYN waits until there is something to send, or
    /// [`Connection::shutdown_send`] says that there never will be.
    pub fn use_fast_open(&mut self, cookie: Option<FastOpenCookie>, mss: u16) {
        if self.state != State::SynSent {
            return;
        }
        let mss = if mss == 0 { DEFAULT_PEER_MSS } else { mss };
        let room = mss.min(self.cold.announced_mss) - OPTIONS_MAX;
        self.seldom().fast_open = Some(FastOpen {
            offer: Some(cookie.unwrap_or(FastOpenCookie::REQUEST)),
            hold: cookie.is_some(),
            room: if cookie.is_some() { room } else { 0 },
            ..FastOpen::default()
        });
    }

    /// What became of the Fast Open that [`Connection::use_fast_open`] began; `None` if there was none.
    pub fn fast_open_result(&self) -> Option<FastOpenResult> {
        let fast = self.cold.fast_open()?;
        (!self.cold.passive).then_some(FastOpenResult {
            cookie: fast.answer.filter(|cookie| !cookie.is_request()),
            mss: self.cold.peer_mss,
            sent: fast.sent,
            acked: fast.acked,
            repeated: fast.repeated,
        })
    }

    /// SYN-SENT, and the SYN waits for data that it may take along.
    pub fn awaits_syn_data(&self) -> bool {
        self.syn_is_held()
    }

    /// Payload bytes that the SYN may carry; 0: it waits for none.
    pub fn syn_data_room(&self) -> u16 {
        let fast = self.cold.fast_open();
        fast.map_or(0, |fast| fast.room)
    }

    /// The SYN waits for data no longer: it goes with its cookie alone.
    pub fn release_syn(&mut self) {
        if let Some(fast) = self
            .cold
            .seldom
            .as_deref_mut()
            .and_then(Seldom::fast_open_mut)
        {
            fast.hold = false;
        }
    }

    /// Data went with the SYN and was taken, all of it: for `TCP_INFO`.
    pub fn syn_data_acked(&self) -> bool {
        let fast = self.cold.fast_open();
        fast.is_some_and(|fast| fast.acked > 0 && fast.acked >= fast.sent)
    }

    /// In SYN-RECEIVED, before the SYN-ACK is sent: it carries this cookie.
    pub fn grant_cookie(&mut self, cookie: FastOpenCookie) {
        let fast = self
            .cold
            .seldom
            .get_or_insert_default()
            .fast_open
            .get_or_insert_default();
        fast.offer = Some(cookie);
    }

    /// In SYN-RECEIVED, before the SYN-ACK is sent: the cookie was good, so `payload_len` bytes of the SYN are taken, as far as there is
    /// receive buffer, and data may be sent before the handshake is complete.
    ///
    /// What the caller must store the outcome says. A FIN is not taken; the peer sends it again.
    pub fn take_syn_data(&mut self, payload_len: u32) -> Outcome {
        debug_assert!(self.state == State::SynReceived && self.rcv_nxt == 0);
        let fast = self
            .cold
            .seldom
            .get_or_insert_default()
            .fast_open
            .get_or_insert_default();
        fast.open = true;
        let len = u64::from(payload_len).min(self.rcv_limit);
        fast.acked = len.try_into().unwrap_or(u16::MAX);
        self.rcv_nxt = len;
        self.rcv_adv = self.rcv_adv.max(len);
        let accept = (len > 0).then_some(RxRange {
            payload_offset: 0,
            len: len as u32,
            stream_offset: 0,
            in_order: true,
        });
        Outcome {
            accept,
            ..Outcome::default()
        }
    }

    /// SYN-SENT: there is a cookie, and nothing yet that could go with it.
    pub(crate) fn syn_is_held(&self) -> bool {
        let fast = self.cold.fast_open();
        fast.is_some_and(|fast| fast.hold && !fast.repeated)
            && self.state == State::SynSent
            && self.send_limit == 0
            && !self.flags.any(Flags::FIN_QUEUED)
    }

    /// The option of a SYN or SYN-ACK; and how many bytes go with it.
    #[cold]
    pub(crate) fn fast_open_on_syn(&mut self, options: &mut TcpOptions) -> u64 {
        let Some(fast) = self
            .cold
            .seldom
            .as_deref_mut()
            .and_then(Seldom::fast_open_mut)
        else {
            return 0;
        };
        if self.state == State::SynReceived && !self.cold.passive {
            // Simultaneous open: neither side is a server.
            return 0;
        }
        if fast.repeated {
            return 0;
        }
        options.fast_open = fast.offer;
        if self.cold.passive {
            return 0;
        }
        if self.flags.any(Flags::URGENT) {
            // A SYN carries no URG: the data follows, and says so.
            fast.room = 0;
        }
        fast.sent = self.send_limit.min(fast.room.into()) as u16;
        self.snd_nxt = fast.sent.into();
        fast.sent.into()
    }

    /// The SYN was not answered in time: the next one has neither cookie nor data.
    pub(crate) fn fast_open_gives_up(&mut self) {
        if let Some(fast) = self
            .cold
            .seldom
            .as_deref_mut()
            .and_then(Seldom::fast_open_mut)
            && !self.cold.passive
        {
            fast.repeated = true;
        }
    }

    /// Whether this acknowledges the SYN, and nothing that was not sent: data may have gone with it.
    pub(crate) fn acknowledges_syn(&self, ack: SeqNumber) -> bool {
        let fast = self.cold.fast_open();
        let sent = fast.map_or(0, |fast| u64::from(fast.sent));
        u64::from(ack.distance_from(self.snd_base)) <= sent.max(self.snd_nxt)
    }

    /// ICMP said that the SYN was too large for the path, which without its data no SYN is: it is sent again at once, without. Its MSS
    /// option is of what the path carries: what does not fit one way is likely not to fit the other way either.
    pub(crate) fn fast_open_too_large(&mut self) {
        let seldom = self.cold.seldom.as_deref_mut();
        let Some(fast) = seldom.and_then(Seldom::fast_open_mut) else {
            return;
        };
        if self.state != State::SynSent || fast.sent == 0 || fast.repeated {
            return;
        }
        fast.repeated = true;
        fast.too_large = true;
        let counters = &mut self.cold.counters;
        counters.retransmissions = counters.retransmissions.wrapping_add(1);
        // This one did not arrive: the next is the first that is timed.
        self.retransmit_at = Instant::NEVER;
        self.flags.set(Flags::SYN_DUE);
    }

    /// The MSS option of a SYN (RFC 9293 section 3.7.1).
    pub(crate) fn syn_mss(&self) -> u16 {
        let fast = self.cold.fast_open();
        let announced = self.cold.announced_mss;
        if fast.is_some_and(|fast| fast.too_large) {
            announced.min(self.cold.path.low)
        } else {
            announced
        }
    }

    /// SYN-SENT, and the SYN-ACK came: what of the SYN's data is acknowledged, is.
    ///
    /// The rest is to be sent again at once (RFC 7413 section 4.2.2), which is no sign of congestion: the window stays. If another SYN
    /// went out since, without data, the rest is sent as if it had never been.
    pub(crate) fn fast_open_answered(&mut self, arrival: &mut Arrival<'_>) {
        let header = arrival.header;
        let seldom = self.cold.seldom.as_deref_mut();
        let Some(fast) = seldom.and_then(Seldom::fast_open_mut) else {
            return;
        };
        fast.answer = header.options.fast_open;
        fast.acked = header.ack.distance_from(self.snd_base) as u16;
        let (acked, sent) = (u64::from(fast.acked), u64::from(fast.sent));
        let repeated = fast.repeated;
        self.snd_una = acked;
        self.snd_nxt = acked;
        arrival.outcome.acked = acked > 0;
        if acked == sent {
            return;
        }
        if repeated {
            self.cold.counters.bytes_retransmitted += sent - acked;
            return;
        }
        self.snd_nxt = sent;
        self.run_at = self.cold.unanswered_since;
        self.phase = Phase::Loss;
        self.cold.recover = sent;
        self.cold.all_lost = true;
        self.undo_forget();
        self.flags.set(
            Flags::RECOVERING
                .or(Flags::RETRANSMIT_NOW)
                .or(Flags::LOST_LEFT),
        );
    }

    /// Whether data may be sent although the handshake is not complete.
    pub(crate) fn may_send_early(&self) -> bool {
        let fast = self.cold.fast_open();
        fast.is_some_and(|fast| fast.open)
            && self.state == State::SynReceived
            && !self.flags.any(Flags::SYN_DUE)
    }
}

impl Cold {
    fn fast_open(&self) -> Option<&FastOpen> {
        self.seldom.as_deref()?.fast_open.as_ref()
    }
}

impl Seldom {
    fn fast_open_mut(&mut self) -> Option<&mut FastOpen> {
        self.fast_open.as_mut()
    }
}

/// Cookies as bytes.
mod cookie {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use sidecore_wire::FastOpenCookie;

    pub(super) fn serialize<S: Serializer>(
        cookie: &Option<FastOpenCookie>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        cookie.as_ref().map(FastOpenCookie::as_slice).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<FastOpenCookie>, D::Error> {
        let bytes = Option::<Vec<u8>>::deserialize(from)?;
        Ok(bytes.and_then(|bytes| FastOpenCookie::new(&bytes)))
    }
}
