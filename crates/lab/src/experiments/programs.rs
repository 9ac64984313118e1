//! `programs`: nginx, redis and memcached as they are, on the kernel's sockets and by `sidecore run`; what does a request cost the server's side?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use sidecore_sys::netns;

use super::Experiment;
use super::common::{in_short, note_void, ratio_cell, table};
use crate::ground::{TapGround, VethGround};
use crate::load::{Ask, LoadConfig};
use crate::programs::{Place, Program, find, has_library};
use crate::progress::Progress;
use crate::report::{Report, Summary, Table, summarise};
use crate::run::{Arm, Run, Settings, interleave, measure, sample};
use crate::web::Site;
use crate::web::nginx;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "programs",
    question: "nginx, redis and memcached as they are, on the kernel's sockets and on the engine (sidecore run): what does a request cost the server's side?",
    run,
};

/// Connections of the clients.
const CONNECTIONS: usize = 50;

/// The file, and its bytes.
const FILE: (&str, usize) = ("1k.bin", 1024);

/// A value is set: request and answer.
const SET: (&str, &str) = ("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$3\r\nxyz\r\n", "+OK\r\n");

const PORT: u16 = 8080;

const KERNEL: &str = "kernel";
const ENGINE: &str = "engine";
/// The same two, with each side's frames received on that side's processor.
const KERNEL_STEERED: &str = "kernel, each its own receive";
const ENGINE_STEERED: &str = "engine, each its own receive";

/// What is measured.
const CASES: [&str; 4] = [
    "nginx, one worker: 1 KiB files",
    "redis: SET and GET of 3 bytes",
    "redis: connect, PING, close",
    "memcached, four threads: GET of what is not there",
];

struct Stage {
    veth: VethGround,
    tap: TapGround,
    site: Site,
}

fn run(settings: &Settings, progress: &Progress) -> anyhow::Result<Report> {
    if !has_library() {
        bail!(
            "libsidecore_preload.so is not beside this program: build it (cargo build --release -p sidecore-preload)"
        );
    }
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.question, settings);
    let stage = Stage {
        veth: VethGround::create()?,
        tap: TapGround::create("tp")?,
        site: Site::create(&[FILE])?,
    };
    stage.veth.congestion(&settings.congestion)?;
    for clients in [&stage.veth.client, &stage.tap.client] {
        // Clients that close leave no more ports waiting than there are for the next ones.
        clients.sysctl("net/ipv4/tcp_max_tw_buckets", "1000")?;
    }
    for case in CASES {
        let name = case.split([',', ':']).next().unwrap_or(case);
        let program = match name {
            "nginx" => nginx::program(),
            "memcached" => find("memcached"),
            _ => find("redis-server"),
        };
        let Some(program) = program else {
            report
                .notes
                .push(format!("{name} is not installed: {case} was left out."));
            continue;
        };
        let mut arms = [
            stage.arm(case, KERNEL, &program),
            stage.arm(case, ENGINE, &program),
            stage.arm(case, KERNEL_STEERED, &program),
            stage.arm(case, ENGINE_STEERED, &program),
        ];
        let runs = &mut report.runs;
        runs.extend(interleave(settings, case, &mut arms, progress)?);
        runs.extend(sample(settings, case, &mut arms, progress)?);
    }
    report.summaries = summarise(&report.runs);
    for case in CASES {
        if report.runs.iter().any(|run| run.case == case) {
            report.tables.push(table(case, case, &report.summaries));
        }
    }
    report.tables.push(ratios(&report.summaries, &report.runs));
    report
        .findings
        .extend(finding(&report.summaries, &report.runs));
    report.notes.extend(notes());
    note_void(&report.summaries, &mut report.notes);
    Ok(report)
}

impl Stage {
    fn arm<'a>(&'a self, case: &'static str, name: &str, program: &Path) -> Arm<'a> {
        let place = if [KERNEL, KERNEL_STEERED].contains(&name) {
            Place::Kernel(&self.veth)
        } else {
            Place::Engine(&self.tap)
        };
        let steered = [KERNEL_STEERED, ENGINE_STEERED].contains(&name);
        let program = program.to_owned();
        let run = move |settings: &Settings| {
            let cores = steered.then_some((settings.server_core, settings.client_core));
            self.measure(case, (place, cores), &program, settings)
        };
        Arm::new(name, run)
    }

