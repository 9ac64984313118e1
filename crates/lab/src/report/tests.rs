//! Reports over made-up runs.

use super::*;

fn run(arm: &str, round: u32, rate: f64, void: bool) -> Run {
    let mut run = Run {
        arm: arm.into(),
        case: "64 connections".into(),
        round,
        server_cores: vec![0],
        void: void.then(|| "noise".into()),
        ..Run::default()
    };
    run.load.rate = rate;
    run.books.seconds = 1.0;
    run.books.busy_per_core = [(0, 1.0)].into();
    run
}

#[test]
fn summaries_leave_void_runs_out_unless_there_are_no_others() {
    let runs = [
        run("a", 0, 100.0, false),
        run("a", 1, 300.0, false),
        run("a", 2, 9000.0, true),
        run("b", 0, 50.0, true),
    ];
    let summaries = summarise(&runs);
    assert_eq!(summaries.len(), 2);
    assert_eq!(
        (
            summaries[0].rate.median,
            summaries[0].runs,
            summaries[0].void
        ),
        (200.0, 2, 1)
    );
    assert_eq!(
        (
            summaries[1].rate.median,
            summaries[1].runs,
            summaries[1].void
        ),
        (50.0, 1, 1)
    );
    assert_eq!(summaries[1].server_us.median, 20_000.0);
}

#[test]
fn comparisons_pair_runs_of_one_round() {
    let runs: Vec<Run> = (0..5)
        .flat_map(|round| {
            [
                run("a", round, 200.0 + f64::from(round), false),
                run("b", round, 100.0 + f64::from(round) / 2.0, false),
            ]
        })
        .collect();
    let ratio = compare(&runs, "64 connections", "a", "b", |run| run.load.rate).unwrap();
    assert!((ratio.ratio - 2.0).abs() < 1e-9 && ratio.pairs == 5);
    assert!(compare(&runs, "64 connections", "a", "c", |run| run.load.rate).is_none());
}

#[test]
fn tables_are_even_markdown() {
    let mut table = Table::new("T", &["stack", "req/s"]);
    table.rows.push(vec!["engine".into(), "1".into()]);
    let expected = "### T\n\n| stack  | req/s |\n|--------|------:|\n| engine |     1 |\n";
    assert_eq!(table.markdown(), expected);
}

#[test]
fn figures_have_three_digits_or_so() {
    let figures = [
        0.1234,
        5.678,
        56.78,
        567.8,
        5678.0,
        56_780.0,
        567_800.0,
        f64::NAN,
    ];
    let texts: Vec<String> = figures.iter().map(|value| figure(*value)).collect();
    assert_eq!(
        texts,
        [
            "0.12", "5.68", "56.8", "568", "5678", "56.8 k", "568 k", "–"
        ]
    );
}

#[test]
fn a_report_is_written_and_its_document_can_be_read_again() {
    let mut report = Report::new("echo", "who is quick?", &Settings::new(true));
    report.runs = vec![run("a", 0, 100.0, true)];
    report.notes.push("made up".into());
    report.plots = vec![
        Plot {
            title: "bars".into(),
            groups: vec!["x".into(), "y".into()],
            series: vec![
                Series {
                    name: "one".into(),
                    points: vec![(0.0, 1.0), (1.0, 2.0)],
                },
                Series::default(),
            ],
            ..Plot::default()
        },
        Plot {
            title: "lines".into(),
            series: vec![Series {
                name: "two".into(),
                points: vec![(1.0, 5.0), (2.0, 7.0)],
            }],
            ..Plot::default()
        },
    ];
    let folder = tempfile::tempdir().unwrap();
    let written = report.write(folder.path()).unwrap();
    let names: Vec<_> = written
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["echo.json", "echo.md", "echo.svg", "echo-2.svg"]);
    let document = std::fs::read_to_string(&written[0]).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&document).unwrap(), report);
    let page = std::fs::read_to_string(&written[1]).unwrap();
    assert!(
        page.contains("who is quick?")
            && page.contains("- made up")
            && page.contains("1 of 1 runs were void")
    );
    let drawing = std::fs::read_to_string(&written[2]).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("bars") && drawing.contains("one"));
}

#[test]
fn a_plot_is_drawn_from_its_json() {
    let text = r#"{"title": "a", "x": "s", "y": "m", "groups": [], "series": [{"name": "n", "points": [[0, 1], [1, 2]]}]}"#;
    let plot: Plot = serde_json::from_str(text).unwrap();
    assert!(plot.svg().unwrap().contains("polyline"));
    assert!(serde_json::from_str::<Plot>(r#"{"title": "a"}"#).is_err());
}
