// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands of a node in the simulator: each takes a random time, and fails when told to.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Program, Run};
use rand::RngExt;
use simnode::decorators::{Failing, Trouble};
use simnode::in_process::InProcess;

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
    pub fn trouble(&self, tool: Program, trouble: Trouble, times: u32) {
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
    fn run(&self, call: Call) -> Run<'_> {
        self.failing.run(call)
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.failing)
    }
}

/// Commands that take a random while.
struct Slow {
    inner: InProcess,
    dice: Mutex<Dice>,
}

impl Commands for Slow {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let Call { program, args, deadline, .. } = call;
            let question = format!("{program} {}", args.join(" "));
            let (takes, early) = {
                let mut rng = self.dice.lock().unwrap_or_else(PoisonError::into_inner).of(question);
                (Duration::from_millis(rng.random_range(1..40)), rng.random::<bool>())
            };
            let work = async {
                // What a command prints was true at some moment of its run, not at its end.
                let first = early.then(|| self.inner.answer(program, &args));
                tokio::time::sleep(takes).await;
                first.unwrap_or_else(|| self.inner.answer(program, &args))
            };
            let whole = tokio::time::timeout(deadline, work).await;
            whole.map_err(|_| CommandError::Deadline { program, after: deadline })
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&self.inner)
    }
}
