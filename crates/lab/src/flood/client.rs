//! Whoever sends: a few exchanges at a time that mean it, by hand, and a flood that does not.
//!
//! An exchange is a SYN as today's hosts send it, the ACK with a request in the same segment, the answer, and a reset that ends it without TIME-WAIT.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Instant;

use sidecore_nic::wire::Wire;
use sidecore_nic::{Nic, RxBurst, TxFrame};
use sidecore_wire::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4};
use sidecore_wire::ipv4::PROTOCOL_TCP;
use sidecore_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Ipv4Header, MacAddress, SeqNumber, TcpFlags,
    TcpHeader, TcpOptions, Timestamps, UnscaledWindow, WindowScale, arp,
};

use super::{FloodConfig, FloodUse, PORT};
use crate::load::latency::Recorder;
use crate::native::{HERE, THERE};

/// Bytes of a request: what fits into a frame's header with all that comes before.
const REQUEST: usize = 32;

/// SYNs of the flood between two looks at what has come.
const SYNS: usize = 64;

/// After so long, in nanoseconds, a SYN or a request is sent again (RFC 6298: one second).
const AGAIN: u64 = 1_000_000_000;

/// So many times in all.
const TRIES: u8 = 4;

/// Ports of exchanges.
const PORTS: std::ops::Range<u16> = 1024..60_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The SYN is out.
    Connecting,
    /// The request is out.
    Asking,
}

/// One that is under way.
#[derive(Clone, Copy)]
struct Exchange {
    port: u16,
    step: Step,
    tries: u8,
    began: u64,
    sent: u64,
    /// Our next sequence number, the server's, and its last timestamp.
    seq: SeqNumber,
    ack: SeqNumber,
    echo: u32,
}

/// The client's end of the wire.
pub(super) struct Client<'a> {
    wire: Wire,
    config: &'a FloodConfig,
    server: MacAddress,
    start: Instant,
    begin: u64,
    end: u64,
    now: u64,
    exchanges: Vec<Exchange>,
    next_port: u16,
    /// Frames of exchanges and ARP replies that wait for room.
    waiting: VecDeque<Vec<u8>>,
    /// Of the flood so far.
    number: u32,
    connect: Recorder,
    exchange: Recorder,
    used: FloodUse,
}

impl<'a> Client<'a> {
    pub(super) fn new(wire: Wire, config: &'a FloodConfig) -> Self {
        let begin = config.warm_up.as_nanos() as u64;
        Self {
            wire,
            config,
            server: MacAddress::BROADCAST,
            start: Instant::now(),
            begin,
            end: begin + config.measure.as_nanos() as u64,
            now: 0,
            exchanges: Vec::new(),
            next_port: PORTS.start,
            waiting: VecDeque::new(),
            number: 0,
            connect: Recorder::new(),
            exchange: Recorder::new(),
            used: FloodUse::default(),
        }
    }

    pub(super) fn run(mut self) -> FloodUse {
        let mut burst = RxBurst::new();
        self.ask_for_server();
        loop {
            self.now = self.start.elapsed().as_nanos() as u64;
            if self.now >= self.end {
                break;
            }
            self.receive(&mut burst);
            if self.server != MacAddress::BROADCAST {
                while self.exchanges.len() < self.config.exchanges {
                    let exchange = self.begin_exchange();
                    self.exchanges.push(exchange);
                }
                self.repeat();
                self.send_waiting();
                if self.config.flood {
                    self.flood();
                }
            }
            self.send_waiting();
            self.wire.flush();
        }
        self.used.seconds = self.config.measure.as_secs_f64();
        self.used.connect = self.connect.summary();
        self.used.exchange = self.exchange.summary();
        self.used
    }

    fn is_measured(&self) -> bool {
        self.now >= self.begin
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.wire.receive(burst);
        for index in 0..burst.len() {
            let Some(frame) = burst.get(index) else { break };
            let bytes = self.wire.frame(&frame);
            match parse(bytes) {
                Some(Came::Arp(packet)) => self.arp(&packet),
                Some(Came::Segment(header, payload)) => self.segment(&header, payload),
                None => {}
            }
        }
        self.wire.release(burst);
    }

