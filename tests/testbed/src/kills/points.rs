// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The moments at which somebody can be killed, by name: they are the same in each run, however often a program asks
//! again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use migration_core::intent::End;
use tokio::sync::{mpsc, oneshot};

use crate::faults::{self, Fault, Moment, Party, Plan};
use crate::moving::judge::Judge;

/// A kill at the point of this name.
pub type Planned = faults::Planned<String, Fault>;

/// A kill that is due, and who waits for it.
pub type Due = (Party, oneshot::Sender<()>);

struct State {
    judge: Arc<Judge>,
    /// Which copy each of the two nodes has.
    ends: [End; 2],
    /// The points of the operation so far.
    seen: Vec<String>,
    plan: Plan<String, Fault>,
    /// Commands that change a node now.
    doing: usize,
}

/// The points of one operation.
pub struct Points {
    state: Mutex<State>,
    due: mpsc::Sender<Due>,
}

impl Points {
    /// None yet. What is due goes to `due`.
    pub fn new(judge: Arc<Judge>, due: mpsc::Sender<Due>) -> Arc<Points> {
        let (ends, seen) = ([End::Source, End::Target], Vec::new());
        let state = State { judge, ends, seen, plan: Plan::default(), doing: 0 };
        Arc::new(Points { state: Mutex::new(state), due })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A story begins with the VM on this node.
    pub fn turn(&self, judge: &Arc<Judge>, at: usize) {
        let mut state = self.state();
        state.judge = Arc::clone(judge);
        state.ends = if at == 0 { [End::Source, End::Target] } else { [End::Target, End::Source] };
    }

    /// An operation begins.
    pub fn begin(&self, planned: Option<Planned>) {
        let mut state = self.state();
        (state.seen, state.plan) = (Vec::new(), Plan::new(planned.into_iter().collect()));
    }

    /// An operation is over. Returns its points, and whether the kill has happened.
    pub fn end(&self) -> (Vec<String>, bool) {
        let mut state = self.state();
        let plan = std::mem::take(&mut state.plan);
        (std::mem::take(&mut state.seen), plan.happened() > 0)
    }

    /// Returns true if no kill is to come.
    pub fn is_calm(&self) -> bool {
        self.state().plan.is_over()
    }

    /// Which copy a node has.
    pub fn end_of(&self, node: usize) -> End {
        self.state().ends[node]
    }

    /// The point of this name is met. Returns who was killed there.
    pub async fn meet(&self, label: &str, moment: Moment) -> Option<Party> {
        let party = {
            let mut state = self.state();
            if moment == Moment::Before && !state.seen.iter().any(|seen| seen == label) {
                state.seen.push(label.to_owned());
            }
            state.judge.note(format!("{moment:?} {label}"));
            // While a command runs, what is seen of two nodes may not be of one moment.
            if state.doing == 0 {
                state.judge.check(label);
            }
            // Programs are killed, and nothing else is planned.
            let Some(Fault::Dies(party)) = state.plan.meet(label, moment).pop() else {
                return None;
            };
            state.judge.note(format!("-- {party} is killed"));
            party
        };
        let (done, killed) = oneshot::channel();
        // Whoever kills may be gone, at the end.
        drop(self.due.send((party, done)).await);
        drop(killed.await);
        Some(party)
    }

    /// A command begins to change a node.
    pub fn does(self: &Arc<Self>) -> Doing {
        self.state().doing += 1;
        Doing(Arc::clone(self))
    }
}

/// A command changes a node until this is dropped.
pub struct Doing(Arc<Points>);

impl Drop for Doing {
    fn drop(&mut self) {
        self.0.state().doing -= 1;
    }
}

/// A text without what differs between two runs.
pub fn normal(text: &str) -> String {
    let piece = |piece: &str| match uuid::Uuid::try_parse(piece).is_ok() || piece.len() > 60 {
        true => "*".to_owned(),
        false => piece.to_owned(),
    };
    let mut all = String::new();
    for word in text.split_inclusive([' ', '/', '@', '=', '?', '&']) {
        let end = word.trim_end_matches([' ', '/', '@', '=', '?', '&']).len();
        let (own, divider) = word.split_at(end);
        all += &piece(own);
        all += divider;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_uuids_and_no_tokens() {
        let text = "zfs snapshot zones/0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11/data@vm-migration-1";
        assert_eq!(normal(text), "zfs snapshot zones/*/data@vm-migration-1");
        let token = "f".repeat(80);
        assert_eq!(normal(&format!("zfs send -t {token}")), "zfs send -t *");
    }
}
