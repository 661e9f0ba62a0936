// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which kills happen, by seed: points of the same operation of a run without kills, each once, in an order that is
//! drawn.

use std::collections::BTreeMap;

use migration_core::intent::End;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::points::Planned;
use crate::faults::{Fault, Moment, Party};
use crate::moving::operator::Story;

/// An operation: its story, and its place in it.
type Place = (Story, usize);

/// Killed before its order to create the target goes out, a service waits for a quarter of an hour (CN10): time passes
/// so fast only where it is paused, in `migrate-explore`.
fn takes_a_quarter(planned: &Planned) -> bool {
    let ordered = "migration-service asks CNAPI POST /servers/*/vms";
    planned.at == ordered
        && planned.moment == Moment::Before
        && planned.fault == Fault::Dies(Party::Service(1))
}

/// What is left to be chosen from.
pub struct Choice {
    rng: StdRng,
    left: BTreeMap<Place, Vec<Planned>>,
}

impl Choice {
    /// Nothing is known yet.
    pub fn new(seed: u64) -> Choice {
        Choice { rng: StdRng::seed_from_u64(seed), left: BTreeMap::new() }
    }

    /// These are the points of an operation without kills.
    pub fn know(&mut self, place: Place, labels: &[String]) {
        let parties = [Party::Service(1), Party::Agent(End::Source), Party::Agent(End::Target)];
        let mut all = Vec::new();
        for label in labels {
            for moment in [Moment::Before, Moment::After] {
                let planned = |fault| Planned { at: label.clone(), moment, fault };
                all.extend(parties.map(Fault::Dies).map(planned));
            }
        }
        all.retain(|planned| !takes_a_quarter(planned));
        all.shuffle(&mut self.rng);
        self.left.insert(place, all);
    }

    /// Chooses a kill for an operation; mostly of who acts at the point.
    pub fn take(&mut self, place: Place) -> Option<Planned> {
        let left = self.left.get_mut(&place)?;
        let acts = |planned: &Planned| match planned.fault {
            Fault::Dies(Party::Agent(end)) => planned.at.contains(&end.to_string()),
            _ => planned.at.starts_with("migration-service"),
        };
        let wants_actor = self.rng.random_range(0..4) > 0;
        let at = left.iter().rposition(|planned| acts(planned) == wants_actor);
        let at = at.or(left.len().checked_sub(1))?;
        Some(left.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kill_is_chosen_whose_end_takes_a_quarter_of_an_hour() {
        let (mut choice, place) = (Choice::new(7), (Story::Abort, 0));
        choice.know(place, &["migration-service asks CNAPI POST /servers/*/vms".to_owned()]);
        let drawn = std::iter::from_fn(|| choice.take(place)).collect::<Vec<_>>();
        assert_eq!(drawn.len(), 5, "{drawn:?}");
        let service = |planned: &&Planned| planned.fault == Fault::Dies(Party::Service(1));
        assert!(drawn.iter().filter(service).all(|planned| planned.moment == Moment::After));
    }

    #[test]
    fn each_kill_is_chosen_once_and_in_the_same_order_for_the_same_seed() {
        let labels = ["source vmadm stop *".to_owned(), "migration-service asks VMAPI".to_owned()];
        let all = |seed| {
            let (mut choice, place) = (Choice::new(seed), (Story::Finalize, 2));
            choice.know(place, &labels);
            assert_eq!(choice.take((Story::Finalize, 1)), None, "of another operation");
            std::iter::from_fn(|| choice.take(place)).collect::<Vec<_>>()
        };
        let mut drawn = all(7);
        assert_eq!(drawn, all(7));
        assert_ne!(drawn, all(8));
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 12);
    }
}
