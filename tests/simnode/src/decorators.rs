// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Decorators of the node's commands, for tests: any `Arc<dyn Commands>` that fails, hangs, or
//! answers from memory. With [`crate::in_process::InProcess`] below them no test needs rules of
//! its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::command::{Call, CommandError, Commands, Output, Program, Run};

use crate::exec;

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Exit 1 and nothing printed.
    Fails,
    /// Exit 1 after half of the lines.
    FailsHalfway,
    /// Exit 0 after half of the lines.
    EndsHalfway,
    /// Exit 0 and nothing printed.
    SaysNothing,
    /// Never answers: it is killed at its deadline.
    Hangs,
    /// Cannot be started.
    NoFork,
    /// Exit 0, and each line has a column more, as on a platform that appends one.
    NinthColumn,
    /// Exit 0 and nothing but the line of the global zone.
    OnlyGlobal,
}

/// Commands whose next runs fail as they are told to.
pub struct Failing<C> {
    due: Mutex<Vec<(Program, Trouble, u32)>>,
    inner: Arc<C>,
}

impl<C: Commands> Failing<C> {
    /// Commands that behave until told otherwise.
    pub fn new(inner: Arc<C>) -> Self {
        Self { due: Mutex::default(), inner }
    }

    /// Makes the next `times` runs of the tool fail.
    pub fn trouble(&self, tool: Program, trouble: Trouble, times: u32) {
        self.due().push((tool, trouble, times));
    }

    /// Returns true if no trouble is left.
    pub fn is_calm(&self) -> bool {
        self.due().is_empty()
    }

    /// Drops the trouble that is left.
    pub fn calm(&self) {
        self.due().clear();
    }

    fn due(&self) -> MutexGuard<'_, Vec<(Program, Trouble, u32)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, tool: Program) -> Option<Trouble> {
        let mut due = self.due();
        let at = due.iter().position(|(of, _, _)| *of == tool)?;
        let (_, trouble, left) = due.get_mut(at)?;
        let trouble = *trouble;
        *left = left.saturating_sub(1);
        if *left == 0 {
            due.remove(at);
        }
        Some(trouble)
    }
}

impl<C: Commands> Commands for Failing<C> {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let program = call.program;
            let trouble = self.take(program);
            if trouble == Some(Trouble::Hangs) {
                tokio::time::sleep(call.deadline).await;
                return Err(CommandError::Deadline { program, after: call.deadline });
            }
            let mut output = self.inner.run(call).await?;
            match trouble {
                None | Some(Trouble::Hangs) => return Ok(output),
                Some(Trouble::NoFork) => {
                    let error = Arc::new(std::io::ErrorKind::OutOfMemory.into());
                    return Err(CommandError::Spawn { path: program.name().into(), error });
                }
                Some(Trouble::Fails | Trouble::SaysNothing) => output.stdout.clear(),
                Some(Trouble::NinthColumn) => {
                    let lines = String::from_utf8_lossy(&output.stdout).replace('\n', ":new\n");
                    output.stdout = lines.into_bytes();
                }
                Some(Trouble::OnlyGlobal) => output.stdout = exec::GLOBAL.as_bytes().to_vec(),
                Some(Trouble::FailsHalfway | Trouble::EndsHalfway) => {
                    // Whole lines: nothing shows that there should be more.
                    let half = output.stdout.get(..output.stdout.len() / 2).unwrap_or_default();
                    let whole = half.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                    output.stdout.truncate(whole);
                }
            }
            if matches!(trouble, Some(Trouble::Fails | Trouble::FailsHalfway)) {
                (output.status, output.stderr) = (1, b"the simulated command failed\n".to_vec());
            }
            Ok(output)
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.inner)
    }
}

type Chosen = dyn Fn(Program, &[String]) -> bool + Send + Sync;

/// Commands of which the chosen runs never end, whatever their deadline.
pub struct Hanging {
    inner: Arc<dyn Commands>,
    chosen: Box<Chosen>,
}

impl Hanging {
    /// Runs for which `chosen` returns true hang.
    pub fn new(
        inner: Arc<dyn Commands>,
        chosen: impl Fn(Program, &[String]) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { inner, chosen: Box::new(chosen) }
    }
}