    fn measure(
        &self,
        case: &str,
        (place, cores): (Place<'_>, Option<(usize, usize)>),
        program: &Path,
        settings: &Settings,
    ) -> anyhow::Result<Run> {
        let core = settings.server_core;
        let at = SocketAddr::from((place.address(), PORT));
        let mut server = Program::start(place, PORT, core, |folder| match case {
            case if case == CASES[0] => self.nginx(program, folder, at, core),
            case if case == CASES[3] => Ok(memcached(program, at)),
            _ => Ok(redis(program, folder, at)),
        })?;
        place.steer(cores)?;
        if case == CASES[1] {
            netns::with_netns(place.clients(), || prepare(at))??;
        }
        let load = settings.on_client(Some(place.clients()), load(case, at));
        measure(settings, &load, &mut server)
    }

    fn nginx(
        &self,
        program: &Path,
        folder: &Path,
        at: SocketAddr,
        core: usize,
    ) -> anyhow::Result<Vec<String>> {
        let file = folder.join("nginx.conf");
        std::fs::write(
            &file,
            nginx::configuration(folder, self.site.path(), at, core),
        )?;
        let words = [
            program,
            Path::new("-e"),
            Path::new("stderr"),
            Path::new("-c"),
            &file,
        ];
        Ok(words.map(|word| word.display().to_string()).to_vec())
    }
}

fn redis(program: &Path, folder: &Path, at: SocketAddr) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    let options = [
        ("--bind", at.ip().to_string()),
        ("--port", at.port().to_string()),
        ("--dir", folder.display().to_string()),
        ("--save", String::new()),
        ("--appendonly", "no".into()),
        ("--protected-mode", "no".into()),
    ];
    for (name, value) in options {
        words.extend([name.to_owned(), value]);
    }
    words
}

fn memcached(program: &Path, at: SocketAddr) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    let options = ["-u", "root", "-t", "4", "-U", "0"];
    words.extend(options.map(str::to_owned));
    words.extend(["-l".into(), at.ip().to_string()]);
    words.extend(["-p".into(), at.port().to_string()]);
    words
}

/// Sets the key that is asked for. Connections ask for it at the same time as the first of them sets it, and no order holds between them.
fn prepare(at: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(SET.0.as_bytes())?;
    let mut answer = vec![0; SET.1.len()];
    stream.read_exact(&mut answer)?;
    ensure!(answer == SET.1.as_bytes(), "redis does not set its key");
    Ok(())
}

