// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Takes the records of a running VMAPI over. It can be repeated: what is there and equal stays, what differs is
//! printed and stays, unless it is to be replaced.

use sdc_clients::http::{Call, Http, LIST_TIMEOUT};
use serde_json::Value;
use uuid::Uuid;

use super::records::Records;
use super::refused::Refused;
use migration_core::permit::adopt;
use migration_core::record::{Record, State};

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    New,
    /// It is here, and equal.
    Same,
    /// It is here with other values in these fields.
    Differs(Vec<String>),
    /// The service that has it works on it: it stays there unless it is forced over.
    Runs,
    /// It stays where it is, for this reason.
    Refused(String),
}

/// What may be changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Nothing is written.
    pub is_dry: bool,
    /// Records of running migrations are taken over too: no service works on them at their old place any more.
    pub with_running: bool,
}

/// Reads the records from the VMAPI at `from`, whose VMs have the owners, and keeps those that are new. Returns the
/// VM of each with what became of it: one that is refused stops no other.
///
/// A running migration stays where it is, unless `mode` differs: two services that work on one migration
/// could boot both copies of its VM.
pub async fn import(
    records: &Records,
    from: &Http,
    operators: Uuid,
    mode: Mode,
) -> Result<Vec<(String, Taken)>, Refused> {
    let call = Call::get(&["migrations"]).query("format", "raw").timeout(LIST_TIMEOUT);
    let shown: Vec<Value> = from.execute(call).await?.json("an array of records")?;
    let mut taken = Vec::new();
    for value in shown {
        let vm = value["vm_uuid"].as_str().unwrap_or("a record without a VM").to_owned();
        let became = match one(records, from, operators, mode, value).await {
            Ok(became) => became,
            Err(refused) => Taken::Refused(refused.message().to_owned()),
        };
        taken.push((vm, became));
    }
    Ok(taken)
}

async fn one(
    records: &Records,
    from: &Http,
    operators: Uuid,
    mode: Mode,
    shown: Value,
) -> Result<Taken, Refused> {
    let mut record = Record::read(&stored(shown))?;
    let vm = from.execute(Call::get(&["vms", &record.vm_uuid.to_string()])).await?.object()?;
    let owner = vm.get("owner_uuid").and_then(Value::as_str).and_then(|it| it.parse().ok());
    adopt(&mut record, owner.unwrap_or_default(), operators);
    match records.get(record.id).await? {
        None if record.state == State::Running && !mode.with_running => Ok(Taken::Runs),
        None => {
            if !mode.is_dry {
                let lock = records.lock(record.vm_uuid).await?;
                records.create(record, lock).await?;
            }
            Ok(Taken::New)
        }
        Some(there) => Ok(match differences(&there.record, &record) {
            fields if fields.is_empty() => Taken::Same,
            fields => Taken::Differs(fields),
        }),
    }
}

/// Returns a record without what the raw form adds to what is stored.
fn stored(mut shown: Value) -> Value {
    if let Some(record) = shown.as_object_mut() {
        for shown in [
            "duration_ms",
            "waits_for",
            "needs",
            "why",
            "held_bytes",
            "source_server_hostname",
            "target_server_hostname",
        ] {
            record.shift_remove(shown);
        }
        let history = record.get_mut("progress_history").and_then(Value::as_array_mut);
        for entry in history.into_iter().flatten().filter_map(Value::as_object_mut) {
            entry.shift_remove("duration_ms");
        }
    }
    shown
}

fn differences(here: &Record, there: &Record) -> Vec<String> {
    let (here, there) = (here.to_json(), there.to_json());
    let empty = serde_json::Map::new();
    let (here, there) = (here.as_object().unwrap_or(&empty), there.as_object().unwrap_or(&empty));
    let names = here.keys().chain(there.keys().filter(|name| !here.contains_key(*name)));
    let differ = names.filter(|name| *name != "journal" && here.get(*name) != there.get(*name));
    differ.cloned().collect()
}
