// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each guard alone stops a delete, and the brake stops them together.

use jiff::Timestamp;
use serde_json::json;

use super::case::{CN, Case, NOW, alive, at, gone, gone_from, mac, nic, view};
use crate::holds::{Hold, Holds};
use crate::plan::decision::Action;
use crate::plan::verdict::Verdict;

const TARGET: &str = "b829c448-085b-4138-adbc-583ac96881c3";

fn with(over: serde_json::Value, change: impl FnOnce(&mut Case)) -> String {
    let mut case = Case::new(over);
    change(&mut case);
    case.says()
}

#[test]
fn each_guard_alone_stops_a_delete() {
    let same = |over| with(over, |_| ());
    let node = |vms| with(json!({}), |c| c.local = view(vms));
    let vmapi = |verdict| with(json!({}), |c| c.verdict = verdict);
    let looked = |first| with(json!({}), |c| c.first_look = first);
    let alone = |over| with(over, |c| (c.policy.ask_vmapi, c.verdict) = (false, None));
    let unheard = |change: fn(&mut Case)| {
        with(json!({}), |c| {
            c.verdict = Some(Verdict::Unknown);
            change(c);
        })
    };
    let (provisioning, epoch) = (json!({"state": "provisioning"}), "1970-01-01T00:00:00.000Z");
    let young = json!({"state": "provisioning", "created_timestamp": at(-7000),
        "modified_timestamp": at(-7000)});
    let capitals = with(json!({"belongs_to_uuid": TARGET.to_uppercase()}), |c| {
        c.local = view(json!([{"uuid": TARGET, "zonename": "z"}]));
    });
    let held = with(json!({}), |c| {
        let since = Timestamp::from_second(NOW).unwrap();
        let hold = Hold { vm: None, reason: "work".into(), by: "bob".into(), since, until: None };
        c.holds = Holds { holds: vec![hold] };
    });
    let unborn = with(provisioning.clone(), |c| c.verdict = Some(Verdict::Unknown));
    for (row, want, found) in [
        ("R6: leaked", "delete", same(json!({}))),
        ("G1 server", "keep", same(json!({"belongs_to_type": "server"}))),
        ("G1 other", "keep", same(json!({"belongs_to_type": "other"}))),
        ("G1 unknown word", "keep", same(json!({"belongs_to_type": "pod"}))),
        ("G1 the node itself", "keep", same(json!({"belongs_to_uuid": CN}))),
        ("G2 in capitals", "delete", same(json!({"cn_uuid": CN.to_uppercase()}))),
        ("G3 in capitals", "keep", capitals),
        ("G2 absent", "keep", same(json!({"cn_uuid": null}))),
        ("G2 foreign, race 3", "keep", same(json!({"cn_uuid": "elsewhere"}))),
        ("R7, G3, race 32", "keep", node(json!([{"uuid": "gone", "state": "failed"}]))),
        // Hidden counts as present.
        ("D3, R16, race 1", "keep", node(json!([{"uuid": "gone", "do_not_inventory": true}]))),
        ("G3 zone name", "keep", node(json!([{"uuid": "x", "zonename": "gone"}]))),
        // The VM is here, the NIC not yet in it.
        ("race 11", "keep", node(json!([{"uuid": "gone", "state": "running", "nics": []}]))),
        ("G4 the node itself", "keep", with(json!({}), |c| c.nics[0].mac = mac(200))),
        ("G4 other VM", "keep", node(json!([{"uuid": "new", "nics": [{"mac": mac(1)}]}]))),
        ("race 17", "defer", with(json!({}), |c| c.local.listed = false)),
        ("D5, race 9, G5 young", "defer", same(young)),
        ("race 10, G5 old and destroyed", "delete", same(provisioning.clone())),
        ("G5 provisioning, VMAPI 404", "keep", unborn),
        ("G5 unknown state", "keep", same(json!({"state": "paused"}))),
        ("G6 young", "defer", same(json!({"modified_timestamp": at(-899)}))),
        ("G6 just old enough", "delete", same(json!({"modified_timestamp": at(-900)}))),
        (
            "G6 epoch counts as old",
            "delete",
            same(json!({"created_timestamp": epoch, "modified_timestamp": epoch})),
        ),
        (
            "G6 no timestamps",
            "defer",
            same(json!({"created_timestamp": null, "modified_timestamp": null})),
        ),
        ("G6 from the future", "defer", same(json!({"modified_timestamp": at(60)}))),
        ("G7 first look, race 18", "defer", looked(None)),
        ("G7 too soon", "defer", looked(Some(941))),
        ("G8 not asked", "ask-vmapi", vmapi(None)),
        ("G8 failed", "delete", vmapi(Some(gone("failed")))),
        ("G8 destroyed elsewhere", "keep", vmapi(Some(gone_from("destroyed", Some("elsewhere"))))),
        ("G8 failed elsewhere", "keep", vmapi(Some(gone_from("failed", Some("elsewhere"))))),
        ("G8 destroyed nowhere", "delete", vmapi(Some(gone_from("destroyed", None)))),
        ("G8 404", "delete", vmapi(Some(Verdict::Unknown))),
        ("races 3 4", "keep", vmapi(Some(alive("running", Some("elsewhere"))))),
        ("G8 still here", "defer", vmapi(Some(alive("running", Some(CN))))),
        ("G8 unknown word", "defer", vmapi(Some(alive("rebooting", Some(CN))))),
        ("G8 placed nowhere", "defer", vmapi(Some(alive("provisioning", None)))),
        ("G8 down", "defer", vmapi(Some(Verdict::NoAnswer("503".into())))),
        ("no VMAPI by choice", "delete", alone(json!({}))),
        ("no VMAPI, provisioning", "keep", alone(provisioning)),
        ("hold", "defer", held),
        ("D9: empty view, confirmed", "delete", node(json!([]))),
        ("D9, G10: a 404 confirms nothing", "defer", unheard(|c| c.local = view(json!([])))),
        ("G10: halved view", "defer", unheard(|c| c.reference = Some((3, 1)))),
        ("G10: the hour's deletes count", "defer", unheard(|c| c.recent = 5)),
    ] {
        assert_eq!(found, want, "{row}");
    }
}

