//! Speed of parsing and emitting headers.

use divan::{Bencher, black_box};
use sidecore_wire::{
    EthernetHeader, Ipv4Addr, Ipv4Header, MacAddress, SackBlock, SeqNumber, TcpFlags, TcpHeader,
    TcpOptions, Timestamps, UnscaledWindow, WindowScale, ethernet, ipv4,
};

fn main() {
    divan::main();
}

/// A segment's options, by name.
const OPTIONS: [&str; 4] = ["none", "timestamps", "syn", "sack"];

fn header(options: &str) -> TcpHeader {
    let timestamps = Some(Timestamps {
        value: 0x0102_0304,
        echo: 0x0506_0708,
    });
    let options = match options {
        "none" => TcpOptions::NONE,
        "timestamps" => TcpOptions {
            timestamps,
            ..TcpOptions::NONE
        },
        "syn" => TcpOptions {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps,
            ..TcpOptions::NONE
        },
        "sack" => {
            let block = |n: u32| SackBlock {
                start: SeqNumber(n * 3000),
                end: SeqNumber(n * 3000 + 1460),
            };
            TcpOptions {
                timestamps,
                sack: (0..3).map(block).collect(),
                ..TcpOptions::NONE
            }
        }
        other => unreachable!("no such options: {other}"),
    };
    TcpHeader {
        src_port: 80,
        dst_port: 50_000,
        seq: SeqNumber(0xffff_ff00),
        ack: SeqNumber(17),
        flags: TcpFlags::ACK | TcpFlags::PSH,
        window: UnscaledWindow(512),
        urgent: 0,
        options,
    }
}

fn ip() -> Ipv4Header {
    Ipv4Header::new(
        Ipv4Addr::new(10, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 2),
        ipv4::PROTOCOL_TCP,
    )
}

fn ethernet() -> EthernetHeader {
    EthernetHeader {
        dst: MacAddress([2, 0, 0, 0, 0, 1]),
        src: MacAddress([2, 0, 0, 0, 0, 2]),
        ethertype: ethernet::ETHERTYPE_IPV4,
    }
}

fn frame(options: &str) -> Vec<u8> {
    let mut frame = vec![0; 128];
    emit_all(&ethernet(), &ip(), &header(options), &mut frame);
    frame
}

fn emit_all(ethernet: &EthernetHeader, ip: &Ipv4Header, tcp: &TcpHeader, buf: &mut [u8]) -> usize {
    let mut at = ethernet.emit(buf);
    at += ip.emit(&mut buf[at..], tcp.len());
    at + tcp.emit(&mut buf[at..])
}

#[divan::bench(args = OPTIONS)]
fn tcp_parse(bencher: Bencher, options: &str) {
    let mut segment = [0; 60];
    header(options).emit(&mut segment);
    bencher.bench_local(|| TcpHeader::parse(black_box(&segment)));
}

#[divan::bench(args = OPTIONS)]
fn tcp_emit(bencher: Bencher, options: &str) {
    let header = header(options);
    let mut buf = [0; 60];
    bencher.bench_local(|| black_box(&header).emit(black_box(&mut buf)));
}

#[divan::bench]
fn ipv4_parse(bencher: Bencher) {
    let mut packet = [0; 20];
    ip().emit(&mut packet, 0);
    bencher.bench_local(|| Ipv4Header::parse(black_box(&packet)));
}

#[divan::bench]
fn ipv4_emit(bencher: Bencher) {
    let header = ip();
    let mut buf = [0; 20];
    bencher.bench_local(|| black_box(&header).emit(black_box(&mut buf), 1460));
}

/// Ethernet, IPv4 with its checksum, and TCP, as the stack does it for each frame.
#[divan::bench(args = OPTIONS)]
fn frame_parse(bencher: Bencher, options: &str) {
    let frame = frame(options);
    bencher.bench_local(|| {
        let frame = black_box(frame.as_slice());
        let (_, at) = EthernetHeader::parse(frame).ok()?;
        let packet = &frame[at..];
        let (_, payload) = Ipv4Header::parse(packet).ok()?;
        TcpHeader::parse(&packet[payload]).ok()
    });
}

#[divan::bench(args = OPTIONS)]
fn frame_emit(bencher: Bencher, options: &str) {
    let (ethernet, ip, tcp) = (ethernet(), ip(), header(options));
    let mut buf = [0; 128];
    bencher.bench_local(|| {
        emit_all(
            black_box(&ethernet),
            black_box(&ip),
            black_box(&tcp),
            black_box(&mut buf),
        )
    });
}
