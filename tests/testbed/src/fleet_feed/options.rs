// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How large a data centre is, and how long it is shaken.

use std::path::PathBuf;

use clap::Parser;

/// How large a data centre is, and how long it is shaken.
#[derive(Clone, Debug, Parser)]
#[command(name = "testbed fleet-feed", about = "A feed of many nodes on real servers, and kill -9")]
pub struct Options {
    /// Nodes
    #[arg(long, default_value_t = 100)]
    pub nodes: usize,
    /// VMs of each node
    #[arg(long, default_value_t = 20)]
    pub vms: usize,
    /// How long things change and die
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Decides everything random; drawn and printed if absent
    #[arg(long)]
    pub seed: Option<u64>,
    /// The program that the processes run
    #[arg(skip)]
    pub program: Option<PathBuf>,
}
