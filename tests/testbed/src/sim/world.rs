// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A world: what its nodes share, its nodes, and who listens to each.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::boots;
use super::bugs::Bug;
use super::centre::Centre;
use super::lies;
use super::moves;
use super::node::Cn;
use super::signals::Weather;
use super::steps;
use super::told;
use super::truth::Truth;
use super::twins;
use super::watch::{self, Histories, Places, Watching};
use mocks::napi::Era;

/// One world: what its nodes share, its nodes, and who listens to each.
pub(super) struct World {
    pub(super) centre: Centre,
    pub(super) nodes: Vec<Cn>,
    pub(super) readers: Vec<Reader>,
    rng: StdRng,
}

impl World {
    /// The world of a seed, with everything running.
    pub(super) async fn new(
        seed: u64,
        (bug, has_lies): (Option<Bug>, bool),
        truth: &Truth,
        dir: &Path,
        weather: Weather,
    ) -> anyhow::Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let era = if rng.random_range(0..3_u8) == 0 { Era::Rfd58 } else { Era::Master };
        let centre = Centre { lies: has_lies, ..Centre::new(era, seed, bug, truth) };
        let (mut nodes, mut readers) = (Vec::new(), Vec::new());
        let count = if rng.random_range(0..4_u8) == 0 { 2 } else { 1 };
        for nth in 0..count {
            let place = dir.join(nth.to_string());
            std::fs::create_dir_all(&place)?;
            let mut cn = Cn::new(&centre, &place, nth, rng.random_range(3..9))?;
            cn.way.set(weather);
            if rng.random_range(0..8_u8) == 0 {
                cn.hide_some(&mut rng).await?;
            }
            let vms = cn.load().await.context("the first load")?;
            steps::seed(&centre, &mut cn, nth, &vms, &mut rng).map_err(anyhow::Error::msg)?;
            if nth == 0 && has_lies && seed % 8 == 5 {
                twins::second_machine(&centre, &cn.uuid)?;
            }
            cn.start_vminfod().await?;
            cn.start_agent()?;
            cn.start_vm_agent()?;
            readers.push(Reader::new(&centre, &cn, nth));
            nodes.push(cn);
        }
        Ok(Self { centre, nodes, readers, rng })
    }

    /// So many steps, and whether they are nothing but life.
    pub(super) async fn live(&mut self, only_life: bool) -> anyhow::Result<()> {
        let rng = &mut self.rng;
        for _ in 0..rng.random_range(15..50) {
            let at = rng.random_range(0..self.nodes.len());
            steps::step(&self.centre, &mut self.nodes[at], rng, only_life).await?;
            let pause = [0, 3, 60, 800, 4_000, 25_000, 90_000][rng.random_range(0..7)];
            let barred = rng.random_range(0..5_u8) == 0;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if barred {
                let cn = &self.nodes[at];
                let vms = self.centre.truth.on(&cn.uuid);
                if let (true, [_, ..]) = (cn.commands.is_calm(), vms.as_slice()) {
                    let vm = &vms[rng.random_range(0..vms.len())];
                    watch::barrier(cn, vm, &self.centre.truth, self.centre.bug).await;
                }
            }
            for (cn, reader) in self.nodes.iter().zip(&self.readers) {
                reader.check(cn, &self.centre).await;
            }
            held(&self.centre.truth)?;
        }
        Ok(())
    }

    /// The first node's agents are told what is not so; in some worlds, and with a deliberate bug that
    /// needs it, the node is evacuated; with one it shows less than it has. In some worlds it reboots.
    pub(super) async fn evacuate(&mut self) -> anyhow::Result<()> {
        if let (Some(Bug::ForgetTheReference), [cn, ..]) =
            (self.centre.bug, self.nodes.as_mut_slice())
        {
            lies::smaller(&self.centre, cn, &mut self.rng).await?;
        }
        // With each era, with hidden VMs and without, in worlds of their own.
        if let (true, [cn, ..]) =
            (self.centre.lies && self.centre.seed % 8 == 3, self.nodes.as_mut_slice())
        {
            boots::reboots(&self.centre, cn, &mut self.rng).await?;
        }
        let has_gaps = match self.centre.bug {
            None => self.centre.lies && self.centre.seed % 16 == 9,
            bug => bug == Some(Bug::BelieveTheIndex),
        };
        if let (true, [cn, ..]) = (has_gaps, self.nodes.as_mut_slice()) {
            lies::gaps(&self.centre, cn, &mut self.rng).await?;
        }
        let is_evacuated = match self.centre.bug {
            None => self.centre.lies && self.centre.seed % 32 == 15,
            bug => bug == Some(Bug::CountWhoMoved),
        };
        if let (true, [cn, ..]) = (is_evacuated, self.nodes.as_mut_slice()) {
            moves::evacuated(&self.centre, cn, &mut self.rng).await?;
        }
        if let (true, Some(cn)) = (self.centre.lies, self.nodes.first_mut()) {
            told::wrong(&self.centre, cn, &mut self.rng).await?;
        }
        held(&self.centre.truth)
    }

    /// The end of it.
    pub(super) async fn end(self) {
        for cn in self.nodes {
            cn.end().await;
        }
    }
}

/// Who listens to a node: one that never stalls, one that does, and a reader now and then.
#[derive(Clone, Default)]
pub(super) struct Reader {
    histories: Histories,
    places: Places,
}

impl Reader {
    /// The listeners of this node.
    fn new(centre: &Centre, cn: &Cn, nth: u64) -> Self {
        let reader = Self::default();
        for (n, lazy) in [(1, false), (2, true)] {
            let watching = Watching {
                node: cn.node.clone(),
                wire: cn.wire.clone(),
                histories: reader.histories.clone(),
                places: reader.places.clone(),
                truth: centre.truth.clone(),
                seed: centre.seed ^ (n << 32) ^ nth,
                lazy,
                bug: centre.bug,
            };
            tokio::spawn(watching.run());
        }
        reader
    }

    /// What can be asked after each step.
    pub(super) async fn check(&self, cn: &Cn, centre: &Centre) {
        watch::read(&cn.wire, &self.histories, &centre.truth, centre.bug).await;
        watch::keeps_up(&cn.wire, &self.places, &centre.truth).await;
    }
}

pub(crate) fn held(truth: &Truth) -> anyhow::Result<()> {
    match truth.faults().as_slice() {
        [] => Ok(()),
        [first, rest @ ..] => bail!("{first} (and {} more)", rest.len()),
    }
}
