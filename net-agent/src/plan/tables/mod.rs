// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules as tables: each guard alone, upkeep, every numbered requirement, race and defect of
//! the sheet, and one property: no plan deletes what a second, independent reading of the sheet
//! would not let go. Here is what the tables share.

mod guards;
mod numbered;
mod property;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use sdc_clients::MacAddr;
use sdc_clients::napi::Nic;
use serde_json::json;

use super::reap::Verdict;
use super::*;
use crate::holds::Holds;
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
        self.plan_with("gone", self.verdict.clone())
    }

    /// The plan when VMAPI said this of that VM.
    fn plan_with(&self, vm: &str, verdict: Option<Verdict>) -> Plan {
        let macs = [mac(200)].into();
        plan(&Inputs {
            local: &self.local,
            identity: &Identity { uuid: CN.into(), macs, up: BTreeSet::new() },
            remote: &RemoteView::new(self.nics.clone(), Some(Timestamp::from_second(NOW).unwrap())),
            holds: &self.holds,
            verdicts: &verdict.into_iter().map(|verdict| (vm.to_owned(), verdict)).collect(),
            first_looks: &self
                .first_look
                .iter()
                .flat_map(|s| self.nics.iter().map(|n| (n.mac, Duration::from_secs(*s))))
                .collect::<BTreeMap<_, _>>(),
            wall: Timestamp::from_second(NOW).unwrap(),
            candidates: 0,
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
