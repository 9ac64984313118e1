//! Many bytes through a TAP, each counted: downloads from the web server, uploads to a service that answers with their digest.
//!
//! By default a set that is quick on two busy cores; `SIDECORE_FULL=1` runs 500 files of up to 200 MB, more than 2 GB. Over a bad
//! line, a smaller one.

use std::time::Duration;

use anyhow::Result;
use sidecore_e2e::Ground;
use sidecore_e2e::ground::available;
use sidecore_e2e::transfers::{Set, download_all, download_large, upload_all};
use sidecore_nic::LinkModel;

fn set() -> Set {
    if std::env::var_os("SIDECORE_FULL").is_some() {
        Set {
            files: 500,
            largest: 200_000_000,
            giants: 3,
            at_a_time: 64,
        }
    } else {
        Set {
            files: 150,
            largest: 8_000_000,
            giants: 2,
            at_a_time: 64,
        }
    }
}

/// For lines that lose frames: there is much waiting in it.
const SMALL: Set = Set {
    files: 40,
    largest: 2_000_000,
    giants: 1,
    at_a_time: 8,
};

fn bad_line(percent: f64, seed: u64) -> LinkModel {
    LinkModel {
        loss: percent / 100.0,
        duplicate: percent / 100.0,
        reorder: percent / 100.0,
        corrupt: percent / 1000.0,
        delay: Duration::from_micros(200),
        seed,
        ..LinkModel::default()
    }
}

#[test]
fn downloads_arrive_byte_for_byte() -> Result<()> {
    if !available() {
        return Ok(());
    }
    download_all(&Ground::new()?, &set())
}

/// Files too large for the cache go through a small room, which all their readers share: none of them may be left waiting.
#[test]
fn many_readers_of_large_files_all_get_on() -> Result<()> {
    if !available() {
        return Ok(());
    }
    let set = Set {
        files: 200,
        largest: 3_000_000,
        giants: 200,
        at_a_time: 200,
    };
    download_large(&Ground::new()?, &set)
}

#[test]
fn uploads_arrive_byte_for_byte() -> Result<()> {
    if !available() {
        return Ok(());
    }
    upload_all(&Ground::new()?, &set())
}

#[test]
fn downloads_over_a_bad_line() -> Result<()> {
    if !available() {
        return Ok(());
    }
    for (percent, seed) in [(1.0, 1), (3.0, 2)] {
        let ground = Ground::over(bad_line(percent, seed))?;
        download_all(&ground, &SMALL)?;
        assert!(
            ground.figure("/stack/tcp_retransmissions") > 0,
            "the line lost nothing"
        );
    }
    Ok(())
}

#[test]
fn uploads_over_a_bad_line() -> Result<()> {
    if !available() {
        return Ok(());
    }
    for (percent, seed) in [(1.0, 3), (3.0, 4)] {
        let ground = Ground::over(bad_line(percent, seed))?;
        upload_all(&ground, &SMALL)?;
        assert!(
            ground.figure("/stack/tcp_out_of_order") > 0,
            "the line lost nothing"
        );
        assert!(
            ground.figure("/stack/tcp_bad_checksum") + ground.figure("/stack/ip_bad_checksum") > 0,
            "the line damaged nothing"
        );
    }
    Ok(())
}