#[test]
fn brake_stops_six_unconfirmed_deletes() {
    let deletes = |count: u8, verdict: Verdict| {
        let mut case = Case::new(json!({}));
        case.nics = (1..=count).map(|n| nic(n, json!({}))).collect();
        case.verdict = Some(verdict);
        case.plan().of(Action::Delete).count()
    };
    assert_eq!(deletes(5, Verdict::Unknown), 5);
    assert_eq!(deletes(6, Verdict::Unknown), 0);
    assert_eq!(deletes(60, gone("destroyed")), 60);
}

/// Plans sixty records that VMAPI has confirmed beside some about which it has not answered.
fn sixty(others: u8, reference: Option<(usize, usize)>) -> (usize, Option<String>) {
    let mut case = Case::new(json!({}));
    let others = (61..61 + others).map(|n| nic(n, json!({"belongs_to_uuid": "not-answered"})));
    case.nics = (1..=60).map(|n| nic(n, json!({}))).chain(others).collect();
    case.reference = reference;
    let plan = case.plan();
    (plan.of(Action::Delete).count(), plan.brake.map(|why| why.to_string()))
}

#[test] // F68
fn vmapis_word_lifts_no_brake_below_90_percent_of_the_reference_view() {
    for (reference, deletes) in
        [(Some((10, 10)), 60), (Some((10, 9)), 60), (Some((10, 8)), 0), (None, 0)]
    {
        let (found, brake) = sixty(0, reference);
        assert_eq!((found, brake.is_some()), (deletes, deletes == 0), "{reference:?}");
    }
    let brake = sixty(0, Some((10, 8))).1.unwrap();
    assert!(brake.contains("60 candidates") && brake.contains("8 of the 10 VMs"), "{brake}");
}

#[test] // G10
fn undecided_candidates_hold_back_no_confirmed_one() {
    for others in [1, 6, 60] {
        assert_eq!(sixty(others, Some((10, 10))).0, 60, "{others}");
    }
}
