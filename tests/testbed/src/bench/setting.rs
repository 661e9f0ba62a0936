// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the groups share: their options, and nodes that are made once.

use std::path::PathBuf;

use super::cn::Cn;

/// What the groups share: nodes are made once.
pub(super) struct Bench {
    pub(super) rounds: usize,
    pub(super) vms: u32,
    pub(super) megabytes: Vec<u32>,
    pub(super) recorded: Option<PathBuf>,
    pub(super) vminfod: Option<PathBuf>,
    /// How many files one process may have open.
    pub(super) descriptors: u64,
    nodes: Vec<(u32, Cn)>,
}

impl Bench {
    /// Without nodes yet.
    pub(super) fn new(
        rounds: usize,
        (vms, megabytes): (u32, Vec<u32>),
        (recorded, vminfod): (Option<PathBuf>, Option<PathBuf>),
        descriptors: u64,
    ) -> Self {
        Self { rounds, vms, megabytes, recorded, vminfod, descriptors, nodes: Vec::new() }
    }

    /// The node with so many VMs.
    pub(super) async fn node(&mut self, vms: u32) -> anyhow::Result<&mut Cn> {
        let at = match self.nodes.iter().position(|(count, _)| *count == vms) {
            Some(at) => at,
            None => {
                let mut cn = Cn::make(vms).await?;
                cn.vminfod.clone_from(&self.vminfod);
                self.nodes.push((vms, cn));
                self.nodes.len() - 1
            }
        };
        Ok(&mut self.nodes[at].1)
    }
}
