// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two copies of a VM, compared by the newest sync snapshot of each dataset.

use std::collections::BTreeSet;

use sdc_clients::Error;
use serde_json::{Value, json};

use super::state::Service;
use migration_core::protocol::Datasets;
use migration_core::record::Record;

/// Asks both agents, and compares their answers.
pub async fn verify(service: &Service, record: &Record) -> Result<Value, Error> {
    let vm = record.vm_uuid;
    let source = service.agents.datasets(record.source_server_uuid, vm).await?;
    let target = match record.target_server_uuid {
        Some(cn) => service.agents.datasets(cn, vm).await?,
        None => Datasets::default(),
    };
    Ok(compare(&source, &target))
}

/// Returns each dataset of either copy with the GUID of its newest sync snapshot, and with the bytes that it
/// refers to, which differ where one of the copies was written to since.
fn compare(source: &Datasets, target: &Datasets) -> Value {
    let names: BTreeSet<&String> =
        source.side.datasets.iter().chain(&target.side.datasets).collect();
    let newest = |of: &Datasets, dataset: &str| {
        let rows = of.side.of(dataset);
        rows.into_iter().rev().find(|row| row.number.is_some()).map(|row| row.guid)
    };
    let mut is_equal = !names.is_empty();
    let datasets = names.into_iter().map(|name| {
        let guids = [newest(source, name), newest(target, name)];
        // What was made on the target since is nothing that the source could lack.
        let is_later = guids == [None, None] && !source.side.datasets.contains(name);
        is_equal &= is_later || guids[0].is_some() && guids[0] == guids[1];
        let [source_guid, target_guid] = guids.map(|guid| guid.map(|guid| guid.to_string()));
        json!({
            "name": name, "source_guid": source_guid, "target_guid": target_guid,
            "source_bytes": source.referenced.get(name), "target_bytes": target.referenced.get(name),
        })
    });
    let datasets: Vec<Value> = datasets.collect();
    json!({"equal": is_equal, "datasets": datasets})
}

#[cfg(test)]
mod tests {
    use super::*;
    use migration_core::sync_plan::{Notes, Row, Side};

    fn datasets(rows: &[(&str, &str, u64)]) -> Datasets {
        let mut side = Side::default();
        for (dataset, name, guid) in rows {
            side.datasets.push((*dataset).into());
            let (dataset, name) = ((*dataset).into(), (*name).into());
            side.snapshots.push(Row { dataset, name, guid: *guid, ..Row::default() });
        }
        side.datasets.dedup();
        side.number("zones/u", &Notes::default(), &BTreeSet::new());
        Datasets { side, ..Datasets::default() }
    }

    #[test]
    fn copies_are_equal_if_each_dataset_has_the_same_newest_sync_snapshot() {
        let one = datasets(&[
            ("zones/u", "vm-migration-1", 1),
            ("zones/u", "vm-migration-2", 2),
            ("zones/u/d", "vm-migration-2", 3),
        ]);
        for (other, is_equal) in [
            (one.clone(), true),
            (datasets(&[("zones/u", "vm-migration-2", 2)]), false),
            (
                datasets(&[("zones/u", "vm-migration-2", 9), ("zones/u/d", "vm-migration-2", 3)]),
                false,
            ),
            (
                datasets(&[
                    ("zones/u", "vm-migration-2", 2),
                    ("zones/u", "mine", 7),
                    ("zones/u/d", "vm-migration-2", 3),
                ]),
                true,
            ),
            (
                datasets(&[
                    ("zones/u", "vm-migration-2", 2),
                    ("zones/u/d", "vm-migration-2", 3),
                    ("zones/u/d", "vm-migration-99", 8),
                    ("zones/u/made", "vm-migration-99", 9),
                ]),
                true,
            ),
        ] {
            assert_eq!(compare(&one, &other)["equal"], json!(is_equal));
        }
        assert_eq!(
            compare(&datasets(&[]), &datasets(&[]))["equal"],
            json!(false),
            "nothing was read"
        );
    }
}
