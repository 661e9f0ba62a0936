// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a world is made.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Map, Value};

use mocks::napi::Era;

/// A daemon that a lab can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The agent of NAPI's records.
    NetAgent,
    /// The agent of VMAPI's records.
    VmAgent,
    /// Who turned a VM off.
    Kvmd,
    /// The web page.
    Console,
    /// What moves VMs, on each node; without it no migration.
    MigrationAgent,
    /// What orders it.
    MigrationService,
}

/// The options of a world.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// The directory of everything; it must not exist or be empty.
    pub dir: PathBuf,
    /// The testbed program, which is also vminfod, net-agent and the node's commands.
    pub program: PathBuf,
    /// How many VMs the node has.
    pub vms: u32,
    /// Decides everything that is random.
    pub seed: u64,
    /// The age of NAPI that the mock imitates.
    pub era: Era,
    /// Divides every wait of the daemons; 1 is production.
    pub speed: u32,
    /// Port of vminfod; 0 takes a free one.
    pub vminfod_port: u16,
    /// Port of net-agent's status; 0 takes a free one.
    pub agent_port: u16,
    /// Port of the web page; 0 takes a free one.
    pub console_port: u16,
    /// Port of the mock NAPI; 0 takes a free one.
    pub napi_port: u16,
    /// Port of the mock VMAPI; 0 takes a free one.
    pub vmapi_port: u16,
    /// Nobody is let in by the lab: a person does it.
    pub by_hand: bool,
    /// Keys of vminfod's configuration besides the lab's own; they win.
    pub vminfod: Map<String, Value>,
    /// The same of migration-agent's.
    pub migration_agent: Map<String, Value>,
    /// The same of migration-service's.
    pub migration_service: Map<String, Value>,
    /// The same of volapi's.
    pub volapi: Map<String, Value>,
}

impl WorldOptions {
    /// A small fast world in `dir`.
    pub fn new(dir: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            program: program.into(),
            vms: 12,
            seed: 1,
            era: Era::Master,
            speed: 120,
            vminfod_port: 0,
            agent_port: 0,
            console_port: 0,
            napi_port: 0,
            vmapi_port: 0,
            by_hand: false,
            vminfod: Map::new(),
            migration_agent: Map::new(),
            migration_service: Map::new(),
            volapi: Map::new(),
        }
    }
}
