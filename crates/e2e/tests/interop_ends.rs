//! The engine and the kernel over a bad line: peers that vanish, connections that are reset, and whether both ends say the same of a connection.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt;
use serde_json::Value;
use sidecore_abi::command::Opt;
use sidecore_client::blocking;
use sidecore_e2e::ground::available;
use sidecore_e2e::interop::{Meeting, Role, Version, ss, there_and_back};
use sidecore_nic::LinkModel;

const MS: Duration = Duration::from_millis(1);
const SECOND_US: u64 = 1_000_000;

const WAYS: [(Role, Version); 4] = [
    (Role::Kernel, Version::Four),
    (Role::Engine, Version::Four),
    (Role::Kernel, Version::Six),
    (Role::Engine, Version::Six),
];

fn good() -> LinkModel {
    LinkModel {
        delay: MS,
        ..LinkModel::default()
    }
}

/// Runs something in every role and version at once.
fn each_way(run: impl Fn(Role, Version) -> Result<()> + Sync) {
    if !available() {
        return;
    }
    let run = &run;
    std::thread::scope(|scope| {
        let threads = WAYS.map(|(role, version)| scope.spawn(move || (role, run(role, version))));
        for ((_, version), thread) in WAYS.into_iter().zip(threads) {
            let (role, result) = thread.join().expect("a thread panicked");
            if let Err(error) = result {
                panic!("{role:?} connects, IPv{version:?}: {error:#}");
            }
        }
    });
}

fn write_until_it_fails(mut stream: impl Write) -> ErrorKind {
    let block = [7; 65536];
    loop {
        if let Err(error) = stream.write(&block) {
            return error.kind();
        }
    }
}

/// Everything of both ends is gone.
fn expect_nothing(meeting: &Meeting) -> Result<()> {
    meeting.ground.eventually("no connection is left", |stat| {
        stat["connections_open"] == 0
    });
    let left = meeting.kernel_states()?;
    ensure!(left.is_empty(), "the kernel has {left:?}");
    Ok(())
}

#[test]
fn a_peer_that_vanishes_while_both_send() {
    each_way(|role, version| {
        let meeting = Meeting::on(there_and_back(good()), version)?;
        let (kernel, engine) = meeting.connect(role, 0, 0)?;
        sockopt::set_tcp_user_timeout(&kernel, 1500)?;
        engine.set_option(Opt::UserTimeout, 3 * SECOND_US / 2)?;
        let dead = there_and_back(LinkModel {
            loss: 1.0,
            ..good()
        });
        let (kernel_end, engine_end) = (kernel.try_clone()?, engine.try_clone()?);
        std::thread::scope(|scope| -> Result<()> {
            let ends = [
                scope.spawn(move || write_until_it_fails(kernel)),
                scope.spawn(move || write_until_it_fails(engine)),
            ];
            meeting.ground.eventually("bytes come", |stat| {
                stat["stack"]["tcp_bytes_in"].as_u64() > Some(10_000)
                    && stat["stack"]["tcp_bytes_out"].as_u64() > Some(10_000)
            });
            meeting.ground.line().set(dead);
            let errors = ends.map(|thread| thread.join().expect("a thread panicked"));
            ensure!(errors == [ErrorKind::TimedOut; 2], "{errors:?}");
            Ok(())
        })?;
        drop((kernel_end, engine_end));
        ensure!(meeting.ground.figure("/stack/timed_out") == 1);
        expect_nothing(&meeting)
    });
}

