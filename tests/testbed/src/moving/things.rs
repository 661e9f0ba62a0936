// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is on the nodes, and who made it: nothing that a migration did not make is ever destroyed (M256). What belongs to
//! the VM may go where the other node has it too.

use std::collections::BTreeMap;
use std::sync::Arc;

use migration_core::intent::End;
use simnode::Node;
use simnode::datasets::Datasets;

/// In whose name migration-agent, and CNAPI on a migration's order, do what they do on a node.
pub const MIGRATION: &str = "migration";

/// A dataset, a snapshot or a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    made_by: String,
    /// Of a snapshot.
    guid: Option<u64>,
}

/// The things of a node, by name.
type Listed = BTreeMap<String, Thing>;

/// What was on each node when it was looked at last, and what said so.
#[derive(Default)]
pub struct Things(BTreeMap<End, (Vec<u8>, Arc<Datasets>, Listed)>);

fn listed(node: &Node, datasets: &Datasets) -> Option<Listed> {
    let zones = node.zones().ok()?;
    let zones = zones.iter().map(|zone| {
        let made_by = zone.made_by.clone();
        (format!("the zone {}", zone.zonename), Thing { made_by, guid: None })
    });
    let datasets = datasets
        .sorted()
        .into_iter()
        .map(|row| (row.name.clone(), Thing { made_by: row.made_by.clone(), guid: row.guid() }));
    Some(zones.chain(datasets).collect())
}

impl Things {
    /// Looks at these nodes. Returns what has gone since it looked last though no migration made it, unless it is the
    /// VM's and on the other node too, or an operator has given up what the VM has there.
    pub fn look(&mut self, vm: &str, nodes: &[(End, Node)], given_up: Option<End>) -> Vec<String> {
        let mut gone = Vec::new();
        for (end, node) in nodes {
            let zones = std::fs::read(node.state_dir().join("zones.json")).unwrap_or_default();
            let Ok(datasets) = node.datasets() else { continue };
            let is_it = |(text, of, _): &&(Vec<u8>, Arc<Datasets>, Listed)| {
                *text == zones && Arc::ptr_eq(of, &datasets)
            };
            if self.0.get(end).filter(is_it).is_some() {
                continue;
            }
            let Some(now) = listed(node, &datasets) else { continue };
            if let Some((_, _, before)) = self.0.insert(*end, (zones, datasets, now.clone())) {
                let has_gone = |(name, thing): &(String, Thing)| now.get(name) != Some(thing);
                gone.extend(before.into_iter().filter(has_gone).map(|it| (*end, it)));
            }
        }
        let is_lost = |(end, (name, thing)): &(End, (String, Thing))| {
            let elsewhere = self.0.get(&end.other()).map(|(_, _, listed)| listed);
            let has_it = |it: (&String, &Thing)| match thing.guid {
                Some(_) => it.1.guid == thing.guid,
                None => it.0 == name,
            };
            let is_kept = elsewhere.is_some_and(|listed| listed.iter().any(has_it));
            thing.made_by != MIGRATION
                && !(name.contains(vm) && (is_kept || given_up == Some(*end)))
        };
        let lost = gone.into_iter().filter(is_lost);
        lost.map(|(end, (name, _))| format!("{name} on the {end}'s node")).collect()
    }
}
