// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each guard alone stops a delete, and the brake stops them together.

use super::*;
use crate::holds::Hold;

#[test]
fn each_guard_alone_stops_a_delete() {
    let case = |over, change: fn(&mut Case)| {
        let mut case = Case::new(over);
        change(&mut case);
        case.says()
    };
    let same = |over| case(over, |_| ());
    for (row, want, found) in [
        ("R6: leaked", "delete", same(json!({}))),
        ("G1 server", "keep", same(json!({"belongs_to_type": "server"}))),
        ("G1 other", "keep", same(json!({"belongs_to_type": "other"}))),
        ("G1 unknown word", "keep", same(json!({"belongs_to_type": "pod"}))),
        ("G2 absent", "keep", same(json!({"cn_uuid": null}))),
        ("G2 foreign, race 3", "keep", same(json!({"cn_uuid": "elsewhere"}))),
        (
            "R7, G3 present, race 32",
            "keep",
            case(json!({}), |c| {
                c.local = view(json!([{"uuid": "gone", "state": "failed"}]));
            }),
        ),
        (
            "D3, R16, races 1 2: hidden counts as present",
            "keep",
            case(json!({}), |c| {
                c.local = view(json!([{"uuid": "gone", "do_not_inventory": true}]));
            }),
        ),
        (
            "G3 zone name",
            "keep",
            case(json!({}), |c| {
                c.local = view(json!([{"uuid": "x", "zonename": "gone"}]));
            }),
        ),
        (
            "race 11: VM here, NIC not yet in it",
            "keep",
            case(json!({}), |c| {
                c.local = view(json!([{"uuid": "gone", "state": "running", "nics": []}]));
            }),
        ),
        (
            "G4 other VM has the address",
            "keep",
            case(json!({}), |c| {
                c.local = view(json!([{"uuid": "new", "nics": [{"mac": mac(1)}]}]));
            }),
        ),
        (
            "race 17: a view that could not be read",
            "defer",
            case(json!({}), |c| {
                c.local.complete = false;
            }),
        ),
        (
            "D5, race 9, G5 young",
            "defer",
            same(json!({"state": "provisioning",
            "created_timestamp": at(-7000), "modified_timestamp": at(-7000)})),
        ),
        ("race 10, G5 old and destroyed", "delete", same(json!({"state": "provisioning"}))),
        (
            "G5 provisioning, VMAPI 404",
            "keep",
            case(json!({"state": "provisioning"}), |c| {
                c.verdict = Some(Verdict::Unknown);
            }),
        ),
        ("G5 unknown state", "keep", same(json!({"state": "paused"}))),
        ("G6 young", "defer", same(json!({"modified_timestamp": at(-899)}))),
        ("G6 just old enough", "delete", same(json!({"modified_timestamp": at(-900)}))),
        (
            "G6 epoch counts as old",
            "delete",
            same(json!({
            "created_timestamp": "1970-01-01T00:00:00.000Z",
            "modified_timestamp": "1970-01-01T00:00:00.000Z"})),
        ),
        (
            "G6 no timestamps",
            "defer",
            same(json!({
            "created_timestamp": null, "modified_timestamp": null})),
        ),
        ("G6 from the future", "defer", same(json!({"modified_timestamp": at(60)}))),
        ("G7 first look, race 18", "defer", case(json!({}), |c| c.first_look = None)),
        ("G7 too soon", "defer", case(json!({}), |c| c.first_look = Some(941))),
        ("G8 not asked", "ask-vmapi", case(json!({}), |c| c.verdict = None)),
        (
            "G8 failed",
            "delete",
            case(json!({}), |c| {
                c.verdict = Some(Verdict::of("failed", Some(CN), None));
            }),
        ),
        ("G8 404", "delete", case(json!({}), |c| c.verdict = Some(Verdict::Unknown))),
        (
            "races 3 4: placed elsewhere",
            "keep",
            case(json!({}), |c| {
                c.verdict = Some(alive("running", Some("elsewhere")));
            }),
        ),
        (
            "G8 still here",
            "defer",
            case(json!({}), |c| {
                c.verdict = Some(alive("running", Some(CN)));
            }),
        ),
        (
            "G8 unknown word counts as alive",
            "defer",
            case(json!({}), |c| {
                c.verdict = Some(alive("rebooting", Some(CN)));
            }),
        ),
        (
            "G8 placed nowhere",
            "defer",
            case(json!({}), |c| {
                c.verdict = Some(alive("provisioning", None));
            }),
        ),
        (
            "G8 down",
            "defer",
            case(json!({}), |c| {
                c.verdict = Some(Verdict::NoAnswer("503".into()));
            }),
        ),
        (
            "no VMAPI by choice",
            "delete",
            case(json!({}), |c| {
                (c.policy.ask_vmapi, c.verdict) = (false, None);
            }),
        ),
        (
            "no VMAPI, provisioning",
            "keep",
            case(json!({"state": "provisioning"}), |c| {
                (c.policy.ask_vmapi, c.verdict) = (false, None);
            }),
        ),
        (
            "hold",
            "defer",
            case(json!({}), |c| {
                let since = Timestamp::from_second(NOW).unwrap();
                let hold = Hold { vm: None, reason: "work".into(), since, until: None };
                c.holds = Holds { holds: vec![hold] };
            }),
        ),
        ("D9: empty view, confirmed", "delete", case(json!({}), |c| c.local = view(json!([])))),
        (
            "D9, G10: empty view, a 404 confirms nothing",
            "defer",
            case(json!({}), |c| {
                (c.local, c.verdict) = (view(json!([])), Some(Verdict::Unknown));
            }),
        ),
        (
            "G10: halved view",
            "defer",
            case(json!({}), |c| {
                (c.most, c.verdict) = (Some(3), Some(Verdict::Unknown));
            }),
        ),
        (
            "G10: the hour's deletes count",
            "defer",
            case(json!({}), |c| {
                (c.recent, c.verdict) = (5, Some(Verdict::Unknown));
            }),
        ),
    ] {
        assert_eq!(found, want, "{row}");
    }
}

#[test]
fn the_brake_lets_five_go_and_stops_six_unless_each_is_confirmed() {
    let deletes = |count: u8, verdict: Verdict| {
        let mut case = Case::new(json!({}));
        case.nics = (1..=count).map(|n| nic(n, json!({}))).collect();
        case.verdict = Some(verdict);
        case.plan().of("delete").count()
    };
    assert_eq!(deletes(5, Verdict::Unknown), 5);
    assert_eq!(deletes(6, Verdict::Unknown), 0);
    assert_eq!(deletes(60, Verdict::Gone("destroyed".into())), 60);
}
