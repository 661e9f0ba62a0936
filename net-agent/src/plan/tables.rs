// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules as tables, and one property: no plan deletes what a second, independent reading of
//! the sheet would not let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use sdc_clients::MacAddr;
use sdc_clients::napi::{Nic, NicState};
use serde_json::json;

use super::reap::Verdict;
use super::*;
use crate::holds::{Hold, Holds};
use crate::inventory::{Identity, LocalView};
use crate::remote::RemoteView;

const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
const NOW: i64 = 1_800_000_000;

fn mac(n: u8) -> MacAddr {
    format!("f2:00:00:00:00:{n:02x}").parse().unwrap()
}

/// A leaked record of VM `gone`, a day old, unless `over` says otherwise.
fn nic(n: u8, over: serde_json::Value) -> Nic {
    let mut all = json!({
        "mac": mac(n), "belongs_to_type": "zone", "belongs_to_uuid": "gone", "owner_uuid": "o",
        "primary": false, "state": "running", "cn_uuid": CN,
        "created_timestamp": at(-86_400), "modified_timestamp": at(-86_400),
    });
    for (key, value) in over.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(key);
        } else {
            all[key] = value.clone();
        }
    }
    serde_json::from_value(all).unwrap()
}

fn at(offset: i64) -> String {
    Timestamp::from_second(NOW + offset).unwrap().to_string()
}

fn view(vms: serde_json::Value) -> LocalView {
    let objects: Vec<_> =
        vms.as_array().unwrap().iter().map(|vm| vm.as_object().unwrap().clone()).collect();
    LocalView::read(&objects, Duration::from_secs(1000))
}

fn policy() -> Policy {
    Policy {
        cn_uuid: CN.to_owned(),
        admin_uuid: Some("admin".to_owned()),
        min_age: Duration::from_secs(900),
        provisioning_age: Duration::from_secs(7200),
        second_look: Duration::from_secs(60),
        ask_vmapi: true,
        mirror_stopped: true,
    }
}

struct Case {
    local: LocalView,
    nics: Vec<Nic>,
    holds: Holds,
    verdict: Option<Verdict>,
    first_look: Option<u64>,
    recent: usize,
    most: Option<usize>,
    approved: BTreeSet<MacAddr>,
    policy: Policy,
}

impl Case {
    /// Everything says delete.
    fn new(over: serde_json::Value) -> Self {
        Self {
            local: view(json!([{"uuid": "other", "state": "running", "nics": []}])),
            nics: vec![nic(1, over)],
            holds: Holds::default(),
            verdict: Some(Verdict::Gone("destroyed".into())),
            first_look: Some(900),
            recent: 0,
            most: None,
            approved: BTreeSet::new(),
            policy: policy(),
        }
    }

    fn plan(&self) -> Plan {
        let macs = [mac(200)].into();
        let verdict = self.verdict.iter().cloned();
        plan(&Inputs {
            local: &self.local,
            identity: &Identity { uuid: CN.into(), macs, up: BTreeSet::new() },
            remote: &RemoteView::new(self.nics.clone(), Some(Timestamp::from_second(NOW).unwrap())),
            holds: &self.holds,
            verdicts: &verdict.map(|verdict| ("gone".to_owned(), verdict)).collect(),
            first_looks: &self
                .first_look
                .iter()
                .flat_map(|s| self.nics.iter().map(|n| (n.mac, Duration::from_secs(*s))))
                .collect::<BTreeMap<_, _>>(),
            wall: Timestamp::from_second(NOW).unwrap(),
            recent_deletes: self.recent,
            most_vms: self.most,
            approved: &self.approved,
            policy: &self.policy,
        })
    }

    fn says(&self) -> String {
        let plan = self.plan();
        plan.decisions.iter().find(|d| d.mac == mac(1)).unwrap().action.name().to_owned()
    }
}

fn alive(state: &str, server: Option<&str>) -> Verdict {
    Verdict::of(state, server, None)
}

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

