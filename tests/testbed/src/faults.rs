// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Faults at points, for every runner that has some. A runner numbers or names its points: each request, command, event
//! and write to a store is one. At each of them it asks the [`Plan`] what is to happen there, and does that: in process
//! and in simulated time (`explore`, `sim`, `volapi`), or to real programs (`kills`). The same plan gives the same run.

use std::fmt;

use migration_core::intent::End;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// migration-service; there are two.
    Service(u8),
    /// The migration-agent of a node.
    Agent(End),
    /// The vminfod of a node.
    Vminfod(End),
    /// The net-agent of a node.
    NetAgent(End),
    /// The vm-agent of a node.
    VmAgent(End),
}

impl Party {
    /// The node that it runs on.
    pub fn end(self) -> Option<End> {
        match self {
            Party::Service(_) => None,
            Party::Agent(end)
            | Party::Vminfod(end)
            | Party::NetAgent(end)
            | Party::VmAgent(end) => Some(end),
        }
    }

    /// All that run on a node.
    pub fn of_node(end: End) -> [Party; 4] {
        [Party::Agent(end), Party::Vminfod(end), Party::NetAgent(end), Party::VmAgent(end)]
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Service(nth) => write!(f, "service {nth}"),
            Party::Agent(end) => write!(f, "{end} agent"),
            Party::Vminfod(end) => write!(f, "{end} vminfod"),
            Party::NetAgent(end) => write!(f, "{end} net-agent"),
            Party::VmAgent(end) => write!(f, "{end} vm-agent"),
        }
    }
}

/// Where in a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    Before,
    After,
}

/// What can happen at a point. Each runner plans those that it can do: the list of its cases has them, and `P` is who
/// takes part in it. The explorer takes its samples by how these are written: what there is keeps its name and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault<P = Party> {
    /// It dies, as with kill -9, and is started again later. Before: what is asked is never done. After: it is done,
    /// and the answer is never heard.
    Dies(P),
    /// It stops, as with SIGSTOP, and goes on much later.
    Stops(P),
    /// Before: what is asked does not arrive. After: the answer does not.
    Loses,
    /// What is asked is done when whoever asked has long given up, or is dead.
    Late,
    /// The node reboots.
    Reboots(End),
    /// The network loses the node for minutes; it runs on.
    Cut(End),
    /// Both services start again with an empty store.
    Empty,
    /// They start again with the store as it was before so many writes.
    Older(usize),
    /// It is away until the run has it back. Before: from here on. After: it does what is asked, and does not answer.
    Away(P),
    /// A read is answered from before the last change.
    Stale,
    /// What is asked is refused, and so is the same again, for minutes.
    Fails,
    /// Somebody boots the copy that is hidden, with `vmadm start`.
    Hand,
    /// What an event tells is never seen alone: the next thing that is heard of the node is what the step after it has
    /// made of it.
    Unseen,
    /// What is asked is refused, and so is the same again, until nothing of the migration runs any more.
    Lasts,
    /// What is asked is said to be done, and changes nothing, for as long.
    Hollow,
}

impl<P: fmt::Display> fmt::Display for Fault<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Dies(party) => write!(f, "{party} dies"),
            Fault::Stops(party) => write!(f, "{party} stops"),
            Fault::Loses => f.write_str("it is lost"),
            Fault::Late => f.write_str("it is late"),
            Fault::Reboots(end) => write!(f, "{end} reboots"),
            Fault::Cut(end) => write!(f, "{end} is cut off"),
            Fault::Empty => f.write_str("the store is lost"),
            Fault::Older(writes) => write!(f, "the store is as it was before {writes} writes"),
            Fault::Away(party) => write!(f, "{party} is away"),
            Fault::Fails => f.write_str("it fails again and again"),
            Fault::Hand => f.write_str("a hand boots the hidden copy"),
            Fault::Stale => f.write_str("it is answered from the past"),
            Fault::Unseen => f.write_str("it is not seen"),
            Fault::Lasts => f.write_str("it fails until all rests"),
            Fault::Hollow => f.write_str("it is said to be done, and is not"),
        }
    }
}

/// A fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned<P, F> {
    /// The point.
    pub at: P,
    /// Before or after it.
    pub moment: Moment,
    pub fault: F,
}

/// What is still to happen in a run, and how much has.
#[derive(Debug)]
pub struct Plan<P, F> {
    left: Vec<Planned<P, F>>,
    happened: usize,
}

impl<P, F> Default for Plan<P, F> {
    fn default() -> Self {
        Plan::new(Vec::new())
    }
}

impl<P, F> Plan<P, F> {
    /// These faults are to happen, each once.
    pub fn new(left: Vec<Planned<P, F>>) -> Self {
        Plan { left, happened: 0 }
    }

    /// Returns what is to happen at a point, in the order of the plan; it is over then.
    pub fn meet<Q: ?Sized>(&mut self, at: &Q, moment: Moment) -> Vec<F>
    where
        P: PartialEq<Q>,
    {
        let met = self.left.extract_if(.., |it| it.at == *at && it.moment == moment);
        let met: Vec<F> = met.map(|it| it.fault).collect();
        self.happened += met.len();
        met
    }

    /// Returns true if such a fault is still to happen.
    pub fn has(&self, is_it: impl Fn(&Planned<P, F>) -> bool) -> bool {
        self.left.iter().any(is_it)
    }

    /// Returns true if nothing is to happen any more.
    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns how many faults have happened.
    pub fn happened(&self) -> usize {
        self.happened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_happens_once_at_its_point() {
        let planned = |at: &str, moment, fault| Planned { at: at.to_owned(), moment, fault };
        let mut plan = Plan::new(vec![
            planned("a", Moment::After, 1),
            planned("b", Moment::Before, 2),
            planned("a", Moment::After, 3),
        ]);
        assert!(plan.meet("a", Moment::Before).is_empty() && plan.happened() == 0);
        assert_eq!(plan.meet("a", Moment::After), [1, 3]);
        assert!(plan.meet("a", Moment::After).is_empty());
        assert!(plan.has(|it| it.fault == 2) && !plan.has(|it| it.fault == 1));
        assert_eq!((plan.meet("b", Moment::Before), plan.is_over()), (vec![2], true));
        assert_eq!(plan.happened(), 3);
    }
}