#[test]
fn a_peer_that_vanishes_while_nobody_sends() {
    each_way(|role, version| {
        let meeting = Meeting::on(there_and_back(good()), version)?;
        let (mut kernel, mut engine) = meeting.connect(role, 0, 0)?;
        sockopt::set_socket_keepalive(&kernel, true)?;
        sockopt::set_tcp_keepidle(&kernel, Duration::from_secs(1))?;
        sockopt::set_tcp_keepintvl(&kernel, Duration::from_secs(1))?;
        sockopt::set_tcp_keepcnt(&kernel, 2)?;
        engine.set_option(Opt::Keepalive, 1)?;
        engine.set_option(Opt::KeepaliveIdle, SECOND_US)?;
        engine.set_option(Opt::KeepaliveInterval, SECOND_US)?;
        engine.set_option(Opt::KeepaliveProbes, 2)?;
        // Long enough for probes that are answered.
        std::thread::sleep(1500 * MS);
        let dead = LinkModel {
            loss: 1.0,
            ..good()
        };
        meeting.ground.line().set(there_and_back(dead));
        let mut byte = [0];
        let errors = [kernel.read(&mut byte), engine.read(&mut byte)]
            .map(|result| result.map_err(|error| error.kind()));
        ensure!(errors == [Err(ErrorKind::TimedOut); 2], "{errors:?}");
        drop((kernel, engine));
        expect_nothing(&meeting)
    });
}

#[test]
fn resets_reach_the_other_end() {
    each_way(|role, version| {
        let meeting = Meeting::on(there_and_back(good()), version)?;
        let (kernel, mut engine) = meeting.connect(role, 0, 0)?;
        sockopt::set_socket_linger(&kernel, Some(Duration::ZERO))?;
        drop(kernel);
        let read = engine.read(&mut [0]).map_err(|error| error.kind());
        ensure!(read == Err(ErrorKind::ConnectionReset), "{read:?}");
        drop(engine);
        expect_nothing(&meeting)?;

        let meeting = Meeting::on(there_and_back(good()), version)?;
        let (mut kernel, engine) = meeting.connect(role, 0, 0)?;
        engine.set_option(Opt::Linger, 0)?;
        drop(engine);
        let read = kernel.read(&mut [0]).map_err(|error| error.kind());
        ensure!(read == Err(ErrorKind::ConnectionReset), "{read:?}");
        drop(kernel);
        expect_nothing(&meeting)
    });
}

/// What `ss -ti` says of the only connection: its words by their names, and those without a value.
fn kernel_says(meeting: &Meeting) -> Result<HashMap<String, String>> {
    let text = ss(&meeting.ground, &["-tinoH", "exclude", "listening"])?;
    let facts = text.split_whitespace().map(|word| {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        (name.to_owned(), value.to_owned())
    });
    Ok(facts.collect())
}

fn number(facts: &HashMap<String, String>, name: &str) -> Result<f64> {
    let value = facts
        .get(name)
        .with_context(|| format!("ss says nothing of {name}: {facts:?}"))?;
    // "retrans:0/12": what is out, and all of them; "rtt:20.1/0.4".
    let value = match name {
        "retrans" => value.rsplit('/').next(),
        _ => value.split(['/', ',']).next(),
    };
    value
        .and_then(|value| value.parse().ok())
        .with_context(|| format!("{name} is no number"))
}

/// Both ends write so many bytes and read the other's, and stay open.
fn both_write(
    kernel: &mut TcpStream,
    engine: &mut blocking::TcpStream,
    bytes: [usize; 2],
) -> Result<()> {
    let (kernel_too, engine_too) = (kernel.try_clone()?, engine.try_clone()?);
    let write = |mut stream: Box<dyn Write + Send>, len| stream.write_all(&vec![1; len]);
    std::thread::scope(|scope| {
        let writers = [
            scope.spawn(move || write(Box::new(kernel_too), bytes[0])),
            scope.spawn(move || write(Box::new(engine_too), bytes[1])),
        ];
        let readers = [
            scope.spawn(move || engine.read_exact(&mut vec![0; bytes[0]])),
            scope.spawn(move || kernel.read_exact(&mut vec![0; bytes[1]])),
        ];
        for thread in writers.into_iter().chain(readers) {
            thread.join().expect("a thread panicked")?;
        }
        Ok(())
    })
}

/// Bytes from the kernel, and from the engine.
const BYTES: [usize; 2] = [400_000, 300_000];