#[test]
fn backfill_and_state() {
    let vm = |state: &str, hidden: bool| {
        view(json!([{"uuid": "vm", "state": state, "do_not_inventory": hidden, "owner_uuid": "o",
            "nics": [{"mac": mac(1)}]}]))
    };
    let mine = |over: serde_json::Value| {
        let mut all = json!({"belongs_to_uuid": "vm"});
        all.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
        all
    };
    let run = |over, state, hidden, verdict: Option<Verdict>| {
        let mut case = Case::new(mine(over));
        case.local = vm(state, hidden);
        case.nics[0].belongs_to_uuid = "vm".into();
        let verdicts = verdict.map(|v| ("vm".to_owned(), v));
        let upkeep = backfill::upkeep(
            &case.nics[0],
            &case.local,
            verdicts.as_ref().map(|(_, v)| v),
            false,
            &case.policy,
        );
        match upkeep {
            backfill::Upkeep::Write(wish) => describe(&wish),
            other => format!("{other:?}").split('(').next().unwrap().to_owned(),
        }
    };
    let cn = format!("cn_uuid={CN}");
    for (row, want, found) in [
        ("R8", cn.clone(), run(json!({"cn_uuid": null}), "running", false, None)),
        (
            "R10",
            "state=running".into(),
            run(json!({"state": "provisioning"}), "running", false, None),
        ),
        ("mirror", "state=stopped".into(), run(json!({}), "stopped", false, None)),
        (
            "mirror back",
            "state=running".into(),
            run(json!({"state": "stopped"}), "running", false, None),
        ),
        ("agrees", "Agrees".into(), run(json!({}), "running", false, None)),
        ("VM state unknown", "Leave".into(), run(json!({"cn_uuid": null}), "odd", false, None)),
        (
            "VM provisioning",
            "Leave".into(),
            run(json!({"cn_uuid": null}), "provisioning", false, None),
        ),
        (
            "NIC state unknown",
            "Agrees".into(),
            run(json!({"state": "odd"}), "running", false, None),
        ),
        ("hidden", "Leave".into(), run(json!({"cn_uuid": null}), "running", true, None)),
        ("race 7", "AskVmapi".into(), run(json!({"cn_uuid": "b"}), "running", false, None)),
        (
            "race 6",
            cn,
            run(json!({"cn_uuid": "b"}), "running", false, Some(alive("running", Some(CN)))),
        ),
        (
            "race 3",
            "Leave".into(),
            run(json!({"cn_uuid": "b"}), "running", false, Some(alive("running", Some("b")))),
        ),
        (
            "not a zone's",
            "Leave".into(),
            run(json!({"belongs_to_type": "other", "cn_uuid": null}), "running", false, None),
        ),
    ] {
        assert_eq!(found, want, "{row}");
    }
    let mut case = Case::new(json!({"belongs_to_uuid": "foreign", "cn_uuid": null}));
    case.local = vm("running", false);
    assert_eq!(case.says(), "keep", "a foreign owner is news, not ours to write");
    case.nics = Vec::new();
    assert_eq!(case.says(), "look", "R8, D1: in no list, so it is read alone");
    case.local = vm("running", true);
    assert_eq!(case.plan().decisions.len(), 0, "hidden: not even read");
}

#[test]
fn own_nics() {
    let identity = Identity { uuid: CN.into(), macs: [mac(1)].into(), up: BTreeSet::new() };
    let run = |n, over: serde_json::Value| {
        let upkeep = state::of_own_nic(&nic(n, over), &identity, &policy());
        match upkeep {
            backfill::Upkeep::Write(wish) => describe(&wish),
            other => format!("{other:?}").split('(').next().unwrap().to_owned(),
        }
    };
    let claim = format!("state=running belongs_to=server/{CN}");
    for (row, want, found) in [
        (
            "R11",
            "state=running".to_owned(),
            run(
                2,
                json!({"belongs_to_type": "server",
            "belongs_to_uuid": CN, "state": "provisioning"}),
            ),
        ),
        (
            "another CN's",
            "Leave".into(),
            run(
                1,
                json!({"belongs_to_type": "server",
            "belongs_to_uuid": "b", "state": "provisioning"}),
            ),
        ),
        (
            "booter's",
            claim,
            run(
                1,
                json!({"belongs_to_type": "other",
            "belongs_to_uuid": "admin", "state": "provisioning"}),
            ),
        ),
        (
            "not our address",
            "Leave".into(),
            run(
                2,
                json!({"belongs_to_type": "other",
            "belongs_to_uuid": "admin", "state": "provisioning"}),
            ),
        ),
        ("a zone's", "Leave".into(), run(1, json!({"state": "provisioning"}))),
    ] {
        assert_eq!(found, want, "{row}");
    }
}