    /// We are a router's far side: all addresses are behind us.
    fn arp(&mut self, packet: &ArpPacket) {
        if packet.sender_ip == HERE {
            self.server = packet.sender_mac;
        }
        if packet.operation == ArpOperation::Request && packet.target_ip != HERE {
            self.push_arp(ArpOperation::Reply, packet.target_ip, packet.sender_mac);
        }
    }

    fn ask_for_server(&mut self) {
        self.push_arp(ArpOperation::Request, THERE, MacAddress::BROADCAST);
    }

    fn push_arp(&mut self, operation: ArpOperation, sender_ip: Ipv4Addr, to: MacAddress) {
        let mac = self.wire.caps().mac;
        let packet = ArpPacket {
            operation,
            sender_mac: mac,
            sender_ip,
            target_mac: to,
            target_ip: HERE,
        };
        let mut frame = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
        EthernetHeader {
            dst: to,
            src: mac,
            ethertype: ETHERTYPE_ARP,
        }
        .emit(&mut frame);
        packet.emit(&mut frame[ethernet::HEADER_LEN..]);
        self.waiting.push_back(frame);
    }

    fn begin_exchange(&mut self) -> Exchange {
        let port = self.next_port;
        self.next_port = if port + 1 < PORTS.end {
            port + 1
        } else {
            PORTS.start
        };
        let exchange = Exchange {
            port,
            step: Step::Connecting,
            tries: 1,
            began: self.now,
            sent: self.now,
            seq: SeqNumber(self.now as u32),
            ack: SeqNumber(0),
            echo: 0,
        };
        self.send(&exchange);
        exchange
    }

    /// What an exchange says at its step.
    fn send(&mut self, exchange: &Exchange) {
        let clock = (self.now / 1_000_000) as u32;
        let frame = match exchange.step {
            Step::Connecting => self.frame(THERE, &syn(exchange.port, exchange.seq, clock), 0),
            Step::Asking => {
                let header = self.header(exchange, TcpFlags::ACK | TcpFlags::PSH, clock);
                self.frame(THERE, &header, REQUEST)
            }
        };
        self.waiting.push_back(frame);
    }

    fn header(&self, exchange: &Exchange, flags: TcpFlags, clock: u32) -> TcpHeader {
        TcpHeader {
            src_port: exchange.port,
            dst_port: PORT,
            seq: exchange.seq,
            ack: exchange.ack,
            flags,
            window: UnscaledWindow(1000),
            options: TcpOptions {
                timestamps: Some(Timestamps {
                    value: clock,
                    echo: exchange.echo,
                }),
                ..TcpOptions::NONE
            },
            ..TcpHeader::default()
        }
    }

    fn frame(&self, from: Ipv4Addr, header: &TcpHeader, payload: usize) -> Vec<u8> {
        let (mac, server) = (self.wire.caps().mac, self.server);
        build(mac, server, from, header, payload)
    }

    /// What has waited for too long is sent again, or given up.
    fn repeat(&mut self) {
        for index in 0..self.exchanges.len() {
            let mut exchange = self.exchanges[index];
            if self.now < exchange.sent + AGAIN {
                continue;
            }
            if exchange.tries == TRIES {
                self.give_up(index);
                continue;
            }
            exchange.tries += 1;
            exchange.sent = self.now;
            self.used.again += u64::from(self.is_measured());
            self.send(&exchange);
            self.exchanges[index] = exchange;
        }
    }

    fn give_up(&mut self, index: usize) {
        if self.is_measured() {
            self.used.connects += 1;
            self.used.failed += 1;
        }
        self.exchanges[index] = self.begin_exchange();
    }

