// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Upkeep of records.

use daemon::agent::Identity;
use serde_json::json;

use super::case::{CN, Case, alive, mac, nic, policy, view};
use crate::plan::own_nic;
use crate::plan::upkeep::{self, Upkeep};
use crate::plan::verdict::Verdict;

/// What follows, in a word.
fn word(upkeep: Upkeep) -> String {
    match upkeep {
        Upkeep::Write(wish) => wish.to_string(),
        Upkeep::Agrees => "Agrees".to_owned(),
        Upkeep::Leave(_) => "Leave".to_owned(),
        Upkeep::AskVmapi => "AskVmapi".to_owned(),
    }
}

#[test]
fn writes_cn_uuid_and_state_of_local_vms() {
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
        let (nic, policy) = (&case.nics[0], &case.policy);
        word(upkeep::upkeep(nic, &case.local, verdict.as_ref(), false, policy))
    };
    let of = |over, state| run(over, state, false, None);
    let says = |verdict| run(json!({"cn_uuid": "b"}), "running", false, verdict);
    let (none, cn) = (|| json!({"cn_uuid": null}), format!("cn_uuid={CN}"));
    let (other, hidden) = (json!({"belongs_to_type": "other", "cn_uuid": null}), none());
    for (row, want, found) in [
        ("R8", cn.as_str(), of(none(), "running")),
        ("R10", "state=running", of(json!({"state": "provisioning"}), "running")),
        ("mirror", "state=stopped", of(json!({}), "stopped")),
        ("mirror back", "state=running", of(json!({"state": "stopped"}), "running")),
        ("agrees", "Agrees", of(json!({}), "running")),
        ("VM state unknown", "Leave", of(none(), "odd")),
        ("VM provisioning", "Leave", of(none(), "provisioning")),
        ("NIC state unknown", "Agrees", of(json!({"state": "odd"}), "running")),
        ("hidden", "Leave", run(hidden, "running", true, None)),
        ("race 7", "AskVmapi", says(None)),
        ("race 6", &cn, says(Some(alive("running", Some(CN))))),
        ("race 3", "Leave", says(Some(alive("running", Some("b"))))),
        ("not a zone's", "Leave", of(other, "running")),
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

#[test] // F69
fn other_spellings_of_uuids_are_not_written() {
    const OWNER: &str = "930896af-bf8c-48d4-885c-6573a94b1853";
    let (small, capitals) = (OWNER.to_owned(), OWNER.to_uppercase());
    for (here, recorded) in [(&small, &capitals), (&capitals, &small)] {
        let over = json!({"belongs_to_uuid": recorded, "owner_uuid": recorded, "primary": true,
            "cn_uuid": CN.to_uppercase()});
        let case = Case::new(over);
        let local = view(json!([{"uuid": here, "state": "running", "owner_uuid": here,
            "nics": [{"mac": mac(1), "primary": true}]}]));
        let found = upkeep::upkeep(&case.nics[0], &local, None, true, &case.policy);
        assert_eq!(word(found), "Agrees", "{here} {recorded}");
    }
}

#[test]
fn claims_only_own_nics() {
    let identity = Identity { uuid: CN.into(), macs: [mac(1)].into(), ..Identity::default() };
    let run = |n, kind: &str, owner: &str| {
        let over = json!({"belongs_to_type": kind, "belongs_to_uuid": owner,
            "state": "provisioning"});
        word(own_nic::upkeep(&nic(n, over), &identity, &policy()))
    };
    let away =
        nic(2, json!({"belongs_to_type": "other", "cn_uuid": null, "state": "provisioning"}));
    let away = word(own_nic::upkeep(&away, &identity, &policy()));
    let claim = format!("state=running belongs_to=server/{CN}");
    for (row, want, found) in [
        ("R11", "state=running", run(2, "server", CN)),
        ("another CN's", "Leave", run(1, "server", "b")),
        ("booter's", &claim, run(1, "other", "admin")),
        ("R11, our cn_uuid", "state=running", run(2, "other", "admin")),
        ("not our address", "Leave", away),
        ("a zone's", "Leave", run(1, "zone", "gone")),
    ] {
        assert_eq!(found, want, "{row}");
    }
}
