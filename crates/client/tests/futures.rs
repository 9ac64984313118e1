//! Futures without any executor: `Sockets::block_on`, `turn`, several groups.

mod engine;

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use engine::{group, start};
use sidecore_client::asynchronous::{TcpListener, TcpStream, UdpSocket};
use sidecore_client::{Sockets, blocking};

fn local() -> SocketAddr {
    (Ipv4Addr::new(10, 9, 0, 1), 0).into()
}

/// All of these, side by side.
async fn all(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        match futures.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

async fn echo(stream: TcpStream) {
    let mut buffer = vec![0; 5000];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return stream.end(Shutdown::Write).unwrap(),
            n => stream.write_all(&buffer[..n]).await.unwrap(),
        }
    }
}

async fn ask(sockets: &Sockets, address: SocketAddr, n: u8) {
    let stream = TcpStream::connect(sockets, address).await.unwrap();
    stream.set_nodelay(true);
    for len in [1, 31, 32, 33, 256, 257, 70_000] {
        let data = vec![n; len];
        let mut back = vec![0; len];
        let back = &mut back;
        let both: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![
            Box::pin(async { stream.write_all(&data).await.unwrap() }),
            Box::pin(async { stream.read_exact(back).await.unwrap() }),
        ];
        all(both).await;
        assert!(back.iter().all(|byte| *byte == n));
    }
    stream.end(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let error = stream.write(b"x").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    let error = stream.read_exact(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn many_tasks_on_one_thread() {
    let engine = start();
    let sockets = group(&engine);
    sockets.block_on(async {
        let listener = TcpListener::bind(&sockets, local()).await.unwrap();
        let address = listener.local_addr().await.unwrap();
        let serving = async {
            let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
            for _ in 0..20 {
                let (stream, peer) = listener.accept().await.unwrap();
                assert_eq!(stream.peer_addr().await.unwrap(), peer);
                tasks.push(Box::pin(echo(stream)));
            }
            all(tasks).await;
        };
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(serving)];
        for n in 0..20 {
            tasks.push(Box::pin(ask(&sockets, address, n)));
        }
        all(tasks).await;
        let error = TcpListener::bind(&sockets, address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    });
    engine.stop();
}

#[test]
fn what_else_a_future_waits_for_wakes_its_thread() {
    const ROUNDS: u32 = 50;
    let engine = start();
    let sockets = group(&engine);
    let (tell, told) = std::sync::mpsc::channel::<(u32, Waker)>();
    let (pass, passed) = std::sync::mpsc::channel();
    let allowed = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let thread = std::thread::spawn({
        let allowed = std::sync::Arc::clone(&allowed);
        move || {
            for round in 1..=ROUNDS {
                sockets.block_on(poll_fn(|cx| {
                    tell.send((round, cx.waker().clone())).unwrap();
                    match allowed.load(std::sync::atomic::Ordering::SeqCst) >= round {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                }));
                pass.send(round).unwrap();
            }
        }
    });
    for round in 1..=ROUNDS {
        let patience = Duration::from_secs(60);
        // Of earlier rounds there may be some more.
        let waker = loop {
            match told.recv_timeout(patience).unwrap() {
                (of, waker) if of == round => break waker,
                _ => {}
            }
        };
        // The thread is on its way to sleep, or asleep.
        std::thread::sleep(Duration::from_micros(u64::from(round % 10) * 200));
        allowed.store(round, std::sync::atomic::Ordering::SeqCst);
        waker.wake();
        assert_eq!(passed.recv_timeout(patience), Ok(round), "it sleeps on");
    }
    thread.join().unwrap();
}

#[test]
fn a_loop_of_ones_own_and_threads_beside_it() {
    let engine = start();
    let sockets = group(&engine);
    let listener = blocking::TcpListener::bind(&sockets, local()).unwrap();
    let address = listener.local_addr().unwrap();
    // A blocking thread of the same group: whoever is there serves the queue for both.
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 100];
        loop {
            let n = stream.read(&mut buffer).unwrap();
            if n == 0 {
                return;
            }
            stream.write_all(&buffer[..n]).unwrap();
        }
    });
    {
        let mut asking = pin!(ask(&sockets, address, 7));
        let mut cx = Context::from_waker(Waker::noop());
        let begun = Instant::now();
        while asking.as_mut().poll(&mut cx).is_pending() {
            sockets.turn(Duration::from_millis(1)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    }
    server.join().unwrap();
    // The last events of the connections; then nothing more.
    while sockets.turn(Duration::from_millis(50)).unwrap() {}
    engine.stop();
}

#[test]
fn a_reactor_starts_and_ends_and_others_take_over() {
    let engine = start();
    let sockets = group(&engine);
    let a = sockets
        .block_on(UdpSocket::bind(&sockets, local()))
        .unwrap();
    for _ in 0..3 {
        let reactor = sockets.spawn_reactor().unwrap();
        let b = sockets
            .block_on(UdpSocket::bind(&sockets, local()))
            .unwrap();
        sockets.block_on(async {
            let (at_a, at_b) = (a.local_addr().await.unwrap(), b.local_addr().await.unwrap());
            b.connect(at_a).await.unwrap();
            b.send(b"to a").await.unwrap();
            let mut out = [0; 10];
            assert_eq!(a.recv_from(&mut out).await.unwrap(), (4, at_b));
            a.send_to(b"to b", at_b).await.unwrap();
            assert_eq!(b.recv_from(&mut out).await.unwrap(), (4, at_a));
        });
        drop(reactor);
        sockets.block_on(async {
            a.send_to(b"again", b.local_addr().await.unwrap())
                .await
                .unwrap();
            assert_eq!(b.recv_from(&mut [0; 10]).await.unwrap().0, 5);
        });
    }
    engine.stop();
}

#[test]
fn an_accept_or_connect_given_up_leaves_nothing_behind() {
    let engine = start();
    // Few handles: what leaked would be missed.
    let sockets = engine::group_with(&engine, 40, sidecore_client::SocketsConfig::default());
    sockets.block_on(async {
        let listener = TcpListener::bind(&sockets, local()).await.unwrap();
        let address = listener.local_addr().await.unwrap();
        for n in 0..60u8 {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(pin!(listener.accept()).poll(&mut cx).is_pending());
            assert!(
                pin!(TcpStream::connect(&sockets, address))
                    .poll(&mut cx)
                    .is_pending()
            );
            // It may have come through before it was given up.
            let client = TcpStream::connect(&sockets, address).await.unwrap();
            client.write_all(&[n]).await.unwrap();
            loop {
                let (server, _) = listener.accept().await.unwrap();
                let mut byte = [0];
                if matches!(server.read(&mut byte).await, Ok(1)) {
                    assert_eq!(byte, [n]);
                    break;
                }
            }
        }
    });
    engine.stop();
}