#[test]
fn both_ends_say_the_same_of_a_connection() {
    each_way(|role, version| {
        let model = LinkModel {
            loss: 0.03,
            delay: 5 * MS,
            seed: 2,
            ..LinkModel::default()
        };
        let meeting = Meeting::on(there_and_back(model), version)?;
        let (mut kernel, mut engine) = meeting.connect(role, 0, 0)?;
        sockopt::set_tcp_congestion(&kernel, "cubic")?;
        both_write(&mut kernel, &mut engine, BYTES)?;
        // The last ACKs and window updates arrive, too.
        meeting.ground.line().set(there_and_back(good()));
        meeting.ground.eventually("all is acknowledged", |stat| {
            stat["connections"][0]["info"]["bytes_acked"] == BYTES[1]
        });
        std::thread::sleep(200 * MS);
        let theirs = kernel_says(&meeting)?;
        let stat = meeting.ground.stat();
        let ours = &stat["connections"][0];
        agree(&theirs, ours, version).with_context(|| format!("{theirs:#?}\n{ours:#}"))?;
        let [there, back] = meeting.ground.line().counters();
        ensure!(there.lost > 0 && back.lost > 0, "the line lost nothing");
        Ok(())
    });
}

fn agree(theirs: &HashMap<String, String>, ours: &Value, version: Version) -> Result<()> {
    let info = &ours["info"];
    let our = |name: &str| {
        info[name]
            .as_f64()
            .with_context(|| format!("no figure {name}"))
    };
    let same = |what: &str, theirs: f64, ours: f64| {
        ensure!(
            theirs == ours,
            "{what}: the kernel {theirs}, the engine {ours}"
        );
        Ok(())
    };
    ensure!(theirs.contains_key("ESTAB") && ours["state"] == "Established");
    ensure!(theirs.contains_key("ts") && info["timestamps"] == true);
    ensure!(theirs.contains_key("sack") && info["sack"] == true);
    let mss = match version {
        Version::Four => 1448.0,
        Version::Six => 1428.0,
    };
    same("segments to the engine", number(theirs, "mss")?, mss)?;
    same("segments to the engine", our("receive_mss")?, mss)?;
    same("segments to the kernel", number(theirs, "rcvmss")?, mss)?;
    same("segments to the kernel", our("effective_mss")?, mss)?;
    let scales = [our("receive_scale")?, our("send_scale")?];
    let wscale = theirs.get("wscale").context("no wscale")?;
    ensure!(
        *wscale == format!("{},{}", scales[0], scales[1]),
        "window scales"
    );
    same(
        "bytes to the engine",
        our("bytes_received")?,
        BYTES[0] as f64,
    )?;
    // Linux counts the SYN that it has sent.
    let acked = number(theirs, "bytes_acked")?;
    ensure!(
        [0.0, 1.0].contains(&(acked - BYTES[0] as f64)),
        "bytes_acked"
    );
    same(
        "bytes to the kernel",
        number(theirs, "bytes_received")?,
        our("bytes_acked")?,
    )?;
    // An edge between two units of the scaled field is told as one of them.
    let windows = number(theirs, "snd_wnd")? - our("receive_window")?;
    let unit = f64::from(1 << scales[0] as u32);
    ensure!(
        windows.abs() < unit,
        "windows of the engine: {windows} bytes"
    );
    if theirs.contains_key("rcv_wnd") {
        same(
            "window of the kernel",
            number(theirs, "rcv_wnd")?,
            our("send_window")?,
        )?;
    }
    // Frames were lost both ways: both sent some again, and in loss a window has a threshold.
    ensure!(number(theirs, "retrans")? > 0.0 && our("retransmissions")? > 0.0);
    ensure!(number(theirs, "ssthresh")? > 0.0 && our("ssthresh")? < f64::from(u32::MAX));
    ensure!(our("out_of_order")? > 0.0 && number(theirs, "rcv_ooopack")? > 0.0);
    ensure!(number(theirs, "cwnd")? > 0.0 && our("cwnd")? > 0.0);
    same("in flight", our("in_flight")?, 0.0)?;
    // The line takes 10 ms there and back, and then at least 2.
    for round_trip in [number(theirs, "minrtt")?, our("min_rtt_us")? / 1000.0] {
        ensure!(round_trip >= 2.0, "a round trip of {round_trip} ms");
    }
    ensure!(number(theirs, "rtt")? >= 2.0 && our("srtt_us")? >= 2000.0);
    Ok(())
}
