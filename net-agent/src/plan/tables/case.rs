// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the tables share: a record that everything says to delete, and ways to change that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daemon::agent::Identity;
use jiff::Timestamp;
use sdc_clients::MacAddr;
use sdc_clients::napi::Nic;
use serde_json::json;

use crate::brake::{Recent, Reference, Scale};
use crate::config::Policy;
use crate::holds::Holds;
use crate::listing::NicListing;
use crate::plan::compare::{Inputs, compare};
use crate::plan::decision::Plan;
use crate::plan::verdict::Verdict;
use crate::view::LocalView;

pub(super) const CN: &str = "a829c448-085b-4138-adbc-583ac96881c3";
pub(super) const NOW: i64 = 1_800_000_000;

pub(super) fn mac(n: u8) -> MacAddr {
    format!("f2:00:00:00:00:{n:02x}").parse().unwrap()
}

/// A leaked record of VM `gone`, a day old, unless `over` says otherwise.
pub(super) fn nic(n: u8, over: serde_json::Value) -> Nic {
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

pub(super) fn at(offset: i64) -> String {
    Timestamp::from_second(NOW + offset).unwrap().to_string()
}

pub(super) fn view(vms: serde_json::Value) -> LocalView {
    let objects: Vec<_> =
        vms.as_array().unwrap().iter().map(|vm| vm.as_object().unwrap().clone()).collect();
    LocalView::read(&objects, Duration::from_secs(1000))
}

pub(super) fn policy() -> Policy {
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

pub(super) struct Case {
    pub(super) local: LocalView,
    pub(super) nics: Vec<Nic>,
    pub(super) holds: Holds,
    pub(super) verdict: Option<Verdict>,
    pub(super) first_look: Option<u64>,
    pub(super) recent: usize,
    /// The VMs of the reference view, and how many of them are here.
    pub(super) reference: Option<(usize, usize)>,
    pub(super) approved: BTreeSet<MacAddr>,
    pub(super) policy: Policy,
}

impl Case {
    /// Everything says delete.
    pub(super) fn new(over: serde_json::Value) -> Self {
        Self {
            local: view(json!([{"uuid": "other", "state": "running", "nics": []}])),
            nics: vec![nic(1, over)],
            holds: Holds::default(),
            verdict: Some(gone("destroyed")),
            first_look: Some(900),
            recent: 0,
            reference: Some((1, 1)),
            approved: BTreeSet::new(),
            policy: policy(),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan_with("gone", self.verdict.clone())
    }

    /// The plan when VMAPI said this of that VM.
    pub(super) fn plan_with(&self, vm: &str, verdict: Option<Verdict>) -> Plan {
        let macs = [mac(200)].into();
        let listing =
            NicListing::new(self.nics.clone(), Some(Timestamp::from_second(NOW).unwrap()));
        let reference = self.reference.filter(|_| self.local.is_complete());
        let scale = Scale {
            recent: Some(Recent { counted: self.recent, exempted: 0 }),
            listed: listing.listed,
            listed_vms: listing.listed_vms,
            local_vms: self.local.vms.len(),
            reference: reference.map(|(vms, here)| Reference { vms, here }),
            had: reference.map(|(vms, here)| Reference { vms, here }).unwrap_or_default(),
            ..Scale::default()
        };
        compare(&Inputs {
            local: &self.local,
            identity: &Identity { uuid: CN.into(), macs, ..Identity::default() },
            listing: &listing,
            holds: &self.holds,
            verdicts: &verdict.into_iter().map(|verdict| (vm.to_owned(), verdict)).collect(),
            first_looks: &self
                .first_look
                .iter()
                .flat_map(|s| self.nics.iter().map(|n| (n.mac, Duration::from_secs(*s))))
                .collect::<BTreeMap<_, _>>(),
            time: Timestamp::from_second(NOW).unwrap(),
            scale,
            approved: &self.approved,
            policy: &self.policy,
        })
    }

    pub(super) fn says(&self) -> String {
        let plan = self.plan();
        let mac = self.nics.first().map_or(mac(1), |nic| nic.mac);
        plan.decisions.iter().find(|d| d.mac == mac).unwrap().action.name().to_owned()
    }
}

/// What VMAPI says about a VM.
fn vmapi(state: &str, server: Option<&str>) -> Verdict {
    let vm = json!({"uuid": "gone", "state": state, "server_uuid": server});
    Verdict::of(&serde_json::from_value(vm).unwrap())
}

/// VMAPI says that the VM lives there.
pub(super) fn alive(state: &str, server: Option<&str>) -> Verdict {
    let verdict = vmapi(state, server);
    assert!(!verdict.confirms(CN));
    verdict
}

/// VMAPI says that the VM is destroyed or failed.
pub(super) fn gone(state: &str) -> Verdict {
    let verdict = vmapi(state, Some(CN));
    assert!(verdict.confirms(CN));
    verdict
}

/// VMAPI says that the VM is destroyed or failed there.
pub(super) fn gone_from(state: &str, server: Option<&str>) -> Verdict {
    vmapi(state, server)
}
