//! Interleaving over made-up runs.

use super::*;

fn settings(quick: bool, rounds: u32) -> Settings {
    Settings {
        rounds,
        profile: false,
        ..Settings::new(quick)
    }
}

fn order(runs: &[Run]) -> Vec<(String, u32)> {
    runs.iter()
        .map(|run| (run.arm.clone(), run.round))
        .collect()
}

fn of(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names
        .iter()
        .map(|(name, round)| ((*name).to_owned(), *round))
        .collect()
}

#[test]
fn arms_run_forwards_and_backwards_in_turn() {
    let good = |_: &Settings| Ok(Run::default());
    let mut arms = [Arm::new("a", good), Arm::new("b", good)];
    let runs = interleave(&settings(false, 3), "c", &mut arms, &Progress::silent()).unwrap();
    let expected = [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)];
    assert_eq!(order(&runs), of(&expected));
    assert!(runs.iter().all(|run| run.case == "c"));
}

#[test]
fn a_part_that_no_name_contains_is_told_with_the_names() {
    let run = |only: &str| {
        let settings = Settings {
            only: vec![only.into()],
            ..settings(false, 1)
        };
        let good = |_: &Settings| Ok(Run::default());
        let mut arms = [Arm::new("kernel", good), Arm::new("engine", good)];
        let runs = interleave(&settings, "c", &mut arms, &Progress::silent()).unwrap();
        (order(&runs), settings.none_wanted())
    };
    assert_eq!(run("gin"), (of(&[("engine", 0)]), None));
    assert_eq!(run("c: k"), (of(&[("kernel", 0)]), None));
    let names = "c: engine; c: kernel".to_owned();
    assert_eq!(run("redis"), (vec![], Some(names)));
}

#[test]
fn void_runs_are_done_again_but_only_so_often_and_not_in_quick_runs() {
    let void = |_: &Settings| {
        Ok(Run {
            void: Some("noise".into()),
            ..Run::default()
        })
    };
    let full = interleave(
        &settings(false, 1),
        "c",
        &mut [Arm::new("a", void)],
        &Progress::silent(),
    )
    .unwrap();
    assert_eq!(full.len(), 3);
    let quick = interleave(
        &settings(true, 1),
        "c",
        &mut [Arm::new("a", void)],
        &Progress::silent(),
    )
    .unwrap();
    assert_eq!(quick.len(), 1);
    let mut tries = 0;
    let second_is_good = |_: &Settings| {
        tries += 1;
        let void = (tries == 1).then(|| "noise".to_owned());
        Ok(Run {
            void,
            ..Run::default()
        })
    };
    let runs = interleave(
        &settings(false, 1),
        "c",
        &mut [Arm::new("a", second_is_good)],
        &Progress::silent(),
    )
    .unwrap();
    assert_eq!(runs.len(), 2);
}

#[test]
fn a_failing_arm_is_named() {
    let fails = |_: &Settings| anyhow::bail!("no");
    let error = interleave(
        &settings(true, 1),
        "case",
        &mut [Arm::new("a", fails)],
        &Progress::silent(),
    )
    .unwrap_err();
    assert_eq!(format!("{error:#}"), "case: a: no");
}

#[test]
fn times_per_request_count_the_servers_processors_only() {
    let mut run = Run {
        server_cores: vec![0],
        engine: Some(EngineUse {
            useful: 0.5,
            ..EngineUse::default()
        }),
        ..Run::default()
    };
    run.load.rate = 100_000.0;
    run.books.seconds = 2.0;
    run.books.busy_per_core = [(0, 1.0), (1, 2.0)].into();
    run.books.roles.insert(SERVER.into(), 0.8);
    assert_eq!(run.server_us(), 5.0);
    assert_eq!(run.role_us(SERVER), 4.0);
    assert_eq!(run.productive_us(), Some(2.5));
}
