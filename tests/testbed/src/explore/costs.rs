// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What switches cost that failed behind the stop: seconds that the VM was down beside the stop and the last stream, where
//! that was done well (M258).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use migration_service::runner::TERM;

use super::points::{Fault, Party, Planned};
use crate::moving::operator::Story;

/// The second try and the undo together.
const UNDO: Duration = Duration::from_secs(30);
/// What one bar of the histogram has.
const BAR: u64 = 5;

/// Which of its peers a switch could rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peers {
    /// Both agents and their vminfods answered.
    Answer,
    /// The service died, or stood still: the other one goes on when the lease is over.
    Service,
    /// An agent, a vminfod or a node was away, or the store was lost: the VM waits for it.
    Away,
}

impl Peers {
    /// Returns what those of a story with these faults did. A pair of faults is as bad as its worse one.
    pub fn of(story: Story, planned: &[Planned]) -> Peers {
        let of = |fault: Fault| match fault {
            Fault::Loses
            | Fault::Late
            | Fault::Fails
            | Fault::Lasts
            | Fault::Hollow
            | Fault::Hand => Peers::Answer,
            Fault::Dies(Party::Service(_)) | Fault::Stops(Party::Service(_)) => Peers::Service,
            _ => Peers::Away,
        };
        let takes_one_away = |story: Story| {
            let stories =
                [Story::SourceDead, Story::CutOff, Story::Unwell, Story::Hasty, Story::Deleted];
            stories.contains(&story)
        };
        if takes_one_away(story) {
            return Peers::Away;
        }
        planned.iter().map(|it| of(it.fault)).max().unwrap_or(Peers::Answer)
    }

    /// Returns the most that a failed switch may cost.
    pub fn most(self) -> Option<Duration> {
        match self {
            Peers::Answer => Some(UNDO),
            Peers::Service => Some(UNDO + TERM),
            Peers::Away => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Peers::Answer => "agents and vminfods answer",
            Peers::Service => "the service dies or stops",
            Peers::Away => "an agent, a vminfod or a node is away, or the store lost",
        }
    }
}

/// The costs of many runs.
#[derive(Default)]
pub struct Costs(BTreeMap<Peers, Vec<Duration>>);

impl Costs {
    /// Counts those of a run.
    pub fn add(&mut self, peers: Peers, costs: &[Duration]) {
        self.0.entry(peers).or_default().extend(costs);
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "failed switches, by the seconds that the VM was down beside the stop and the last stream:"
        )?;
        for (peers, costs) in &self.0 {
            let mut bars: BTreeMap<u64, usize> = BTreeMap::new();
            for cost in costs {
                *bars.entry(cost.as_secs() / BAR).or_default() += 1;
            }
            let bars =
                bars.iter().map(|(bar, n)| format!("{}-{} s: {n}", bar * BAR, (bar + 1) * BAR));
            let longest = costs.iter().max().copied().unwrap_or_default().as_secs_f64();
            let most =
                peers.most().map(|most| format!(" of {}", most.as_secs())).unwrap_or_default();
            let (name, bars) = (peers.name(), bars.collect::<Vec<_>>().join(", "));
            writeln!(f, "  {name}: {}; {bars}; longest {longest:.1} s{most}", costs.len())?;
        }
        Ok(())
    }
}