    fn segment(&mut self, header: &TcpHeader, payload: usize) {
        let is_its = |exchange: &Exchange| exchange.port == header.dst_port;
        let Some(index) = self.exchanges.iter().position(is_its) else {
            return;
        };
        let mut exchange = self.exchanges[index];
        if header.flags.contains(TcpFlags::RST) {
            return self.give_up(index);
        }
        let answers = header.flags.contains(TcpFlags::SYN | TcpFlags::ACK);
        if exchange.step == Step::Connecting && answers && header.ack == exchange.seq.add(1) {
            if self.is_measured() {
                self.connect.record(self.now - exchange.began);
            }
            exchange.step = Step::Asking;
            exchange.tries = 1;
            exchange.sent = self.now;
            exchange.seq = exchange.seq.add(1);
            exchange.ack = header.seq.add(1);
            exchange.echo = header.options.timestamps.map_or(0, |ts| ts.value);
            self.send(&exchange);
            self.exchanges[index] = exchange;
        } else if exchange.step == Step::Asking && payload == REQUEST {
            if self.is_measured() {
                self.used.connects += 1;
                self.exchange.record(self.now - exchange.began);
            }
            exchange.seq = header.ack;
            exchange.ack = header.seq.add(payload as u32);
            let reset = self.header(&exchange, TcpFlags::RST | TcpFlags::ACK, 0);
            let frame = self.frame(THERE, &reset, 0);
            self.waiting.push_back(frame);
            self.exchanges[index] = self.begin_exchange();
        }
    }

    fn send_waiting(&mut self) {
        while self.wire.has_room()
            && let Some(frame) = self.waiting.pop_front()
        {
            self.submit(&frame);
        }
    }

    fn submit(&mut self, frame: &[u8]) {
        self.wire.submit(&TxFrame {
            header: frame,
            payload: &[],
            payload_len: 0,
            // The wire loses and changes nothing: nobody looks.
            checksum: None,
            segment_size: 0,
        });
    }

    /// As many SYNs as there is room for: from 252 addresses, each from another port, with other numbers.
    fn flood(&mut self) {
        for _ in 0..SYNS {
            if !self.wire.has_room() {
                return;
            }
            self.number = self.number.wrapping_add(1);
            let n = self.number;
            let from = Ipv4Addr::new(10, 76, 0, 3 + (n % 252) as u8);
            let port = 1 + (n / 252 % 65_535) as u16;
            let header = syn(port, SeqNumber(n.wrapping_mul(0x9e37_79b9)), n);
            let frame = self.frame(from, &header, 0);
            self.submit(&frame);
            self.used.flood += u64::from(self.is_measured());
        }
    }
}

/// What has come.
enum Came {
    Arp(ArpPacket),
    /// For the addresses of exchanges, with the length of its payload.
    Segment(TcpHeader, usize),
}

fn parse(frame: &[u8]) -> Option<Came> {
    let (ethernet, offset) = EthernetHeader::parse(frame).ok()?;
    let packet = frame.get(offset..)?;
    match ethernet.ethertype {
        ETHERTYPE_ARP => Some(Came::Arp(ArpPacket::parse(packet).ok()?.0)),
        ETHERTYPE_IPV4 => {
            let (ip, range) = Ipv4Header::parse(packet).ok()?;
            if ip.protocol != PROTOCOL_TCP || ip.dst != THERE {
                return None;
            }
            let bytes = packet.get(range)?;
            let (header, data) = TcpHeader::parse(bytes).ok()?;
            Some(Came::Segment(header, bytes.len() - data))
        }
        _ => None,
    }
}

/// A SYN with all that today's hosts offer.
fn syn(port: u16, seq: SeqNumber, clock: u32) -> TcpHeader {
    TcpHeader {
        src_port: port,
        dst_port: PORT,
        seq,
        flags: TcpFlags::SYN,
        window: UnscaledWindow(64_240),
        options: TcpOptions {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                value: clock,
                echo: 0,
            }),
            ..TcpOptions::NONE
        },
        ..TcpHeader::default()
    }
}

fn build(
    mac: MacAddress,
    server: MacAddress,
    from: Ipv4Addr,
    header: &TcpHeader,
    payload: usize,
) -> Vec<u8> {
    let ip = ethernet::HEADER_LEN;
    let tcp = ip + sidecore_wire::ipv4::MIN_HEADER_LEN;
    let mut frame = vec![0; tcp + header.len() + payload];
    EthernetHeader {
        dst: server,
        src: mac,
        ethertype: ETHERTYPE_IPV4,
    }
    .emit(&mut frame);
    let length = header.len() + payload;
    Ipv4Header::new(from, HERE, PROTOCOL_TCP).emit(&mut frame[ip..], length);
    header.emit(&mut frame[tcp..]);
    frame
}
