// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands of a node in the simulator: each takes a random time, and fails when told to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use simnode::decorators::{Failing, Trouble};
use simnode::in_process::InProcess;
use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Tool};

use super::bugs::Bug;
use super::dice::Dice;

/// The ways in which commands of the simulator fail.
pub const TROUBLES: [Trouble; 5] =
    [Trouble::Fails, Trouble::FailsHalfway, Trouble::SaysNothing, Trouble::Hangs, Trouble::NoFork];

/// The commands of one simulated node.
#[derive(Clone)]
pub struct SimCommands {
    failing: Arc<Failing<Slow>>,
    bug: Option<Bug>,
}

impl SimCommands {
    /// Commands that behave until told otherwise.
    pub fn new(inner: InProcess, seed: u64, bug: Option<Bug>) -> Self {
        let slow = Slow { inner, dice: Mutex::new(Dice::new(seed)) };
        Self { failing: Arc::new(Failing::new(Arc::new(slow))), bug }
    }

    /// Makes the next `times` runs of the tool fail.
    pub fn trouble(&self, tool: Tool, trouble: Trouble, times: u32) {
        let trouble = match (trouble, self.bug) {
            (Trouble::FailsHalfway, Some(Bug::TrustHalfAListing)) => Trouble::EndsHalfway,
            _ => trouble,
        };
        self.failing.trouble(tool, trouble, times);
    }

    /// Returns true if all commands work.
    pub fn is_calm(&self) -> bool {
        self.failing.is_calm()
    }

    /// Makes all commands work from now on.
    pub fn calm(&self) {
        self.failing.calm();
    }
}

impl Commands for SimCommands {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        self.failing.run(tool, args, deadline)
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.failing.follow(tool, args)
    }

    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        self.failing.converse(tool, args)
    }
}

/// Commands that take a random while.
struct Slow {
    inner: InProcess,
    dice: Mutex<Dice>,
}

impl Commands for Slow {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let question = format!("{} {}", tool.name(), args.join(" "));
            let (takes, early) = {
                let mut rng = self.dice.lock().unwrap_or_else(PoisonError::into_inner).of(question);
                (Duration::from_millis(rng.random_range(1..40)), rng.random::<bool>())
            };
            let work = async {
                // What a command prints was true at some moment of its run, not at its end.
                let first = early.then(|| self.inner.answer(tool, &args));
                tokio::time::sleep(takes).await;
                first.unwrap_or_else(|| self.inner.answer(tool, &args))
            };
            let whole = tokio::time::timeout(deadline, work).await;
            whole.map_err(|_| CommandError::Deadline { tool, after: deadline })
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.inner.follow(tool, args)
    }

    fn converse(&self, tool: Tool, args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        self.inner.converse(tool, args)
    }
}
