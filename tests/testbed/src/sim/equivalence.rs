// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! RFD 58's wish of event sources that may drop: the same life of the same nodes, delivered at
//! once, in batches, shuffled, twice, or in part, ends in the same cache and the same records.
//!
//! Not compared: `primary` and `owner_uuid`, which are mirrored when a change of the VM is seen (a
//! change that was undone meanwhile is not seen); all but the existence of records that no VM uses
//! or whose VM is hidden; times, which are the real clock's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::Value;

use super::runs::alone;
use super::settle;
use super::signals::Weather;
use super::truth::Truth;
use super::world::{World, held};
use crate::place::place;

/// How the signals of a node reach its vminfod.
const DELIVERIES: [(&str, Weather); 5] = [
    ("whole", Weather::GOOD),
    ("in batches", Weather { batch: Duration::from_secs(40), ..Weather::GOOD }),
    ("shuffled", Weather { late: Duration::from_secs(60), twice: 30, ..Weather::GOOD }),
    ("thinned", Weather { lost: 60, ..Weather::GOOD }),
    (
        "in shuffled batches, thinned",
        Weather {
            lost: 30,
            twice: 20,
            late: Duration::from_secs(50),
            batch: Duration::from_secs(20),
        },
    ),
];

/// A day: whatever NAPI's clock holds up is due then.
const DAY: Duration = Duration::from_secs(86_400);

/// The state at the end: VMs and records, by name.
#[derive(Debug, PartialEq)]
struct End {
    vms: BTreeMap<String, Value>,
    nics: BTreeMap<String, Value>,
}

/// Lives the life of a seed in each way; an error says what differs from the whole delivery.
pub fn one(seed: u64) -> anyhow::Result<()> {
    let mut whole: Option<End> = None;
    for (name, weather) in DELIVERIES {
        let end = alone(live(seed, weather)).map_err(|error| error.context(name))?;
        // A node whose brake waits for an operator is not at rest.
        let Some(end) = end else { return Ok(()) };
        match &whole {
            None => {
                ensure!(!end.vms.is_empty() && !end.nics.is_empty(), "a world without anything");
                whole = Some(end);
            }
            Some(whole) => compare(whole, &end).map_err(|error| error.context(name))?,
        }
    }
    Ok(())
}

async fn live(seed: u64, weather: Weather) -> anyhow::Result<Option<End>> {
    let (dir, truth) = (place()?, Truth::default());
    let mut world = World::new(seed, (None, false), &truth, dir.path(), weather).await?;
    if world.nodes.iter().any(|cn| truth.is_braked(&cn.uuid)) {
        world.end().await;
        return Ok(None);
    }
    world.live(true).await?;
    // What NAPI's clock or an agent's start decides is decided now, in every world.
    world.centre.napi.advance_clock(DAY);
    for cn in &mut world.nodes {
        cn.net.end().await;
        cn.start_agent()?;
    }
    settle::settle(&world.centre, &world.nodes, &world.readers, settle::RECORDS).await?;
    let mut end = End { vms: BTreeMap::new(), nics: BTreeMap::new() };
    let mut used = BTreeSet::new();
    for cn in &world.nodes {
        let Some(api) = cn.wire.api() else { bail!("vminfod does not run") };
        for vm in api.published.snapshot().vms.values() {
            let vm = timeless(&Value::Object(vm.object().into_iter().collect()));
            let nics = vm["nics"].as_array().filter(|_| vm["do_not_inventory"] != true);
            used.extend(nics.into_iter().flatten().map(|nic| nic["mac"].to_string()));
            end.vms.insert(vm["zonename"].to_string(), vm);
        }
    }
    for mut nic in world.centre.napi.nics() {
        let kept: &[&str] = match used.contains(&nic["mac"].to_string()) {
            true => &["mac", "belongs_to_uuid", "belongs_to_type", "cn_uuid", "state"],
            false => &["mac", "belongs_to_uuid"],
        };
        if let Some(fields) = nic.as_object_mut() {
            fields.retain(|key, _| kept.contains(&key.as_str()));
        }
        end.nics.insert(nic["mac"].to_string(), nic);
    }
    world.end().await;
    held(&truth)?;
    Ok(Some(end))
}

fn compare(whole: &End, other: &End) -> anyhow::Result<()> {
    for (what, one, two) in [("VM", &whole.vms, &other.vms), ("NIC", &whole.nics, &other.nics)] {
        for name in one.keys().chain(two.keys()) {
            let (one, two) = (one.get(name), two.get(name));
            if one != two {
                bail!("{what} {name} ends as {}, delivered whole as {}", show(two), show(one));
            }
        }
    }
    Ok(())
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

/// The same without the real clock's times, and without the numbers that the kernel gives out.
fn timeless(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = |key: &str| !matches!(key, "pid" | "zoneid" | "boot_timestamp");
            let fields = fields.iter().filter(|(key, _)| kept(key));
            Value::Object(fields.map(|(key, value)| (key.clone(), timeless(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => Value::from("a time"),
        other => other.clone(),
    }
}
