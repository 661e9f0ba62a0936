// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The comparison of a start: all that VMAPI lists here against all that the node shows.

use std::collections::{BTreeMap, BTreeSet};

use sdc_clients::uuid_value;
use sdc_clients::vminfod::{View, VmFields as _};
use serde_json::{Map, Value};

use super::judge::{Decision, Judge, LASTS, Reading, named};
use super::reason::Reason;
use super::record::Record;

/// What a start has to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// The VMs that VMAPI knows nothing of but where they are: these go first, one by one.
    pub first: Vec<(String, Map<String, Value>)>,
    /// The VMs that differ: one request for all.
    pub batch: Map<String, Value>,
    /// The VMs that are judged one by one: not read whole, or not listed by VMAPI here.
    pub alone: BTreeSet<String>,
    /// The VMs that VMAPI lists here and the node does not show.
    pub gone: BTreeSet<String>,
    /// The VMs that are hidden, of which nothing is said.
    pub hidden: BTreeSet<String>,
    /// The VMs about which VMAPI has nothing to learn now.
    pub settled: BTreeSet<String>,
    /// Why each VM that differs is in the batch, and why others wait.
    pub why: BTreeMap<String, Reason>,
}

impl Start {
    /// Compares.
    pub fn of(judge: Judge<'_>, records: Vec<Map<String, Value>>, view: &View) -> Self {
        let mut start = Self::default();
        let mut records: BTreeMap<String, Record> = records
            .into_iter()
            .filter_map(|record| {
                let uuid = uuid_value(record.uuid()?);
                Some((uuid, Record(record)))
            })
            .collect();
        for object in &view.vms {
            let Some(vm) = named(object) else { continue };
            let record = records.remove(&vm);
            let zonename = object.zonename().unwrap_or(&vm);
            if object.is_hidden() {
                start.hidden.insert(vm);
                continue;
            }
            if view.incomplete.has(zonename) {
                start.why.insert(vm.clone(), Reason::Unread);
                start.alone.insert(vm);
                continue;
            }
            // VMAPI may know it as destroyed, or elsewhere.
            let Some(record) = record else {
                start.alone.insert(vm);
                continue;
            };
            let reading = Reading { is_new: false, is_after: false, lasts_in: LASTS };
            match judge.present(Some(&record), object, reading) {
                Decision::Put(Reason::Bare, object) => start.first.push((vm, object)),
                Decision::Put(why, object) => {
                    start.why.insert(vm.clone(), why);
                    start.batch.insert(vm, Value::Object(object));
                }
                Decision::Wait(why) => {
                    start.why.insert(vm.clone(), why);
                    start.alone.insert(vm);
                }
                Decision::Nothing(why) => {
                    start.why.insert(vm.clone(), why);
                    start.settled.insert(vm);
                }
                Decision::Destroyed(_) => {}
            }
        }
        // What the view could not read is not gone.
        start.gone = records.into_keys().filter(|vm| !view.incomplete.has(vm)).collect();
        start
    }
}
