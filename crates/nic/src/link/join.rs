//! Two devices joined by a link each way.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{FrameInfo, Link, LinkCounters, LinkModel};
use crate::{BURST, MemRef, Nic, RxBurst, TxFrame};

/// Bytes of a frame that go as its header.
const HEADER: usize = super::packet::ETHERNET;

/// Bursts taken from one device before the other has its turn.
const BURSTS: usize = 8;

/// Carries frames from each of two devices to the other, each way through a link of its own. The devices must neither give nor want super-segments:
/// a frame here is a packet on the line.
///
/// Time is an argument, in nanoseconds of a clock of the caller's choice.
pub struct Join<A, B> {
    a: A,
    b: B,
    links: [Link; 2],
    burst: RxBurst,
}

impl<A: Nic, B: Nic> Join<A, B> {
    /// Joins them; the first model is that of the way from `a` to `b`.
    pub fn new(a: A, b: B, models: [LinkModel; 2]) -> Self {
        Self {
            a,
            b,
            links: models.map(Link::new),
            burst: RxBurst::default(),
        }
    }

    /// The way back and the way there behave so from now on.
    pub fn set_models(&mut self, models: [LinkModel; 2]) {
        for (link, model) in self.links.iter_mut().zip(models) {
            link.set_model(model);
        }
    }

    /// What became of the frames, there and back.
    pub fn counters(&self) -> [LinkCounters; 2] {
        self.links.each_ref().map(|link| *link.counters())
    }

    /// Takes in what waits at both devices, and gives out what has arrived. How many frames it moved.
    pub fn turn(&mut self, now_ns: u64) -> usize {
        let Self { a, b, links, burst } = self;
        let [there, back] = links;
        take(now_ns, a, there, burst)
            + take(now_ns, b, back, burst)
            + give(now_ns, there, b)
            + give(now_ns, back, a)
    }

    /// Sleeps until a frame comes or arrives, but no longer than `at_most`.
    ///
    /// # Errors
    ///
    /// Those of poll(2).
    pub fn wait(&mut self, now_ns: u64, at_most: Duration) -> io::Result<()> {
        let arrivals = self.links.iter().filter_map(Link::next_arrival_ns);
        let longest = arrivals.min().map_or(at_most, |next| {
            at_most.min(Duration::from_nanos(next.saturating_sub(now_ns)))
        });
        // Both are asked: each `prepare_sleep` needs its `awake`.
        let ready = [self.a.prepare_sleep(), self.b.prepare_sleep()];
        let result = if ready == [true; 2] {
            self.sleep(longest)
        } else {
            Ok(())
        };
        self.a.awake();
        self.b.awake();
        result
    }

    fn sleep(&self, longest: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: longest.as_secs().min(3600) as i64,
            tv_nsec: longest.subsec_nanos().into(),
        };
        let fds = [self.a.sleep_fd(), self.b.sleep_fd()].into_iter().flatten();
        let mut fds: Vec<_> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What waits at a device goes onto its link, and answers of the router there come back.
fn take(now_ns: u64, from: &mut impl Nic, link: &mut Link, burst: &mut RxBurst) -> usize {
    let mut taken = 0;
    for _ in 0..BURSTS {
        let frames = from.receive(burst);
        for frame in burst.frames() {
            let info = FrameInfo {
                checksum_valid: frame.checksum_valid,
                gso_size: frame.gso_size,
            };
            link.push_with(now_ns, from.frame(frame), info);
        }
        from.release(burst);
        taken += frames;
        if frames < BURST {
            break;
        }
    }
    while let Some(answer) = link.take_answer() {
        send(from, &answer);
    }
    from.flush();
    taken
}

/// What has arrived goes to a device. What it has no room for is dropped, and counted there.
fn give(now_ns: u64, link: &mut Link, to: &mut impl Nic) -> usize {
    let mut given = 0;
    while let Some(frame) = link.pop(now_ns) {
        send(to, &frame.bytes);
        link.recycle(frame);
        given += 1;
    }
    to.flush();
    given
}

fn send(to: &mut impl Nic, bytes: &[u8]) {
    let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
        return;
    };
    to.submit(&TxFrame {
        header,
        payload: &[MemRef::from_bytes(payload)],
        payload_len: payload.len() as u32,
        checksum: None,
        segment_size: 0,
    });
}
