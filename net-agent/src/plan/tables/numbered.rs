// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The numbered requirements (R) of RFD 58, races and defects (D) of the prototype that the plan
//! alone can show. The others have their number beside the test of the loops that shows them.

use sdc_clients::napi::NicState;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::case::{CN, Case, NOW, alive, at, gone, mac, nic, policy, view};
use crate::holds::Hold;
use crate::plan::reap::{Basis, Facts, Ruling, Source, judge};
use crate::plan::verdict::Verdict;
use crate::view::LocalView;

fn with(over: serde_json::Value, change: impl FnOnce(&mut Case)) -> String {
    let mut case = Case::new(over);
    change(&mut case);
    case.says()
}

/// VM `gone` is here.
fn here(state: &str, hidden: bool) -> LocalView {
    view(json!([{"uuid": "gone", "state": state, "do_not_inventory": hidden, "owner_uuid": "o",
        "nics": []}]))
}

/// VM `vm` is here with the address, and the record belongs to it.
fn own(over: serde_json::Value, state: &str, verdict: Option<Verdict>) -> String {
    let mut case = Case::new(over);
    case.nics[0].belongs_to_uuid = "vm".into();
    case.local = view(json!([{"uuid": "vm", "state": state, "owner_uuid": "o",
        "nics": [{"mac": mac(1)}]}]));
    case.verdict = None;
    let says = case.plan_with("vm", verdict);
    says.decisions.iter().find(|d| d.mac == mac(1)).unwrap().action.name().to_owned()
}

/// What the guards say about a fresh copy.
fn fresh(over: serde_json::Value, basis: Basis, etag: Option<&str>) -> String {
    let local = view(json!([{"uuid": "other", "state": "running", "nics": []}]));
    let policy = policy();
    let facts = Facts {
        local: &local,
        own: &[mac(200)].into(),
        now: Some(Timestamp::from_second(NOW).unwrap()),
        verdict: Some(&gone("destroyed")),
        hold: None,
        basis,
        source: Source::Fresh(etag),
        policy: &policy,
    };
    match judge(&nic(1, over), &facts).ruling {
        Ruling::Delete => "delete",
        Ruling::AskVmapi => "ask-vmapi",
        Ruling::Defer => "defer",
        Ruling::Keep => "keep",
    }
    .to_owned()
}

fn own_nic(over: serde_json::Value) -> String {
    let mut case = Case::new(over);
    case.nics[0].mac = mac(200);
    case.plan().decisions[0].action.name().to_owned()
}

/// Each case: its number, the action that must follow, and the one that does.
fn cases() -> Vec<(&'static str, &'static str, String)> {
    let booter = json!({"belongs_to_type": "other", "belongs_to_uuid": "admin",
        "state": "provisioning", "cn_uuid": null});
    let provisioning = || json!({"state": "provisioning"});
    let young = || {
        json!({"state": "provisioning", "created_timestamp": at(-60),
            "modified_timestamp": at(-60)})
    };
    let unlisted = || {
        let mut case = Case::new(json!({}));
        case.nics.clear();
        case.local = view(json!([{"uuid": "vm", "state": "running", "nics": [{"mac": mac(1)}]}]));
        case.says()
    };
    let is = |local: LocalView| with(json!({}), |c| c.local = local);
    let vmapi = |over, verdict| with(over, |c| c.verdict = Some(verdict));
    let held = with(json!({}), |c| {
        let since = Timestamp::from_second(NOW).unwrap();
        c.holds.holds.push(Hold {
            vm: None,
            reason: "move".into(),
            by: "bob".into(),
            since,
            until: None,
        });
    });
    let back = with(json!({}), |c| {
        (c.local, c.verdict) = (here("running", true), Some(alive("running", Some(CN))));
    });
    let lately_hidden = with(json!({}), |c| {
        c.local.lately_hidden.insert("gone".into());
    });
    let empty = with(json!({}), |c| {
        (c.local, c.verdict) = (view(json!([])), Some(Verdict::Unknown));
    });
    let elsewhere = || alive("running", Some("elsewhere"));
    let b = || json!({"cn_uuid": "b"});
    vec![
        ("R6", "delete", with(json!({}), |_| ())),
        ("R7", "keep", is(here("running", false))),
        ("R8", "look", unlisted()),
        ("R10", "write", own(provisioning(), "running", None)),
        ("R11", "write", own_nic(booter)),
        (
            "R12",
            "delete",
            fresh(json!({"modified_timestamp": at(-1)}), Basis::Witnessed, Some("E")),
        ),
        ("R15", "defer", held),
        ("R16", "keep", is(here("running", true))),
        ("race 1", "keep", is(here("stopped", true))),
        ("race 2", "keep", back),
        ("race 3", "keep", vmapi(json!({}), elsewhere())),
        ("race 4", "keep", vmapi(json!({"state": "stopped"}), elsewhere())),
        ("race 5", "defer", lately_hidden),
        ("race 6", "write", own(b(), "running", Some(alive("running", Some(CN))))),
        ("race 7", "ask-vmapi", own(b(), "running", None)),
        ("race 8", "keep", with(b(), |_| ())),
        ("race 9", "defer", vmapi(young(), alive("provisioning", Some(CN)))),
        ("race 10", "delete", vmapi(provisioning(), gone("failed"))),
        ("race 11", "keep", is(here("running", false))),
        ("race 17", "defer", with(json!({}), |c| c.local.listed = false)),
        ("race 18", "defer", with(json!({}), |c| c.first_look = None)),
        ("race 25, G9", "defer", fresh(json!({}), Basis::Witnessed, None)),
        ("race 30", "write", own(json!({}), "stopped", None)),
        ("race 32", "keep", is(here("failed", false))),
        ("race 33", "keep", own(json!({}), "running", None)),
        ("D1", "look", unlisted()),
        ("D3", "keep", is(here("running", true))),
        ("D4", "defer", fresh(json!({}), Basis::pass(Some(Duration::from_secs(1))), Some(""))),
        ("D5", "defer", with(young(), |_| ())),
        ("D9", "defer", empty),
        ("D10", "delete", with(json!({"state": NicState::Stopped.as_str()}), |_| ())),
    ]
}

#[test]
fn numbered_cases_hold() {
    for (number, want, found) in cases() {
        assert_eq!(found, want, "{number}");
    }
}
