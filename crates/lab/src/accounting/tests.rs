//! Books over made-up and real times.

use super::*;

fn snapshot(
    at: Instant,
    idle: u64,
    steal: u64,
    threads: &[(u32, Option<usize>, u64, bool)],
) -> Snapshot {
    let cpu = CpuTimes {
        idle,
        steal,
        ..CpuTimes::default()
    };
    Snapshot {
        at,
        cpus: BTreeMap::from([(0, cpu)]),
        threads: threads.iter().map(|t| (t.0, (t.1, t.2, t.3))).collect(),
        births: 0,
    }
}

const SECOND: u64 = 1_000_000_000;

/// Ten seconds in which processor 0 idles for four; roles 1 and 2 run for what is given.
fn ten_seconds(server: u64, client: u64, kernel: u64, other: u64, steal: u64) -> Books {
    let watch = Watch::default()
        .role("server", Selection::Process(1))
        .role("client", Selection::Process(2));
    let start = Instant::now();
    let before = snapshot(start, 0, 0, &[(10, Some(1), 5, false)]);
    let threads = [
        (10, Some(1), 5 + server, false),
        (11, Some(2), client, false),
        (12, None, kernel, true),
        (13, None, other, false),
    ];
    let end = start + std::time::Duration::from_secs(10);
    watch.books(&before, &snapshot(end, 4 * SECOND, steal, &threads))
}

#[test]
fn times_go_to_their_roles_and_balance() {
    let books = ten_seconds(3 * SECOND, 2 * SECOND, SECOND, 0, 0);
    assert_eq!(books.role("server"), 3.0);
    assert_eq!(books.role("client"), 2.0);
    assert_eq!(books.kernel_threads, 1.0);
    assert_eq!(books.charged(), 6.0);
    assert!((books.busy - 6.0).abs() < 1e-9);
    assert_eq!(books.void(), None);
}

#[test]
fn other_programs_void_a_run() {
    let books = ten_seconds(3 * SECOND, 2 * SECOND, 0, SECOND, 0);
    assert_eq!(books.others, 1.0);
    assert!((books.imbalance() - 1.0 / 6.0).abs() < 1e-9);
    assert!(books.void().unwrap().contains("do not balance"));
}

#[test]
fn waking_may_cost_a_part_of_the_idle_time_and_no_more() {
    // Six seconds busy, four idle.
    let books = |short: u64| ten_seconds(6 * SECOND - short, 0, 0, 0, 0);
    assert_eq!(books(SECOND / 2).void(), None);
    assert!(books(SECOND / 10 * 7).void().is_some());
    // Where other programs ran they are the likelier reason.
    let disturbed = ten_seconds(6 * SECOND - SECOND / 2, 0, 0, SECOND / 5, 0);
    assert!(disturbed.void().is_some());
}

#[test]
fn interrupts_of_idle_processors_are_nobodys_where_no_program_began() {
    let short = |missing: u64, sampled: f64, births| Books {
        interrupts: sampled,
        births,
        ..ten_seconds(6 * SECOND - missing, 0, 0, 0, 0)
    };
    assert_eq!(short(SECOND, 1.0, 0).void(), None);
    assert!(short(SECOND, 0.1, 0).void().is_some());
    // One that began and ended meanwhile may have had that time.
    assert!(short(SECOND, 1.0, 1).void().is_some());
    let stat = "cpu  1 2 3\nctxt 5\nprocesses 1234\nprocs_running 1\n";
    assert_eq!(procfs::parse_births(stat), 1234);
    assert_eq!(procfs::parse_births("cpu 1"), 0);
}

#[test]
fn charging_more_than_was_done_voids_a_run_too() {
    assert!(ten_seconds(7 * SECOND, 0, 0, 0, 0).void().is_some());
}

#[test]
fn steal_voids_a_run() {
    let books = ten_seconds(3 * SECOND, 2 * SECOND, 0, 0, SECOND);
    assert!((books.busy - 5.0).abs() < 1e-9);
    assert!(books.void().unwrap().contains("hypervisor"));
}

#[test]
fn named_threads_are_told_from_the_rest_of_their_process() {
    let thread = |name: &str| ThreadTime {
        pid: 7,
        tid: 8,
        name: name.to_owned(),
        nanos: 0,
        kernel: false,
    };
    let engine = Selection::Named(7, "engine".to_owned());
    assert!(engine.contains(&thread("engine-0")));
    assert!(!engine.contains(&thread("main")));
    assert!(Selection::Process(7).contains(&thread("main")));
    assert!(!Selection::Process(8).contains(&thread("main")));
}

#[test]
fn a_busy_thread_of_this_process_is_charged_to_the_lab() {
    let watch = Watch::default();
    let before = watch.snapshot().unwrap();
    let start = Instant::now();
    while start.elapsed().as_millis() < 60 {
        std::hint::spin_loop();
    }
    let after = watch.snapshot().unwrap();
    let books = watch.books(&before, &after);
    assert!(books.role(LAB) > 0.005, "{books:?}");
}
