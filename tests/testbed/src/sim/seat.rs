// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where one agent of a node runs, over all its lives: its gate, its memory and its deaths.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::Shutdown;
use sdc_clients::http::Transport;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::gate::Gate;
use super::gated;

/// The place of one agent.
pub struct Seat {
    /// What passes between the agent and the world.
    pub gate: Gate,
    name: &'static str,
    /// Where the agent keeps its memory, one place for each that died.
    state_dir: PathBuf,
    crashes: u64,
    agent: Option<(Shutdown, JoinHandle<()>)>,
}

impl Seat {
    /// The place of an agent that has not been started.
    pub(super) fn new(gate: Gate, dir: &Path, name: &'static str) -> Self {
        Self { gate, name, state_dir: dir.join(name), crashes: 0, agent: None }
    }

    /// Where the agent that is started next keeps its memory.
    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn memory(&self) -> PathBuf {
        self.state_dir.join("memory.json")
    }

    /// The wires of a new agent, to its node and to the world.
    pub(super) fn wires(
        &self,
        node: Arc<dyn Transport>,
        outside: Arc<dyn Transport>,
    ) -> (Arc<dyn Transport>, Arc<dyn Transport>) {
        gated::open(&self.gate, node, outside, &self.memory())
    }

    /// An agent runs from now on.
    pub(super) fn run<F>(&mut self, work: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = Shutdown::new();
        self.agent = Some((shutdown.clone(), tokio::spawn(work(shutdown))));
    }

    /// Kills the agent where it is. What it kept on the disk stays; `back`: the last write of it never
    /// got there.
    pub async fn kill(&mut self, back: bool) -> anyhow::Result<()> {
        self.gate.kill();
        let kept = self.gate.memory(back);
        self.crashes += 1;
        self.state_dir.set_file_name(format!("{}-{}", self.name, self.crashes));
        std::fs::create_dir_all(&self.state_dir)?;
        if let Some(kept) = kept {
            std::fs::write(self.memory(), kept)?;
        }
        self.end().await;
        Ok(())
    }

    /// Edits what the dead agent remembers.
    pub(super) fn edit_memory(&self, edit: impl FnOnce(&mut Value)) -> anyhow::Result<()> {
        let file = self.memory();
        let Ok(text) = std::fs::read(&file) else { return Ok(()) };
        let mut memory = serde_json::from_slice(&text)?;
        edit(&mut memory);
        Ok(std::fs::write(&file, memory.to_string())?)
    }

    /// Ends the agent in good order, wherever it is: its requests are cut off.
    pub async fn end(&mut self) {
        if let Some((shutdown, task)) = self.agent.take() {
            shutdown.trigger();
            drop(task.await);
        }
    }
}
