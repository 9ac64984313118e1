//! Opening a UAL: from a program's wishes to a door.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sidecore_client::{Ual, UalConfig};

use crate::door::Door;
use crate::handle::{DTIS, UalName};
use crate::staging::Staging;
use crate::status::Dusi_Status::*;
use crate::status::Outcome;
use crate::table;
use crate::types::{DUSI_MANUAL_FLUSH, Dusi_Ual_Config, Dusi_Ual_Info};

/// What was wished for, checked.
pub(crate) struct Wishes {
    config: UalConfig,
    manual: bool,
}

/// log2 of a depth of at least `least`.
fn order(depth: u32, least: u32, default: u32) -> Outcome<u32> {
    match depth {
        0 => Ok(default),
        depth if (least..=65536).contains(&depth) => Ok(depth.next_power_of_two().trailing_zeros()),
        _ => Err(DUSI_BAD_ARGUMENT.into()),
    }
}

fn or<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() {
        default
    } else {
        value
    }
}

impl Wishes {
    /// Of a program that wishes for nothing special.
    pub(crate) fn none() -> Self {
        let config = UalConfig {
            lanes: 1,
            ..UalConfig::default()
        };
        Self {
            config,
            manual: false,
        }
    }

    /// Of a program's structure.
    pub(crate) fn of(config: &Dusi_Ual_Config) -> Outcome<Self> {
        let fits = config.size as usize == size_of::<Dusi_Ual_Config>()
            && config.reserved == 0
            && config.flags & !DUSI_MANUAL_FLUSH == 0
            && config.evqs <= table::QUEUES as u32
            && config.dtis <= DTIS;
        if !fits {
            return Err(DUSI_BAD_ARGUMENT.into());
        }
        let none = Self::none().config;
        let evqs = or(config.evqs, none.evqs);
        let spin = config.spin.checked_sub(1);
        Ok(Self {
            manual: config.flags & DUSI_MANUAL_FLUSH != 0,
            config: UalConfig {
                lane_order: order(config.doorbell_depth, 32, none.lane_order)?,
                evqs,
                evq_order: order(config.evq_depth, 8, none.evq_order)?,
                wait_cells: evqs,
                dtis: or(config.dtis, none.dtis),
                pool_bytes: or(config.pool_bytes, none.pool_bytes),
                spin: spin.map_or(none.spin, |us| Duration::from_micros(us.into())),
                ..none
            },
        })
    }

    /// Opens a UAL by `connect`, and enters it into the table.
    pub(crate) fn open(
        &self,
        connect: impl FnOnce(&UalConfig) -> Outcome<Ual>,
    ) -> Outcome<UalName> {
        table::open(|name| {
            let ual = connect(&self.config)?;
            let lane = ual.lane()?;
            let staging = Staging::new(&ual)?;
            Ok(Door::new(name, ual, lane, staging, self.manual))
        })
    }
}

/// Where an engine listens when nobody says otherwise: as the `sidecore` program has it.
pub(crate) fn default_path() -> Outcome<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok("/run/sidecore.sock".into());
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_absolute());
    Ok(folder.ok_or(DUSI_BAD_ARGUMENT)?.join("sidecore.sock"))
}

/// Opens a UAL at a path.
pub(crate) fn at(path: &Path, config: &UalConfig) -> Outcome<Ual> {
    Ok(Ual::open(path, config)?)
}

/// What was granted, for C.
pub(crate) fn info(ual: &Ual) -> Dusi_Ual_Info {
    let granted = ual.granted();
    let geometry = granted.geometry;
    Dusi_Ual_Info {
        doorbell_depth: 1 << geometry.lane_order,
        dtis: granted.dtis,
        evqs: geometry.evqs.min(geometry.wait_cells),
        evq_depth: 1 << geometry.evq_order,
        pool_bytes: granted.pool_bytes,
        epoch: granted.epoch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Dusi_Ual_Config = Dusi_Ual_Config {
        size: size_of::<Dusi_Ual_Config>() as u32,
        flags: 0,
        doorbell_depth: 0,
        dtis: 0,
        evqs: 0,
        evq_depth: 0,
        pool_bytes: 0,
        spin: 0,
        reserved: 0,
    };

    #[test]
    fn zeros_are_the_defaults() {
        let wishes = Wishes::of(&CONFIG).unwrap();
        let default = UalConfig::default();
        assert_eq!(wishes.config.lane_order, default.lane_order);
        assert_eq!(wishes.config.evqs, default.evqs);
        assert_eq!(wishes.config.spin, default.spin);
        assert_eq!((wishes.config.lanes, wishes.manual), (1, false));
    }

    #[test]
    fn depths_are_rounded_up_and_spin_is_one_less() {
        let wishes = Wishes::of(&Dusi_Ual_Config {
            flags: DUSI_MANUAL_FLUSH,
            doorbell_depth: 33,
            evq_depth: 8,
            spin: 1,
            evqs: 3,
            ..CONFIG
        });
        let wishes = wishes.unwrap();
        assert_eq!((wishes.config.lane_order, wishes.config.evq_order), (6, 3));
        assert_eq!((wishes.config.evqs, wishes.config.wait_cells), (3, 3));
        assert_eq!((wishes.config.spin, wishes.manual), (Duration::ZERO, true));
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        for config in [
            Dusi_Ual_Config { size: 0, ..CONFIG },
            Dusi_Ual_Config {
                size: CONFIG.size + 8,
                ..CONFIG
            },
            Dusi_Ual_Config { flags: 2, ..CONFIG },
            Dusi_Ual_Config {
                reserved: 1,
                ..CONFIG
            },
            Dusi_Ual_Config {
                doorbell_depth: 31,
                ..CONFIG
            },
            Dusi_Ual_Config {
                doorbell_depth: 65537,
                ..CONFIG
            },
            Dusi_Ual_Config {
                evq_depth: 7,
                ..CONFIG
            },
            Dusi_Ual_Config {
                evqs: 513,
                ..CONFIG
            },
            Dusi_Ual_Config {
                dtis: DTIS + 1,
                ..CONFIG
            },
        ] {
            assert!(Wishes::of(&config).is_err(), "{config:?}");
        }
    }
}
