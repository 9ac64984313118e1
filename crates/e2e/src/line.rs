//! A bad line between a TAP and an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use sidecore_nic::{LinkModel, MemRef, Nic, RxBurst, Tap, TxFrame, Wire, WireConfig, wire};

/// Bytes of a frame that go as its header.
const HEADER: usize = 14;

/// Carries frames between a TAP and one end of a wire, whose other end is the engine's device, until it is dropped.
pub(crate) struct Line {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    /// The line, and the engine's end of it. The model holds for each direction.
    pub(crate) fn between(tap: Tap, link: LinkModel) -> Result<(Self, Wire)> {
        // A wire whose frames may be damaged completes checksums, which the kernel's side needs.
        anyhow::ensure!(
            link.corrupt > 0.0,
            "the line must damage frames now and then"
        );
        let (engine, ours) = wire::pair(&WireConfig {
            tso: false,
            capacity: 4096,
            seed: link.seed,
            link,
            ..WireConfig::default()
        })?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || carry(tap, ours, &stopped));
        let line = Self {
            stop,
            thread: Some(thread),
        };
        Ok((line, engine))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(mut tap: Tap, mut wire: Wire, stop: &AtomicBool) {
    let mut burst = RxBurst::default();
    while !stop.load(Ordering::Relaxed) {
        let moved = pass(&mut tap, &mut wire, &mut burst) + pass(&mut wire, &mut tap, &mut burst);
        if moved == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Moves a burst of frames; returns how many.
fn pass(from: &mut impl Nic, to: &mut impl Nic, burst: &mut RxBurst) -> usize {
    let frames = from.receive(burst);
    for frame in burst.frames() {
        let bytes = from.frame(frame);
        let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
            continue;
        };
        to.submit(&TxFrame {
            header,
            payload: &[MemRef::from_bytes(payload)],
            payload_len: payload.len() as u32,
            checksum: None,
            segment_size: 0,
        });
    }
    to.flush();
    from.release(burst);
    frames
}
