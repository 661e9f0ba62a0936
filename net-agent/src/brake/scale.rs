// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When the brake is on: too many deletes, or a node that shows suspiciously little. VMAPI's word
//! exempts a record only while nearly all VMs of the reference view are here: VMAPI hears
//! "destroyed" from this node, so it is no second witness of a node that shows less. Waiting alone
//! never takes the brake off. Pure.

use daemon::brake::{LITTLE, Reference, Shrunk, allowance};

/// What the brake measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Records that look leaked as far as the node can tell (G1–G4).
    pub candidates: usize,
    /// How many of these VMAPI has confirmed.
    pub confirmed: usize,
    /// The deletes of the last hour; none if unknown, after the state file was damaged.
    pub recent: Option<Recent>,
    /// Zone records with this `cn_uuid` in NAPI's list.
    pub listed: usize,
    /// The VMs that these belong to.
    pub listed_vms: usize,
    pub local_vms: usize,
    /// The reference view, if there is one, and if the view that is measured is complete.
    pub reference: Option<Reference>,
    /// What the node had: the VMs of the reference view, and those that were seen since.
    pub had: Reference,
    /// What is here, and what left in the last day.
    pub day: Reference,
}

/// Deletes of the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Those that were not exempted.
    pub counted: usize,
    /// Those that went because VMAPI had confirmed them.
    pub exempted: usize,
}

/// Why a delete passes the brake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clearance {
    /// All of them together are few enough.
    #[default]
    Few,
    /// VMAPI has confirmed it: it goes, at a pace.
    Exempted,
    /// The operator approved it.
    Approved,
}

/// Why the brake is on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Tripped {
    #[error("the node shows no VM while NAPI has {nics} NICs of it")]
    NoVms { nics: usize },
    #[error(transparent)]
    Shrunk(#[from] Shrunk),
    #[error("the number of deletes in the last hour is unknown")]
    RecentUnknown,
    #[error("{candidates} candidates and {recent} deletes in the last hour are above {allowance}")]
    TooMany { candidates: usize, recent: usize, allowance: usize },
    /// VMAPI confirmed the record, and that is not enough.
    #[error("{why}; {}VMAPI's answer alone does not release it", because(.why, *.reference))]
    NoSecondWitness { why: Box<Tripped>, reference: Option<Reference> },
    #[error("the node shows less than when the pass was measured")]
    Fell,
    /// NAPI seems to have lost its records.
    #[error("NAPI has no record of {missing} of the {here} NICs here")]
    EmptyList {
        /// MACs that NAPI does not know.
        missing: usize,
        here: usize,
    },
    /// The record changed after its approval, or the approval ran out.
    #[error("the record is not what was approved, or the approval ran out")]
    NotApproved,
    /// One of the above for a whole pass.
    #[error("{why}; it blocks {blocked}")]
    Blocks {
        why: Box<Tripped>,
        /// How many records it blocks.
        blocked: usize,
    },
}

fn because(why: &Tripped, reference: Option<Reference>) -> String {
    match (why, reference) {
        // It says itself what the node had.
        (Tripped::Shrunk(_), _) => String::new(),
        (_, None) => "what the node had before is not known, so ".to_owned(),
        (_, Some(Reference { vms, here })) => {
            format!("{here} of the {vms} VMs that the node had are here, so ")
        }
    }
}

impl Scale {
    /// Returns how many deletes are allowed in an hour that VMAPI's word does not exempt.
    pub fn allowance(&self) -> usize {
        allowance(self.listed)
    }

    /// Returns true if VMAPI's word counts: most VMs of the reference view are here, and the view is no reason to
    /// stop. The reference view follows the node, also where it shrinks slowly; the day does not.
    pub fn exempts(&self) -> bool {
        self.reference.is_some_and(Reference::is_most) && self.too_little(true).is_none()
    }

    /// Decides whether a delete passes; `confirmed` if VMAPI has confirmed it.
    pub fn clear(&self, confirmed: bool) -> Result<Clearance, Tripped> {
        let exempts = self.exempts();
        let why = match self.measured(confirmed, exempts && !confirmed) {
            Ok(()) => return Ok(Clearance::Few),
            Err(_) if confirmed && exempts => return Ok(Clearance::Exempted),
            Err(why) => why,
        };
        Err(if confirmed { self.no_second_witness(why) } else { why })
    }

    /// Returns why the view alone is a reason to stop, if it is.
    pub fn too_little(&self, confirmed: bool) -> Option<Tripped> {
        // VMAPI's word is enough where there is little to lose. Elsewhere it may only repeat this node's.
        let is_trusted = |vms: usize| confirmed && vms <= LITTLE;
        if self.local_vms == 0 && !is_trusted(self.listed_vms) {
            return Some(Tripped::NoVms { nics: self.listed.max(self.candidates) });
        }
        let shrunk = [self.had, self.day].into_iter().filter_map(Reference::shrunk);
        shrunk.into_iter().find(|shrunk| !is_trusted(shrunk.most)).map(Tripped::Shrunk)
    }

