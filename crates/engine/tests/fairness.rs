//! What one application may take of a turn.

use std::collections::BTreeMap;

use sidecore_client::{EventQueue, Lane, Ual, UalConfig};
use sidecore_engine::{Budgets, Engine, EngineConfig, EngineControlHandle, Turn};

/// Lanes of the application that wants much.
const LANES: u32 = 64;

struct Application {
    lanes: Vec<Lane>,
    evq: EventQueue,
    _ual: Ual,
}

impl Application {
    fn open(control: &EngineControlHandle, lanes: u32) -> Self {
        let config = UalConfig {
            lanes,
            ..UalConfig::default()
        };
        let ual = Ual::open_on(control.connect().unwrap(), &config).unwrap();
        Self {
            lanes: (0..lanes).map(|_| ual.lane().unwrap()).collect(),
            evq: ual.event_queue().unwrap(),
            _ual: ual,
        }
    }

    /// Posts so many commands on each lane; each is answered with its lane's number.
    fn post(&mut self, commands: usize) {
        for lane in &mut self.lanes {
            for _ in 0..commands {
                lane.nop(&self.evq, lane.index().into()).unwrap();
            }
            lane.flush();
        }
    }

    /// How many commands of each lane were answered.
    fn answers(&mut self) -> BTreeMap<u64, usize> {
        let mut answers = BTreeMap::new();
        while let Some(event) = self.evq.poll() {
            *answers.entry(event.cookie).or_insert(0) += 1;
        }
        answers
    }
}

#[test]
fn many_lanes_are_no_greater_share_and_each_gets_its_turn() {
    let (mut engine, control) = Engine::new(EngineConfig::default()).unwrap();
    let mut greedy = Application::open(&control, LANES);
    let mut modest = Application::open(&control, 1);
    while engine.turn() == Turn::Productive {}
    let Budgets {
        commands_per_lane,
        commands_per_ual,
        ..
    } = Budgets::default();
    greedy.post(commands_per_lane);
    modest.post(commands_per_lane);
    let turns = LANES as usize * commands_per_lane / commands_per_ual;
    assert!(turns > 4, "that is no flood");
    let mut all = BTreeMap::new();
    for turn in 0..turns {
        engine.turn();
        let answers = greedy.answers();
        assert_eq!(
            answers.values().sum::<usize>(),
            commands_per_ual,
            "turn {turn}"
        );
        all.extend(answers);
        let modestly = if turn == 0 { commands_per_lane } else { 0 };
        assert_eq!(modest.answers().values().sum::<usize>(), modestly);
    }
    // The next turn began where the last one had ended: no lane was passed over.
    assert_eq!(all.len(), LANES as usize);
    assert!(all.values().all(|answers| *answers == commands_per_lane));
    engine.turn();
    assert!(greedy.answers().is_empty());
}
