// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands of a node in the simulator: each takes a random time, and fails when told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// How long a run takes that is slow.
const SLOW: Duration = Duration::from_secs(20);

/// What a program prints is changed on its way.
type Altered = Box<dyn Fn(Program, String) -> String + Send + Sync>;

/// The commands of one simulated node.
#[derive(Clone)]
pub struct SimCommands {
    failing: Arc<Failing<Slow>>,
    altered: Arc<Mutex<Vec<Altered>>>,
    slow: Arc<Mutex<Vec<String>>>,
    bug: Option<Bug>,
}

impl SimCommands {
    /// Commands that behave until told otherwise.
    pub fn new(inner: InProcess, seed: u64, bug: Option<Bug>) -> Self {
        let slow = Arc::default();
        let inner = Slow { inner, dice: Mutex::new(Dice::new(seed)), slow: Arc::clone(&slow) };
        let failing = Arc::new(Failing::new(Arc::new(inner)));
        Self { failing, altered: Arc::default(), slow, bug }
    }

    /// Each run of zfs that names one of these takes `SLOW` from now on.
    pub fn slow_down(&self, names: Vec<String>) {
        *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// What programs print is changed like this from now on.
    pub fn alter(&self, how: impl Fn(Program, String) -> String + Send + Sync + 'static) {
        self.altered().push(Box::new(how));
    }

    fn altered(&self) -> MutexGuard<'_, Vec<Altered>> {
        self.altered.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.altered().clear();
    }
}

impl Commands for SimCommands {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let program = call.program;
            let mut output = self.failing.run(call).await?;
            for altered in &*self.altered() {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                output.stdout = altered(program, text).into_bytes();
            }
            Ok(output)
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.failing)
    }
}

/// Commands that take a random while.
struct Slow {
    inner: InProcess,
    dice: Mutex<Dice>,
    slow: Arc<Mutex<Vec<String>>>,
}

impl Commands for Slow {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let Call { program, args, deadline, .. } = call;
            let question = format!("{program} {}", args.join(" "));
            let (takes, early) = {
                let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
                let mut rng = dice.of(question.clone());
                (Duration::from_millis(rng.random_range(1..40)), rng.random::<bool>())
            };
            let is_slow = program == Program::Zfs && {
                let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
                slow.iter().any(|name| question.contains(name.as_str()))
            };
            let takes = if is_slow { SLOW } else { takes };
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
