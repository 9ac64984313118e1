//! The function table, called as packetdrill calls it: a server and a client in virtual time, and a call that blocks.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use libc::{EAGAIN, EFAULT, EINPROGRESS, sockaddr_in, timeval};
use sidecore_packetdrill::{Interface, packetdrill_interface_init};
use sidecore_testkit::packet::{Station, header};
use sidecore_wire::{Ipv4Header, MacAddress, TcpFlags, TcpHeader};

const LOCAL: Station = station(Ipv4Addr::new(192, 168, 0, 1));
const PEER: Station = station(Ipv4Addr::new(192, 0, 2, 1));
const PORT: u16 = 8080;
const ADDRESS_LEN: u32 = size_of::<sockaddr_in>() as u32;

const fn station(ip: Ipv4Addr) -> Station {
    Station {
        mac: MacAddress([2; 6]),
        ip,
    }
}

/// The table; each function as a safe one.
struct Drill(Interface);

// SAFETY: packetdrill calls the table from two threads.
unsafe impl Sync for Drill {}

impl Drop for Drill {
    fn drop(&mut self) {
        // SAFETY: the instance is not used any more.
        unsafe { (self.0.free)(self.0.userdata) };
    }
}

macro_rules! ask {
    ($drill:expr, $name:ident $(, $argument:expr)*) => {
        // SAFETY: the pointers among the arguments are to what lives longer than the call.
        unsafe { ($drill.0.$name)($drill.0.userdata $(, $argument)*) }
    };
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn address(ip: Ipv4Addr, port: u16) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(ip.octets()),
        },
        sin_zero: [0; 8],
    }
}

