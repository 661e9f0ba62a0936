// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `list-volume-zones`.

use std::collections::BTreeMap;

use daemon::cli::hosts::Hosts;
use daemon::cli::{Cell, Layout, Progress, Screen, TERMINAL, Table, Tone};
use futures_util::{StreamExt as _, stream};
use sdc_clients::volapi::{Troubles, Volume};
use serde_json::{Value, json};

use super::services::Services;
use super::zones::{Vms, ails, mount, owner, records, text};

/// Storage VMs whose nodes are asked at once how much they hold.
const AT_ONCE: usize = 8;

const COLUMNS: [&str; 13] = [
    "name", "size", "used", "state", "node", "users", "volume", "owner", "zone", "cn", "path",
    "created", "why",
];
/// Columns that people see.
const USUAL: usize = 6;
/// With `-l` and for scripts; `node` is a uuid in JSON.
const LONG: &str = "name,volume,owner,size,used,state,cn,zone,users";
const JSON: &str = "name,volume,owner,size,used,state,node,zone,users";
/// A uuid is shown so far where there is no name.
const SHORT: usize = 8;

/// Lists all volumes, or an owner's.
pub(super) async fn list(
    services: &Services,
    whose: Option<&str>,
    is_long: bool,
    layout: &Layout,
    screen: Screen,
) -> anyhow::Result<String> {
    let long = || match (layout.json, is_long || layout.parsable) {
        (true, _) => Some(JSON.to_owned()),
        (false, is_long) => is_long.then(|| LONG.to_owned()),
    };
    let is_short = screen.is_terminal && !is_long && !layout.asks_for_table() && !layout.json;
    let layout = &Layout {
        columns: layout.columns.clone().or_else(long),
        within: is_short.then_some(TERMINAL),
        ..layout.clone()
    };
    // A column that does not exist is refused before any request.
    table(&[], &Extras::default()).print(layout, screen)?;
    let shown = Progress::begin("reading volumes");
    let volapi = services.volapi()?;
    let mut volumes = volapi.list(None).await?;
    if let Some(whose) = whose {
        let whose = owner(&volumes, whose)?;
        volumes.retain(|volume| volume.owner_uuid == whose);
    }
    let troubles = volapi.troubles().await?;
    let uuids = volumes.iter().flat_map(|volume| {
        volume.refs.iter().chain(std::iter::once(&volume.vm_uuid)).map(String::as_str)
    });
    shown.say("reading their VMs");
    let vms = records(&services.vmapi()?, uuids).await?;
    shown.say("asking how much they hold");
    let used = match asks_for(layout, "used") {
        true => used(services, &volumes).await?,
        false => BTreeMap::new(),
    };
    let hosts = match asks_for(layout, "node") {
        true => services.hosts().await,
        false => Hosts::default(),
    };
    drop(shown);
    Ok(table(&volumes, &Extras { vms, troubles, used, hosts }).print(layout, screen)?)
}

/// Returns true if the column is printed or sorted by.
fn asks_for(layout: &Layout, column: &str) -> bool {
    let names = |list: &Option<String>| {
        list.iter().flat_map(|it| it.split(',')).any(|it| it.trim_start_matches('-') == column)
    };
    layout.columns.is_none() || names(&layout.columns) || names(&layout.sort)
}

/// Returns the bytes that the storage VMs hold, where a node reports them.
async fn used(services: &Services, volumes: &[Volume]) -> anyhow::Result<BTreeMap<String, u64>> {
    let estimates = &services.estimates()?;
    let ready = volumes.iter().filter(|volume| volume.state == "ready");
    let asked = ready.map(|volume| async move {
        let size = estimates.estimate_size(&volume.vm_uuid, None).await.ok()?;
        Some((volume.vm_uuid.clone(), size))
    });
    Ok(stream::iter(asked).buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await)
}

/// What is known besides volapi's records.
#[derive(Debug, Default)]
struct Extras {
    vms: Vms,
    troubles: Troubles,
    used: BTreeMap<String, u64>,
    hosts: Hosts,
}

fn table(volumes: &[Volume], known: &Extras) -> Table {
    let Extras { vms, troubles, used, hosts } = known;
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    for volume in volumes {
        let why = ails(volume, vms, troubles);
        // A volume is ready by its record even while it cannot be used.
        let (state, tone) = match (volume.state.as_str(), &why) {
            ("ready", Some(_)) => ("degraded", Tone::Bad),
            ("ready", None) => ("ready", Tone::Good),
            ("failed", _) => ("failed", Tone::Bad),
            (state, _) => (state, Tone::Odd),
        };
        let zone = vms.get(&volume.vm_uuid);
        let node = zone.and_then(|zone| text(zone, "server_uuid"));
        let used = used.get(&volume.vm_uuid).map_or_else(
            || Value::Null.into(),
            |bytes| Cell::shown(*bytes, mebibytes(*bytes as f64 / f64::from(1 << 20))),
        );
        let path = volume.other.get("filesystem_path").and_then(Value::as_str);
        table.row(vec![
            Cell::name(volume.name.as_str()),
            Cell::shown(volume.size, mebibytes(volume.size)),
            used,
            Cell::toned(state, tone),
            node.map_or_else(|| Value::Null.into(), |cn| Cell::shown(cn, hosts.name(cn))),
            users(volume, vms),
            volume.uuid.as_str().into(),
            volume.owner_uuid.as_str().into(),
            volume.vm_uuid.as_str().into(),
            Cell::from(node),
            Cell::from(path),
            Cell::from(volume.create_timestamp.as_deref()),
            Cell::from(why.as_deref()),
        ]);
    }
    table
}

/// Returns who uses a volume: `web01 /data rw, …`; in JSON with uuids.
fn users(volume: &Volume, vms: &Vms) -> Cell {
    let mut shown = Vec::new();
    let all: Vec<Value> = volume
        .refs
        .iter()
        .map(|uuid| {
            let vm = vms.get(uuid);
            let alias = vm.and_then(|vm| text(vm, "alias"));
            let state = vm.and_then(|vm| text(vm, "state"));
            let mount = vm.and_then(|vm| mount(vm, &volume.name));
            let (mountpoint, mode) = mount.unzip();
            let short = uuid.get(..SHORT).unwrap_or(uuid);
            let words = [alias.or(Some(short)), mountpoint.as_deref(), mode.as_deref()];
            shown.push(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
            json!({"vm": uuid, "alias": alias, "state": state, "mountpoint": mountpoint, "mode": mode})
        })
        .collect();
    match all.is_empty() {
        true => Cell::from(json!([])),
        false => Cell::shown(all, shown.join(", ")),
    }
}

/// Returns a size as people order it: `10G`, with one digit of what is no whole number.
fn mebibytes(size: f64) -> String {
    let (size, unit) = match size {
        size if size >= 1024.0 => (size / 1024.0, "G"),
        size => (size, "M"),
    };
    let text = format!("{size:.1}");
    format!("{}{unit}", text.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_people_order() {
        for (size, want) in
            [(10240.0, "10G"), (512.0, "512M"), (1536.0, "1.5G"), (0.25, "0.2M"), (0.0, "0M")]
        {
            assert_eq!(mebibytes(size), want);
        }
    }

    #[test]
    fn nodes_are_asked_only_for_a_column_that_is_printed() {
        let of = |columns: Option<&str>, sort: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            asks_for(
                &Layout { columns: owned(columns), sort: owned(sort), ..Layout::default() },
                "used",
            )
        };
        assert!(of(None, None) && of(Some("name,used"), None) && of(Some("name"), Some("-used")));
        assert!(!of(Some("name,users"), Some("-name")));
    }
}
