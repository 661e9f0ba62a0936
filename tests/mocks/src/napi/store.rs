// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The records of the mock, behind one lock that is not held across an await.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::eras::Era;
use super::etag;
use super::options::Options;
use super::rows::{NetworkRow, NicRow};
use super::table::Nics;
use crate::clock::Clock;
use crate::faults::{Faults, Recorder};

/// The records of a NAPI.
#[derive(Debug)]
pub(super) struct World {
    pub(super) era: Era,
    pub(super) initializing: bool,
    pub(super) admin_uuid: String,
    pub(super) nics: Nics,
    pub(super) networks: BTreeMap<String, NetworkRow>,
    pub(super) pools: BTreeMap<String, (String, Vec<String>)>,
    pub(super) tags: BTreeMap<String, (String, u32)>,
    pub(super) vnets: BTreeMap<String, u32>,
    pub(super) fabric_vlans: BTreeMap<(String, u16), Value>,
    pub(super) rng: StdRng,
    changes: u64,
}

impl World {
    fn new(options: &Options) -> Self {
        Self {
            era: options.era,
            initializing: options.initializing,
            admin_uuid: options.admin_uuid.clone(),
            nics: Nics::default(),
            networks: BTreeMap::new(),
            pools: BTreeMap::new(),
            tags: BTreeMap::new(),
            vnets: BTreeMap::new(),
            fabric_vlans: BTreeMap::new(),
            rng: StdRng::seed_from_u64(options.seed),
            changes: 0,
        }
    }

    /// The next number of the change counter.
    pub(super) fn tick(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Stores the NIC under a fresh tag; if it is primary, its siblings no longer are.
    pub(super) fn put_nic(&mut self, mut row: NicRow) -> NicRow {
        row.etag = String::new();
        row.etag = etag::of(&format!("{row:?}"));
        if row.primary {
            let etag = etag::bulk(self.rng.random());
            for mac in self.nics.belonging_to(&row.belongs_to_uuid) {
                let sibling = self.nics.get(&mac).filter(|sibling| sibling.mac != row.mac);
                if let Some(sibling) = sibling.cloned() {
                    let etag = etag.clone();
                    self.nics.insert(NicRow { primary: false, etag, ..sibling });
                }
            }
        }
        self.nics.insert(row.clone());
        row
    }
}

#[derive(Debug)]
struct Inner {
    world: Mutex<World>,
    options: Options,
    faults: Faults,
    log: Recorder,
    clock: Clock,
}

/// A handle on the data, rules and log of one mock NAPI.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

impl Store {
    /// The fault rules.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The request log.
    pub fn log(&self) -> &Recorder {
        &self.0.log
    }

    /// An empty store.
    pub fn new(options: Options) -> Self {
        Self::with_clock(options, Clock::default())
    }

    /// One whose clock shows so many milliseconds since 1970.
    pub fn at(options: Options, now_ms: i64) -> Self {
        Self::with_clock(options, Clock::at(now_ms))
    }

    fn with_clock(options: Options, clock: Clock) -> Self {
        let world = Mutex::new(World::new(&options));
        let (faults, log) = (Faults::default(), Recorder::default());
        Self(Arc::new(Inner { world, options, faults, log, clock }))
    }

    /// Returns a copy of the current data, with the same clock and without rules: the data of a
    /// replica that lags behind.
    pub fn fork(&self) -> Self {
        let world = self.world();
        let mut copy = World::new(&self.0.options);
        (copy.era, copy.changes) = (world.era, world.changes);
        copy.networks.clone_from(&world.networks);
        copy.pools.clone_from(&world.pools);
        copy.tags.clone_from(&world.tags);
        copy.vnets.clone_from(&world.vnets);
        copy.fabric_vlans.clone_from(&world.fabric_vlans);
        world.nics.values().cloned().for_each(|nic| copy.nics.insert(nic));
        drop(world);
        Self(Arc::new(Inner {
            world: Mutex::new(copy),
            options: self.0.options.clone(),
            faults: Faults::default(),
            log: Recorder::default(),
            clock: Clock::at(self.now_ms()),
        }))
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Imitates another era from now on; the data stays.
    pub fn set_era(&self, era: Era) {
        self.world().era = era;
    }

    /// The era that it imitates.
    pub fn era(&self) -> Era {
        self.world().era
    }

    /// Sets whether it still starts up: 503 on everything but `/ping`.
    pub fn set_initializing(&self, initializing: bool) {
        self.world().initializing = initializing;
    }

    /// Drops all data, but not the rules or the log.
    pub fn reset(&self) {
        let mut world = self.world();
        let era = world.era;
        *world = World::new(&self.0.options);
        world.era = era;
    }

    /// Moves the mock's clock; records made before become older.
    pub fn advance_clock(&self, by: Duration) {
        self.0.clock.advance(by);
    }

    /// The mock's time in milliseconds; follows tokio's clock, so paused time works.
    pub fn now_ms(&self) -> i64 {
        self.0.clock.now_ms()
    }

    /// A stored NIC in the form the API gives it, by any spelling of its address.
    pub fn nic(&self, mac: &str) -> Option<Value> {
        let world = self.world();
        let row: &NicRow = world.nics.get(&super::mac::parse(mac)?)?;
        Some(world.nic_json(row))
    }

    /// An address of a network in the form the API gives it.
    pub fn ip(&self, network: &str, ip: &str) -> Option<Value> {
        self.world().get_ip(network, ip).ok()
    }

    /// All stored NICs, by address.
    pub fn nics(&self) -> Vec<Value> {
        let world = self.world();
        world.nics.values().map(|row| world.nic_json(row)).collect()
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