impl Drill {
    fn new(flags: &str) -> Self {
        let flags = CString::new(flags).expect("no NUL");
        let mut table = MaybeUninit::uninit();
        // SAFETY: a C string, and a table to write to.
        unsafe {
            packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr());
            Self(table.assume_init())
        }
    }

    fn socket(&self) -> c_int {
        let fd = ask!(self, socket, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(fd >= 0);
        fd
    }

    fn listener(&self) -> c_int {
        let (fd, at) = (self.socket(), address(LOCAL.ip, PORT));
        assert_eq!(ask!(self, bind, fd, (&raw const at).cast(), ADDRESS_LEN), 0);
        assert_eq!(ask!(self, listen, fd, 1), 0);
        fd
    }

    fn now(&self) -> i64 {
        let mut time = timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        assert_eq!(ask!(self, gettimeofday, &raw mut time, null_mut()), 0);
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    fn sleep(&self, time: Duration) {
        assert_eq!(ask!(self, usleep, time.as_micros() as u32), 0);
    }

    /// A segment comes from the peer.
    fn inject(&self, header: &TcpHeader, payload: &[u8]) {
        let frame = PEER.tcp(&LOCAL, header, payload);
        let packet = &frame[14..];
        assert_eq!(
            ask!(self, netdev_send, packet.as_ptr().cast(), packet.len()),
            0
        );
    }

    /// The next segment that leaves, its payload's length, and when.
    fn sniff(&self) -> (TcpHeader, usize, i64) {
        let mut buffer = vec![0_u8; 65536];
        let (mut len, mut at) = (buffer.len(), 0);
        let into = buffer.as_mut_ptr().cast();
        assert_eq!(
            ask!(self, netdev_receive, into, &raw mut len, &raw mut at),
            0
        );
        assert!(len > 0, "nothing leaves");
        let (_, range) = Ipv4Header::parse(&buffer[..len]).expect("an IP packet");
        let (tcp, payload) = TcpHeader::parse(&buffer[range.clone()]).expect("a segment");
        (tcp, range.len() - payload, at)
    }

    /// The peer connects; its first sequence number is 0. Returns the sequence number that ours has then.
    fn handshake(&self) -> u32 {
        self.inject(&header(9000, PORT, TcpFlags::SYN, 0, 0), &[]);
        let (syn_ack, len, _) = self.sniff();
        assert_eq!((syn_ack.ack.0, len), (1, 0));
        assert!(syn_ack.flags.contains(TcpFlags::SYN | TcpFlags::ACK));
        let ours = syn_ack.seq.0.wrapping_add(1);
        self.inject(&header(9000, PORT, TcpFlags::ACK, 1, ours), &[]);
        ours
    }

    fn accept(&self, listener: c_int) -> c_int {
        let mut peer = address(Ipv4Addr::UNSPECIFIED, 0);
        let mut len = ADDRESS_LEN;
        let into = (&raw mut peer).cast();
        let fd = ask!(self, accept, listener, into, &raw mut len);
        if fd >= 0 {
            assert_eq!(len, ADDRESS_LEN);
            assert_eq!(u16::from_be(peer.sin_port), 9000);
            assert_eq!(peer.sin_addr.s_addr.to_ne_bytes(), PEER.ip.octets());
        }
        fd
    }
}

#[test]
fn a_server_and_its_data() {
    let drill = Drill::new("mtu=1500,tcp_timestamps=0");
    let listener = drill.listener();
    let ours = drill.handshake();
    let fd = drill.accept(listener);
    assert!(fd >= 0);

    let sent = drill.now();
    assert_eq!(
        ask!(drill, write, fd, [7_u8; 100].as_ptr().cast(), 100),
        100
    );
    let (segment, len, at) = drill.sniff();
    assert_eq!((segment.seq.0, len), (ours, 100));
    assert!((0..100).contains(&(at - sent)));
    // Nobody acknowledges: it comes again, and waiting for it made time pass.
    let (again, len, at) = drill.sniff();
    assert_eq!((again.seq.0, len), (ours, 100));
    assert!(at - sent >= 200_000, "{}", at - sent);

    let ack = header(9000, PORT, TcpFlags::ACK, 1, ours + 100);
    drill.inject(&ack, b"hello");
    let mut buffer = [0_u8; 16];
    let into: *mut c_void = buffer.as_mut_ptr().cast();
    assert_eq!(ask!(drill, read, fd, into, buffer.len()), 5);
    assert_eq!(&buffer[..5], b"hello");

    // Bad arguments are answered.
    assert_eq!(ask!(drill, read, fd, null_mut(), 1), -1);
    assert_eq!(errno(), EFAULT);
    assert_eq!(ask!(drill, close, fd), 0);
    assert_eq!(ask!(drill, close, fd), -1);
    assert_eq!(errno(), libc::EBADF);
}

#[test]
fn calls_that_do_not_block_say_so() {
    let drill = Drill::new("");
    let (fd, to) = (drill.socket(), address(PEER.ip, PORT));
    let flags = i64::from(libc::O_RDWR | libc::O_NONBLOCK);
    assert_eq!(ask!(drill, fcntl, fd, libc::F_SETFL, flags), 0);
    assert_eq!(ask!(drill, fcntl, fd, libc::F_GETFL, 0), flags as c_int);
    let connected = ask!(drill, connect, fd, (&raw const to).cast(), ADDRESS_LEN);
    assert_eq!((connected, errno()), (-1, EINPROGRESS));
    let (syn, _, _) = drill.sniff();
    assert_eq!(syn.flags, TcpFlags::SYN);
    let mut byte = 0_u8;
    assert_eq!(ask!(drill, read, fd, (&raw mut byte).cast(), 1), -1);
    assert_eq!(errno(), EAGAIN);
}

#[test]
fn a_call_that_blocks_ends_when_it_became_ready() {
    let drill = Drill::new("");
    let listener = drill.listener();
    let start = drill.now();
    let ended = thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            let fd = drill.accept(listener);
            assert!(fd >= 0);
            drill.now()
        });
        // Until the other thread waits, this one does nothing that would let it go on.
        thread::sleep(Duration::from_millis(50));
        drill.sleep(Duration::from_millis(100));
        drill.handshake();
        // However far time has gone when the other thread wakes.
        drill.sleep(Duration::from_secs(10));
        blocked.join().expect("accept")
    });
    let waited = ended - start;
    assert!((100_000..101_000).contains(&waited), "{waited} µs");
}

#[test]
fn sysctls_among_the_flags() {
    for (flags, timestamps, sack) in [
        ("tcp_timestamps=1,tcp_sack=1", true, true),
        ("tcp_timestamps=0,tcp_sack=1", false, true),
        ("tcp_timestamps=1,tcp_sack=0", true, false),
    ] {
        let drill = Drill::new(flags);
        let (fd, to) = (drill.socket(), address(PEER.ip, PORT));
        let flags = libc::O_NONBLOCK.into();
        assert_eq!(ask!(drill, fcntl, fd, libc::F_SETFL, flags), 0);
        ask!(drill, connect, fd, (&raw const to).cast(), ADDRESS_LEN);
        let (syn, _, _) = drill.sniff();
        assert_eq!(syn.options.timestamps.is_some(), timestamps);
        assert_eq!(syn.options.sack_permitted, sack);
    }
}