    /// Says that VMAPI's word does not help against this.
    pub fn no_second_witness(&self, why: Tripped) -> Tripped {
        Tripped::NoSecondWitness { why: Box::new(why), reference: self.reference }
    }

    fn measured(&self, confirmed: bool, others_are_exempt: bool) -> Result<(), Tripped> {
        if let Some(why) = self.too_little(confirmed) {
            return Err(why);
        }
        let Some(Recent { counted, exempted }) = self.recent else {
            return Err(Tripped::RecentUnknown);
        };
        let (candidates, recent) = if others_are_exempt {
            (self.candidates.saturating_sub(self.confirmed), counted)
        } else {
            (self.candidates, counted + exempted)
        };
        let allowance = self.allowance();
        if candidates.saturating_add(recent) > allowance {
            return Err(Tripped::TooMany { candidates, recent, allowance });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm() -> Scale {
        Scale {
            candidates: 1,
            recent: Some(Recent::default()),
            listed: 30,
            listed_vms: 10,
            local_vms: 10,
            reference: Some(Reference { vms: 10, here: 10 }),
            ..Scale::default()
        }
    }

    fn had(vms: usize, here: usize) -> Reference {
        Reference { vms, here }
    }

    fn recent(counted: usize, exempted: usize) -> Option<Recent> {
        Some(Recent { counted, exempted })
    }

    #[test] // G10
    fn unconfirmed_deletes_trip_at_the_documented_limits() {
        let calm = calm();
        let ten = |here| Some(Reference { vms: 10, here });
        for (on, scale) in [
            (false, calm),
            (false, Scale { candidates: 5, ..calm }),
            (true, Scale { candidates: 6, ..calm }),
            (false, Scale { candidates: 60, confirmed: 55, ..calm }),
            (true, Scale { candidates: 60, confirmed: 54, ..calm }),
            (true, Scale { candidates: 60, confirmed: 55, reference: None, ..calm }),
            (true, Scale { candidates: 3, recent: recent(3, 0), ..calm }),
            (false, Scale { candidates: 3, recent: recent(2, 40), ..calm }),
            (true, Scale { candidates: 3, recent: recent(0, 3), reference: ten(8), ..calm }),
            (false, Scale { candidates: 10, listed: 100, ..calm }),
            (true, Scale { candidates: 11, listed: 100, ..calm }),
            (true, Scale { recent: None, ..calm }),
            (false, Scale { had: had(10, 5), ..calm }),
            (false, Scale { day: had(10, 5), ..calm }),
            (true, Scale { day: had(10, 4), ..calm }),
            (true, Scale { had: had(10, 4), ..calm }),
            (true, Scale { local_vms: 0, reference: None, ..calm }),
            (true, Scale { local_vms: 0, listed: 0, listed_vms: 0, reference: None, ..calm }),
        ] {
            assert_eq!(scale.clear(false).is_err(), on, "{scale:?}");
        }
    }

    #[test] // G10, F68
    fn vmapis_word_exempts_only_while_the_reference_view_is_here() {
        let calm = Scale { candidates: 60, confirmed: 60, ..calm() };
        let of = |vms, here| Some(Reference { vms, here });
        for (cleared, scale) in [
            (Some(Clearance::Exempted), calm),
            (Some(Clearance::Exempted), Scale { reference: of(10, 9), ..calm }),
            (Some(Clearance::Exempted), Scale { recent: None, ..calm }),
            (None, Scale { reference: of(10, 8), ..calm }),
            (None, Scale { reference: of(11, 9), ..calm }),
            (None, Scale { reference: of(10, 9), day: had(20, 9), ..calm }),
            (None, Scale { reference: of(10, 9), had: had(20, 9), ..calm }),
            (None, Scale { reference: None, ..calm }),
            // Few are few, unless the node lost more than half.
            (Some(Clearance::Few), Scale { candidates: 5, reference: of(10, 8), ..calm }),
            (
                Some(Clearance::Few),
                Scale { candidates: 5, reference: None, had: had(10, 5), ..calm },
            ),
            (None, Scale { candidates: 1, reference: None, had: had(10, 4), ..calm }),
            (None, Scale { candidates: 1, reference: of(3, 1), had: had(10, 4), ..calm }),
            (
                Some(Clearance::Few),
                Scale { candidates: 1, reference: of(3, 1), had: had(3, 1), ..calm },
            ),
            (None, Scale { candidates: 5, recent: recent(0, 1), reference: of(10, 8), ..calm }),
            // Nothing is here.
            (
                Some(Clearance::Few),
                Scale { candidates: 3, local_vms: 0, listed_vms: 3, reference: of(3, 0), ..calm },
            ),
            (
                None,
                Scale { candidates: 3, local_vms: 0, listed_vms: 4, reference: of(3, 0), ..calm },
            ),
            (
                None,
                Scale { candidates: 3, local_vms: 0, listed_vms: 4, reference: of(0, 0), ..calm },
            ),
        ] {
            assert_eq!(scale.clear(true).ok(), cleared, "{scale:?}");
        }
    }
}