fn any_nic() -> impl Strategy<Value = Nic> {
    (
        0u8..8,
        prop::sample::select(vec!["zone", "server", "other", "pod"]),
        prop::sample::select(vec!["gone", "v1", "v2"]),
        prop::sample::select(vec!["running", "stopped", "provisioning", "odd"]),
        prop::option::of(prop::sample::select(vec![CN, "b"])),
        prop::option::of(-10_000i64..100),
    )
        .prop_map(|(n, kind, vm, state, cn, age)| {
            let time = age.map(at);
            nic(
                n,
                json!({"belongs_to_type": kind, "belongs_to_uuid": vm, "state": state,
                "cn_uuid": cn, "created_timestamp": time, "modified_timestamp": time}),
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn no_plan_deletes_what_the_sheet_protects(
        nics in prop::collection::vec(any_nic(), 0..12),
        vms in prop::collection::vec((prop::sample::select(vec!["v1", "v2"]), any::<bool>(), 0u8..8), 0..3),
        first in prop::option::of(800u64..1000),
        verdict in prop::sample::select(vec![
            None, Some(Verdict::Unknown), Some(Verdict::Gone("failed".into())),
            Some(alive("running", Some(CN))), Some(alive("running", Some("b"))),
            Some(Verdict::NoAnswer(String::new())),
        ]),
        ask in any::<bool>(), complete in any::<bool>(), recent in 0usize..8,
    ) {
        let mut case = Case::new(json!({}));
        case.local = view(json!(vms.iter().map(|(vm, hidden, n)| json!({"uuid": vm,
            "state": "running", "do_not_inventory": hidden, "nics": [{"mac": mac(*n)}]}))
            .collect::<Vec<_>>()));
        case.local.complete = complete;
        (case.nics, case.first_look, case.recent) = (nics, first, recent);
        (case.verdict, case.policy.ask_vmapi) = (verdict.clone(), ask);
        let plan = case.plan();
        let deletes: Vec<_> = plan.of("delete").collect();
        for delete in &deletes {
            // Any of the records with this address (the list may repeat one) must allow it.
            let allowed = case.nics.iter().filter(|n| n.mac == delete.mac).any(|n| {
                let age = n.modified_timestamp.map(|t| NOW - t.as_second());
                let young = n.state == NicState::Provisioning;
                n.belongs_to_type.as_str() == "zone"
                    && n.cn_uuid.as_deref() == Some(CN)
                    && case.local.vms.keys().all(|vm| *vm != n.belongs_to_uuid)
                    && case.local.vms.values().all(|vm| !vm.has(n.mac))
                    && matches!(n.state.as_str(), "running" | "stopped" | "provisioning")
                    && age.is_some_and(|age| age >= if young { 7200 } else { 900 })
                    && first.is_some_and(|first| first + 60 <= 1000)
                    && complete
                    && (!ask && !young
                        || n.belongs_to_uuid == "gone" && match &verdict {
                            Some(Verdict::Gone(_)) => true,
                            Some(Verdict::Unknown) => !young,
                            _ => false,
                        })
            });
            prop_assert!(allowed, "{delete:?}");
        }
        let confirmed = ask && matches!(verdict, Some(Verdict::Gone(_)));
        if !deletes.is_empty() && !confirmed && !matches!(verdict, Some(Verdict::Gone(_))) {
            prop_assert!(deletes.len() + recent <= 5 && !case.local.vms.is_empty());
        }
    }
}
