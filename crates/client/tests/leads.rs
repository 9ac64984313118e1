//! Who looks after a group's event queue: threads that sleep on descriptors beside others that block and others that only glance.

mod engine;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use engine::{ADDRESS, group, group_with, start};
use sidecore_client::blocking::TcpStream;
use sidecore_client::{RawSocket, Share, Sockets, SocketsConfig, Wakes};

const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that can be woken, and what its sleeps were given.
struct Sleeper {
    woken: SyncSender<()>,
    count: AtomicUsize,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        // Once is enough.
        let _ = self.woken.try_send(());
    }
}

fn sleeper() -> (Arc<Sleeper>, Receiver<()>) {
    let (woken, wakes) = sync_channel(1);
    let count = AtomicUsize::new(0);
    (Arc::new(Sleeper { woken, count }), wakes)
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let last = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < last, "{what}");
        thread::yield_now();
    }
}

/// A follower: sleeps until it is woken, and notes for each sleep whether it looked after the queue. `leads`: it does that when chosen.
fn follow(
    sockets: Sockets,
    (me, wakes): (Arc<Sleeper>, Receiver<()>),
    leads: bool,
    led: Arc<Mutex<Vec<bool>>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let sleep = |queue: Option<std::os::fd::BorrowedFd<'_>>, _: Option<Duration>| {
            led.lock().unwrap().push(queue.is_some());
            if queue.is_none() {
                wakes.recv_timeout(PATIENCE).unwrap();
            }
        };
        let chosen = || led.lock().unwrap().last() == Some(&false) && leads;
        sockets.rest(&Waker::from(me), sleep, chosen);
    })
}

#[test]
fn the_chosen_one_leads_at_once_and_wakes_nobody_else() {
    let engine = start();
    let sockets = group(&engine);
    let slept: Vec<Arc<Mutex<Vec<bool>>>> = (0..3).map(|_| Arc::default()).collect();
    let sleepers: Vec<_> = (0..3).map(|_| sleeper()).collect();
    let counts: Vec<Arc<Sleeper>> = sleepers.iter().map(|(me, _)| Arc::clone(me)).collect();
    let mut sleepers = sleepers.into_iter();
    let mut threads = Vec::new();
    let leader = |queue: Option<std::os::fd::BorrowedFd<'_>>, _: Option<Duration>| {
        assert!(queue.is_some(), "nobody else was there");
        // One after the other, so that their order is known: the first has something to do itself when it is chosen, the second leads.
        for (at, leads) in [false, true, true].into_iter().enumerate() {
            let led = Arc::clone(&slept[at]);
            threads.push(follow(
                sockets.clone(),
                sleepers.next().unwrap(),
                leads,
                led,
            ));
            wait_for("no sleep", || slept[at].lock().unwrap().len() == 1);
        }
    };
    assert!(sockets.rest(Waker::noop(), leader, || false));
    let third = threads.pop().unwrap();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(*slept[0].lock().unwrap(), [false]);
    assert_eq!(*slept[1].lock().unwrap(), [false, true]);
    // The second has led, and had enough: then the third was chosen, and not before.
    third.join().unwrap();
    assert_eq!(*slept[2].lock().unwrap(), [false, true]);
    let woken: Vec<usize> = counts
        .iter()
        .map(|me| me.count.load(Ordering::SeqCst))
        .collect();
    assert_eq!(woken, [1, 1, 1]);
}

#[test]
fn glances_wake_nobody() {
    let engine = start();
    let sockets = group(&engine);
    let glance = || (0..100).for_each(|_| assert_eq!(sockets.turn(Duration::ZERO), Ok(false)));
    let slept: Vec<Arc<Mutex<Vec<bool>>>> = (0..2).map(|_| Arc::default()).collect();
    let sleepers: Vec<_> = (0..2).map(|_| sleeper()).collect();
    let counts: Vec<Arc<Sleeper>> = sleepers.iter().map(|(me, _)| Arc::clone(me)).collect();
    let woken = || counts.iter().map(|me| me.count.load(Ordering::SeqCst));
    let mut sleepers = sleepers.into_iter();
    let (first, wakes) = sleepers.next().unwrap();
    // The first follower takes its time when it is chosen: what wakes it goes through this thread.
    let (forward, late) = sync_channel(1);
    let mut threads = Vec::new();
    let leader = |_: Option<std::os::fd::BorrowedFd<'_>>, _: Option<Duration>| {
        let led = Arc::clone(&slept[0]);
        threads.push(follow(
            sockets.clone(),
            (Arc::clone(&first), late),
            true,
            led,
        ));
        wait_for("no sleep", || slept[0].lock().unwrap().len() == 1);
        let led = Arc::clone(&slept[1]);
        threads.push(follow(sockets.clone(), sleepers.next().unwrap(), true, led));
        wait_for("no sleep", || slept[1].lock().unwrap().len() == 1);
        glance();
        assert!(woken().eq([0, 0]));
    };
    let mut leader = Some(leader);
    let sleep = |queue: Option<std::os::fd::BorrowedFd<'_>>, limit: Option<Duration>| {
        leader.take().unwrap()(queue, limit);
    };
    sockets.rest(Waker::noop(), sleep, || false);
    wakes.recv_timeout(PATIENCE).unwrap();
    // Chosen, and on its way: nobody leads.
    glance();
    assert!(woken().eq([1, 0]));
    forward.send(()).unwrap();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(woken().eq([1, 1]));
    assert_eq!(*slept[1].lock().unwrap(), [false, true]);
    // Nobody leads, and nobody follows.
    glance();
    assert!(woken().eq([1, 1]));
}

/// Answers each message, until the end.
fn echo(raw: &RawSocket) {
    let mut bytes = [0; 64];
    loop {
        let mut list = [IoSliceMut::new(&mut bytes)];
        let n = raw.block(None, || raw.read(&mut list, false)).unwrap();
        if n == 0 {
            return;
        }
        let list = [IoSlice::new(&bytes[..n])];
        raw.block(None, || raw.write(&list, 0)).unwrap();
    }
}

static BATCHES: AtomicUsize = AtomicUsize::new(0);

fn begin() {
    BATCHES.fetch_add(1, Ordering::SeqCst);
}

fn end() {
    BATCHES.fetch_sub(1, Ordering::SeqCst);
}

#[test]
fn threads_that_block_go_on_while_others_glance() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 1500;
    let engine = start();
    let config = SocketsConfig {
        wakes: Some(Wakes { begin, end }),
        ..SocketsConfig::default()
    };
    let (ours, theirs) = (group_with(&engine, 1024, config), group(&engine));
    let any: SocketAddr = format!("{ADDRESS}:0").parse().unwrap();
    let listener = RawSocket::listen(&ours, any, &[], 64, Share::default()).unwrap();
    let at = listener.local_address().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let glancers: Vec<_> = (0..2)
        .map(|_| {
            let (ours, over) = (ours.clone(), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let _ = ours.turn(Duration::ZERO);
                }
            })
        })
        .collect();
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        let mut client = TcpStream::connect(&theirs, at).unwrap();
        let (server, _) = listener.block(None, || listener.accept()).unwrap();
        threads.push(thread::spawn(move || echo(&server)));
        threads.push(thread::spawn(move || {
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            for round in 0..ROUNDS {
                let sent = (round as u64).to_be_bytes();
                client.write_all(&sent).unwrap();
                let mut got = [0; 8];
                client.read_exact(&mut got).unwrap();
                assert_eq!(got, sent);
            }
        }));
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    over.store(true, Ordering::SeqCst);
    glancers
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(BATCHES.load(Ordering::SeqCst), 0, "a batch was not ended");
}
