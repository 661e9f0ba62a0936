// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's commands as they misbehave: slow, failing, hanging, cut short, or with a success
//! that says nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rand::RngExt;
use vminfod::commands::{CommandError, Commands, Follow, Output, Tool};

use super::Dice;
use super::bugs::Bug;
use simnode::in_process::InProcess;

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Exit 1 and nothing printed.
    Fails,
    /// Exit 1 after half of the output.
    FailsHalfway,
    /// Exit 0 and nothing printed.
    SaysNothing,
    /// Never answers.
    Hangs,
    /// Cannot be started.
    NoFork,
}

/// All kinds.
pub const TROUBLES: [Trouble; 5] =
    [Trouble::Fails, Trouble::FailsHalfway, Trouble::SaysNothing, Trouble::Hangs, Trouble::NoFork];

struct State {
    dice: Dice,
    /// What the next runs of a tool are like.
    due: Vec<(Tool, Trouble, u32)>,
}

/// The commands of one simulated node.
#[derive(Clone)]
pub struct SimCommands {
    inner: InProcess,
    bug: Option<Bug>,
    state: Arc<Mutex<State>>,
}

impl SimCommands {
    /// Commands that behave until told otherwise; each takes a random while.
    pub fn new(inner: InProcess, seed: u64, bug: Option<Bug>) -> Self {
        let state = State { dice: Dice::new(seed), due: Vec::new() };
        Self { inner, bug, state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `times` runs of the tool misbehave.
    pub fn trouble(&self, tool: Tool, trouble: Trouble, times: u32) {
        self.state().due.push((tool, trouble, times));
    }

    /// Do all behave?
    pub fn is_calm(&self) -> bool {
        self.state().due.is_empty()
    }

    /// All behave from now on.
    pub fn calm(&self) {
        self.state().due.clear();
    }

    fn draw(&self, tool: Tool, args: &[String]) -> (Option<Trouble>, Duration, bool) {
        let mut state = self.state();
        let at = state.due.iter().position(|(of, _, _)| *of == tool);
        let trouble = at.and_then(|at| {
            let (_, trouble, left) = state.due.get_mut(at)?;
            let trouble = *trouble;
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.due.remove(at);
            }
            Some(trouble)
        });
        let mut rng = state.dice.of(format!("{} {}", tool.name(), args.join(" ")));
        (trouble, Duration::from_millis(rng.random_range(1..40)), rng.random())
    }
}

impl Commands for SimCommands {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let (trouble, takes, early) = self.draw(tool, &args);
            let work = async {
                if trouble == Some(Trouble::Hangs) {
                    std::future::pending::<()>().await;
                }
                // What a command prints was true at some moment of its run, not at its end.
                if early {
                    let output = self.inner.answer(tool, &args);
                    tokio::time::sleep(takes).await;
                    return output;
                }
                tokio::time::sleep(takes).await;
                self.inner.answer(tool, &args)
            };
            let whole = tokio::time::timeout(deadline, work).await;
            let output = whole.map_err(|_| CommandError::Deadline { tool, after: deadline })?;
            match trouble {
                Some(Trouble::NoFork) => Err(CommandError::Spawn {
                    path: tool.name().into(),
                    error: Arc::new(std::io::ErrorKind::OutOfMemory.into()),
                }),
                Some(Trouble::Fails) => Ok(failed(Vec::new())),
                Some(Trouble::FailsHalfway) => {
                    // Whole lines: nothing shows that there should be more.
                    let half = &output.stdout[..output.stdout.len() / 2];
                    let half = half.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                    let status = i32::from(self.bug != Some(Bug::TrustHalfAListing));
                    Ok(Output { status, ..failed(output.stdout[..half].to_vec()) })
                }
                Some(Trouble::SaysNothing) => {
                    Ok(Output { status: 0, stdout: Vec::new(), stderr: Vec::new() })
                }
                Some(Trouble::Hangs) | None => Ok(output),
            }
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.inner.follow(tool, args)
    }
}

fn failed(stdout: Vec<u8>) -> Output {
    Output { status: 1, stdout, stderr: b"the simulated command failed\n".to_vec() }
}
