// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is written about what is here.

use super::*;

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
            crate::plan::wish::Upkeep::Write(wish) => describe(&wish),
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
            crate::plan::wish::Upkeep::Write(wish) => describe(&wish),
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