fn load(case: &str, at: SocketAddr) -> LoadConfig {
    let exchange = |request: &str, answer: &str| (request.to_owned(), answer.to_owned());
    let ask = match case {
        case if case == CASES[0] => Ask::Http(vec![format!("/{}", FILE.0)]),
        case if case == CASES[1] => Ask::Exact(vec![
            exchange(SET.0, SET.1),
            exchange("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", "$3\r\nxyz\r\n"),
        ]),
        case if case == CASES[3] => Ask::Exact(vec![exchange("get key\r\n", "END\r\n")]),
        _ => {
            let (request, answer) = exchange("*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
            Ask::ChurnExact(request, answer)
        }
    };
    LoadConfig::closed(at, ask, CONNECTIONS)
}

/// The engine's over the kernel's, of what is in the summaries of a case; none if one of them lacks it.
fn of_medians(
    summaries: &[Summary],
    case: &str,
    value: fn(&Summary) -> Option<f64>,
) -> Option<f64> {
    let find = |arm| summaries.iter().find(|s| s.case == case && s.arm == arm);
    Some(value(find(ENGINE)?)? / value(find(KERNEL)?)?)
}

/// The engine against the kernel, pair by pair; once more with each side's frames received on its own processor. What was received for whom:
/// ratios of medians, as shares come from one run of each.
fn ratios(summaries: &[Summary], runs: &[Run]) -> Table {
    let sampled = summaries.iter().any(|s| s.peer_receive_us.is_some());
    let steered = runs.iter().any(|run| run.arm == ENGINE_STEERED);
    let mut columns = vec!["", "requests/s", "server CPU/request"];
    if steered {
        columns.extend(["requests/s, steered", "server CPU/request, steered"]);
    }
    if sampled {
        columns.extend(["without peer's receive", "with its own elsewhere"]);
    }
    let title = "The engine against the kernel: ratios of pairs, with 95 % intervals";
    let mut table = Table::new(title, &columns);
    let plain = |case, value| match of_medians(summaries, case, value) {
        Some(ratio) => format!("{ratio:.2}"),
        None => "–".into(),
    };
    for case in CASES {
        let mut row = vec![case.to_owned()];
        for (ours, theirs) in [(ENGINE, KERNEL), (ENGINE_STEERED, KERNEL_STEERED)]
            .into_iter()
            .take(1 + usize::from(steered))
        {
            row.push(ratio_cell(runs, case, ours, theirs, |run| run.load.rate));
            row.push(ratio_cell(runs, case, ours, theirs, Run::server_us));
        }
        if sampled {
            row.push(plain(case, Summary::without_peer_us));
            row.push(plain(case, Summary::own_us));
        }
        table.rows.push(row);
    }
    table
}

/// What of the kernel's server CPU a request takes on the engine: as charged, with steered receive, and with receive told apart afterwards.
fn finding(summaries: &[Summary], runs: &[Run]) -> Option<String> {
    const NAMES: [&str; 4] = [
        "nginx",
        "redis",
        "a connection and its one request",
        "memcached with four threads",
    ];
    let named = |figure: &dyn Fn(&str) -> String| {
        let each = CASES.iter().zip(NAMES);
        let each: Vec<String> = each
            .map(|(case, name)| format!("{name} {}", figure(case)))
            .collect();
        each.join(", ")
    };
    let charged =
        |ours, theirs| named(&move |case| ratio_cell(runs, case, ours, theirs, Run::server_us));
    let mut text = format!(
        "of the server CPU that a request takes on the kernel, it takes on the engine: {}",
        charged(ENGINE, KERNEL)
    );
    if runs.iter().any(|run| run.arm == ENGINE_STEERED) {
        text += &format!(
            "; with frames received on the processor of the side that they are for: {}",
            charged(ENGINE_STEERED, KERNEL_STEERED)
        );
    }
    let own = |case: &str| of_medians(summaries, case, Summary::own_us);
    if CASES.iter().all(|case| own(case).is_some()) {
        let own = named(&|case| format!("{:.2}", own(case).unwrap_or_default()));
        text += &format!(
            "; without steering, but each side's receive charged to that side, whoever did it: {own}"
        );
    }
    in_short(text + ".")
}

fn notes() -> Vec<String> {
    vec![
        format!("{CONNECTIONS} connections, closed loop. The server, and its engine (adaptive, a process of its own), on one processor, the client on the other."),
        "Server µs/request: all time that the server side's processor was busy, interrupts included, divided by requests. The client's TCP receive runs inside the server's or the engine's writes, and is charged to them.".into(),
        "Over veth the server's own receive runs inside the client's writes, and is charged to the client; behind a TAP the engine does its own: the comparison favours the kernel.".into(),
        "'Without peer's receive' takes the client's receive away, as one more run of each under `perf` tells its share (no such column: not sampled); 'with its own elsewhere' adds the server's receive that ran inside the client's writes. That is what the server's side costs, wherever it was done, as if each were a machine of its own.".into(),
        "'Each its own receive', 'steered': frames are received on the processor of the side that they are for (receive packet steering on both ends of the veth pair, and on the TAP), so that nobody's receive is charged to another, at the price of interrupts between the processors.".into(),
        "redis neither saves nor appends. nginx: sendfile, open files kept, no log.".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_is_told_where_to_listen_and_to_keep_nothing() {
        let at = "10.77.0.2:8080".parse().unwrap();
        let words = redis(Path::new("/r"), Path::new("/f"), at).join(" ");
        assert_eq!(
            words,
            "/r --bind 10.77.0.2 --port 8080 --dir /f --save  --appendonly no --protected-mode no"
        );
    }

    #[test]
    fn memcached_is_told_where_to_listen_and_how_many_threads() {
        let at = "10.77.0.2:8080".parse().unwrap();
        let words = memcached(Path::new("/m"), at).join(" ");
        assert_eq!(words, "/m -u root -t 4 -U 0 -l 10.77.0.2 -p 8080");
    }

    #[test]
    fn what_was_found_is_told_for_each_way_of_charging() {
        let run = |case: &str, arm: &str, rate, round| {
            let mut run = Run {
                case: case.into(),
                arm: arm.into(),
                round,
                server_cores: vec![0],
                ..Run::default()
            };
            run.load.rate = rate;
            run.books.seconds = 1.0;
            run.books.busy_per_core = [(0, 1.0)].into();
            run
        };
        let all = |arms: &[(&str, f64)]| -> Vec<Run> {
            let of_case = |case| arms.iter().map(move |&(arm, rate)| (case, arm, rate));
            let each = CASES.into_iter().flat_map(of_case);
            each.flat_map(|(case, arm, rate)| [0, 1].map(|round| run(case, arm, rate, round)))
                .collect()
        };
        let plain = all(&[(KERNEL, 100.0), (ENGINE, 200.0)]);
        let text = finding(&summarise(&plain), &plain).unwrap();
        assert!(text.contains("redis 0.50 (0.50–0.50)"), "{text}");
        assert!(!text.contains("that they are for"), "{text}");

        let steered = [(KERNEL_STEERED, 100.0), (ENGINE_STEERED, 400.0)];
        let mut both = plain.clone();
        both.extend(all(&steered));
        let text = finding(&summarise(&both), &both).unwrap();
        let steered = text.split_once("that they are for").unwrap().1;
        assert!(steered.contains("nginx 0.25 (0.25–0.25)"), "{text}");

        // One that is lacking is not left out in silence: nothing is said then.
        both.retain(|run| run.case != CASES[3] || run.arm != ENGINE);
        assert_eq!(finding(&summarise(&both), &both), None);
    }
}
