// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where our vminfod answers otherwise than the deployed one on purpose: one list with reasons.
//!
//! A deviation is known by what was done, not by the name a recording gives it. A case that it
//! covers and that does not deviate is a failure, as is a case that deviates further than it says.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::asked::Asked;
use super::step::{Rule, Step};
use super::tally::Tally;

/// At most this many cases of one recording may deviate.
const MOST: usize = 6;

/// One way of being better than what was recorded.
struct Deviation {
    reason: &'static str,
    covers: fn(&Case<'_>) -> bool,
    /// What must hold nevertheless.
    holds: fn(&Case<'_>) -> bool,
}

/// A case that differs from the recording, or might.
enum Case<'a> {
    Step { step: &'a Step<'a>, written: &'a [Value] },
    Asked(&'a Asked),
}

const ON_PURPOSE: [Deviation; 5] = [
    Deviation {
        reason: "a change of sysinfo reaches every VM object at once, not with its next event",
        covers: |case| matches!(case, Case::Step { step, written } if tells_sysinfo(step, written)),
        holds: |case| matches!(case, Case::Step { step, .. } if sysinfo_is_all(step)),
    },
    Deviation {
        reason: "a zone's XML that cannot be read keeps the last good object",
        covers: |case| matches!(case, Case::Step { step, .. } if breaks_xml(step)),
        holds: |case| matches!(case, Case::Step { step, .. } if step.got.is_empty()),
    },
    Deviation {
        reason: "signals of one VM within 10 ms make one event with all its changes",
        covers: |case| matches!(case, Case::Step { step, .. } if is_folded(step)),
        holds: |case| matches!(case, Case::Step { step, .. } if step.differing_result().is_none()),
    },
    Deviation {
        reason: "routes of ours answer: /data as RFD 39 has it, /sysinfo, /metrics, /ready",
        covers: |case| matches!(case, Case::Asked(asked) if asked.is_our_route()),
        holds: |case| matches!(case, Case::Asked(asked) if asked.status == Some(200)),
    },
    Deviation {
        reason: "a foreign Host or Origin is refused, so that no web page reaches the port",
        covers: |case| matches!(case, Case::Asked(asked) if asked.is_foreign()),
        holds: |case| matches!(case, Case::Asked(asked) if asked.status == Some(403)),
    },
];

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Equal,
    /// Otherwise, for this reason.
    OnPurpose(&'static str),
    /// Otherwise, as this says.
    Differs(String),
}

impl Judged {
    /// Enters a case into a tally.
    pub(super) fn enter(&self, name: &str, tally: &mut Tally) {
        match self {
            Judged::Equal => tally.case(name, &[]),
            Judged::OnPurpose(reason) => {
                tally.notes.push(format!("deviates on purpose: {name}: {reason}"));
            }
            Judged::Differs(what) => tally.case(name, std::slice::from_ref(what)),
        }
    }
}

/// The results so far, entered in any order.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Mutex<Vec<(String, Judged)>>,
}

impl Ledger {
    /// Judges a step of a recorded scenario; `written` are the operations before it.
    pub(crate) fn judge_step(&self, step: &Step<'_>, written: &[Value]) -> Judged {
        judge(&Case::Step { step, written }, step.difference())
    }

    /// Judges an answer; `difference` is what differs from every recorded one.
    pub(crate) fn judge_answer(&self, asked: &Asked, difference: Option<String>) -> Judged {
        judge(&Case::Asked(asked), difference)
    }

    /// Enters a case.
    pub(crate) fn enter(&self, name: &str, judged: Judged) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push((name.to_owned(), judged));
    }

    /// What it comes to.
    pub(crate) fn tally(&self) -> Tally {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut tally = Tally::default();
        for (name, judged) in &entries {
            judged.enter(name, &mut tally);
        }
        let on_purpose = tally.notes.len();
        if on_purpose > MOST {
            let what = format!("FAIL {on_purpose} cases deviate on purpose, at most {MOST} may");
            tally.failures.push(what);
        }
        if entries.is_empty() {
            tally.failures.push("FAIL the recording has no cases".to_owned());
        }
        tally
    }
}

fn judge(case: &Case<'_>, difference: Option<String>) -> Judged {
    let covering = ON_PURPOSE.iter().find(|one| (one.covers)(case));
    match (covering, difference) {
        (None, None) => Judged::Equal,
        (None, Some(what)) => Judged::Differs(what),
        (Some(one), None) => Judged::Differs(format!("it deviates no more: {}", one.reason)),
        (Some(one), Some(_)) if (one.holds)(case) => Judged::OnPurpose(one.reason),
        (Some(one), Some(what)) => {
            Judged::Differs(format!("{what}\n  which is more than: {}", one.reason))
        }
    }
}

const SYSINFO: &str = "/tmp/.sysinfo.json";
/// The members of sysinfo that VM objects have, and the names they have there.
const FROM_SYSINFO: [(&str, &str); 4] = [
    ("UUID", "server_uuid"),
    ("Datacenter Name", "datacenter_name"),
    ("Live Image", "platform_buildstamp"),
    ("Headnode ID", "headnode_id"),
];

/// The step changes what objects have of sysinfo, or shows late what an earlier one changed.
fn tells_sysinfo(step: &Step<'_>, written: &[Value]) -> bool {
    let before = written.iter().rev().find_map(sysinfo_of);
    let members = |sysinfo: &Value| FROM_SYSINFO.map(|(member, _)| sysinfo.get(member).cloned());
    let now = step.ops.iter().rev().find_map(sysinfo_of);
    match (now, before) {
        (Some(now), Some(before)) => members(&now) != members(&before),
        (Some(_), None) => true,
        (None, Some(_)) => step.recorded.iter().flat_map(paths_of).any(|path| is_sysinfo(&path)),
        (None, None) => false,
    }
}

fn sysinfo_of(op: &Value) -> Option<Value> {
    (op["op"] == "write" && op["path"] == SYSINFO)
        .then(|| serde_json::from_str(op["text"].as_str()?).ok())?
}

/// Nothing but sysinfo differs: the objects are as recorded, or only sysinfo's fields changed.
fn sysinfo_is_all(step: &Step<'_>) -> bool {
    let only_sysinfo =
        || step.got.iter().flat_map(paths_of).all(|path| is_sysinfo(&path)) && !step.got.is_empty();
    step.differing_result().is_none() || (step.recorded.is_empty() && only_sysinfo())
}

fn paths_of(event: &Value) -> Vec<String> {
    let changes = event["changes"].as_array().into_iter().flatten();
    changes.filter_map(|change| Some(change["prettyPath"].as_str()?.to_owned())).collect()
}

fn is_sysinfo(path: &str) -> bool {
    FROM_SYSINFO.iter().any(|(_, field)| *field == path)
}

/// The step leaves a zone's XML that is cut off, and the deployed daemon said something about it.
fn breaks_xml(step: &Step<'_>) -> bool {
    let broken = |op: &Value| {
        let path = op["path"].as_str().unwrap_or_default();
        let text = op["text"].as_str().unwrap_or_default();
        op["op"] == "write"
            && path.starts_with("/etc/zones/")
            && path.ends_with(".xml")
            && !text.trim_end().ends_with("</zone>")
    };
    step.ops.iter().any(broken) && !step.recorded.is_empty()
}

/// The deployed daemon sent several events of one VM for signals that came together.
fn is_folded(step: &Step<'_>) -> bool {
    let zones: Vec<&Value> = step.recorded.iter().map(|event| &event["zonename"]).collect();
    let several = zones.iter().any(|zone| zones.iter().filter(|other| other == &zone).count() > 1);
    step.rule == Rule::Lines && several && step.ops.iter().all(|op| op["op"] != "sleep")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn twice() -> [Value; 2] {
        let event = |seq: u64| json!({"type": "modify", "zonename": "z", "vm": {"a": seq}, "changes": [{"prettyPath": "a"}]});
        [event(1), event(2)]
    }

    #[test]
    fn a_covered_case_that_passes_is_a_failure() {
        let (recorded, ledger) = (twice(), Ledger::default());
        let step = Step { ops: &[], recorded: &recorded, got: &recorded, rule: Rule::Lines };
        let Judged::Differs(what) = ledger.judge_step(&step, &[]) else { panic!("it passed") };
        assert!(what.contains("no more"), "{what}");
        let folded = Step { got: &recorded[1..], ..step };
        assert!(matches!(ledger.judge_step(&folded, &[]), Judged::OnPurpose(_)));
        let wrong = Step { got: &recorded[..1], ..folded };
        assert!(matches!(ledger.judge_step(&wrong, &[]), Judged::Differs(_)));
    }

    #[test]
    fn an_uncovered_case_that_deviates_is_a_failure() {
        let (recorded, ledger) = (twice(), Ledger::default());
        let step = Step { ops: &[], recorded: &recorded[..1], got: &[], rule: Rule::Lines };
        ledger.enter("one", ledger.judge_step(&step, &[]));
        ledger.enter("two", Judged::Equal);
        let tally = ledger.tally();
        assert_eq!((tally.passed, tally.failures.len()), (1, 1));
        for n in 0..7 {
            ledger.enter(&format!("more {n}"), Judged::OnPurpose("why"));
        }
        assert_eq!(ledger.tally().failures.len(), 2, "too many on purpose");
    }
}