impl Commands for Hanging {
    fn run(&self, call: Call) -> Run<'_> {
        match (self.chosen)(call.program, &call.args) {
            true => Box::pin(std::future::pending()),
            false => self.inner.run(call),
        }
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.inner)
    }
}

/// A tool and its arguments.
pub type Asked = (Program, Vec<String>);

/// Commands that run once: later runs with the same arguments get the first output again.
pub struct Recorded {
    inner: Arc<dyn Commands>,
    known: Mutex<HashMap<Asked, Output>>,
    runs: Mutex<Vec<Asked>>,
}

impl Recorded {
    /// Nothing is recorded yet.
    pub fn new(inner: Arc<dyn Commands>) -> Self {
        Self { inner, known: Mutex::default(), runs: Mutex::default() }
    }

    /// The runs that were asked for, in their order.
    pub fn runs(&self) -> Vec<Asked> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records an output, in place of a run of the tool.
    pub fn put(&self, tool: Program, args: Vec<String>, output: Output) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert((tool, args), output);
    }
}

impl Commands for Recorded {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let key = (call.program, call.args.clone());
            self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(key.clone());
            let known =
                self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
            if let Some(output) = known {
                return Ok(output);
            }
            let output = self.inner.run(call).await?;
            self.put(key.0, key.1, output.clone());
            Ok(output)
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::InProcess;
    use crate::{CreateOptions, Node};

    const DEADLINE: std::time::Duration = std::time::Duration::from_millis(20);

    fn zoneadm() -> Asked {
        (Program::Zoneadm, ["list", "-p", "-c"].map(str::to_owned).to_vec())
    }

    async fn list(commands: &dyn Commands) -> Result<Output, CommandError> {
        let (tool, args) = zoneadm();
        commands.run(Call::new(tool, args, DEADLINE)).await
    }

    #[tokio::test]
    async fn commands_fail_in_every_way_and_then_work() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::create(&CreateOptions::new(dir.path().join("cn"))).unwrap();
        let failing = Failing::new(Arc::new(InProcess::new(&node)));
        let whole = list(&failing).await.unwrap();
        for (trouble, status, lines) in [
            (Trouble::Fails, 1, 0..1),
            (Trouble::FailsHalfway, 1, 1..13),
            (Trouble::EndsHalfway, 0, 1..13),
            (Trouble::SaysNothing, 0, 0..1),
            (Trouble::NinthColumn, 0, 13..14),
            (Trouble::OnlyGlobal, 0, 1..2),
        ] {
            failing.trouble(Program::Zoneadm, trouble, 1);
            failing.trouble(Program::Zfs, trouble, 1);
            let output = list(&failing).await.unwrap();
            assert_eq!(output.status, status, "{trouble:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(lines.contains(&text.lines().count()), "{trouble:?}: {text}");
            assert!(!failing.is_calm());
            failing.calm();
        }
        failing.trouble(Program::Zoneadm, Trouble::Hangs, 1);
        assert!(matches!(list(&failing).await, Err(CommandError::Deadline { .. })));
        failing.trouble(Program::Zoneadm, Trouble::NoFork, 1);
        assert!(matches!(list(&failing).await, Err(CommandError::Spawn { .. })));
        assert!(failing.is_calm());
        assert_eq!(list(&failing).await.unwrap(), whole);
    }

    #[tokio::test]
    async fn commands_hang_and_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::create(&CreateOptions::new(dir.path().join("cn"))).unwrap();
        let inner = Arc::new(InProcess::new(&node));
        let hanging = Hanging::new(inner.clone(), |tool, _| tool == Program::Zfs);
        assert!(list(&hanging).await.is_ok());
        let zfs = hanging.run(Call::new(Program::Zfs, Vec::new(), DEADLINE));
        assert!(tokio::time::timeout(DEADLINE * 2, zfs).await.is_err());

        let recorded = Recorded::new(inner);
        let first = list(&recorded).await.unwrap();
        let vm = node.zones().unwrap().iter().next().unwrap().zonename.clone();
        node.zone_halt(&vm, 0).unwrap();
        assert_eq!(list(&recorded).await.unwrap(), first);
        assert_eq!(recorded.runs(), [zoneadm(), zoneadm()]);
    }
}
