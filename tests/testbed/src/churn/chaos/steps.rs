// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is done to the node, and what has to agree when all is quiet: an old daemon, a fresh one, and the node.

use std::path::Path;

use rand::RngExt;
use rand::rngs::StdRng;
use sdc_clients::vminfod::VmObject;
use serde_json::json;
use simnode::state::ZoneState;
use simnode::sysevent::Sysevent;
use simnode::{Node, NodeError, Verbs, files};

use crate::changes::{self, same_vms};

/// How many changes a seed makes: at least, and less than.
pub(super) const CHANGES: std::ops::Range<u32> = 10..40;

/// Changes something of a zone, a dataset or a file, or installs a second zone of one uuid. Returns what was done to
/// which VM.
pub(super) async fn change(verbs: &Verbs, rng: &mut StdRng) -> Result<String, NodeError> {
    let zones: Vec<String> = verbs.node().zones()?.iter().map(|z| z.zonename.clone()).collect();
    let kind = rng.random_range(0..12_u8);
    if zones.is_empty() || kind > 2 {
        return changes::change(verbs, rng).await;
    }
    let vm = &zones[rng.random_range(0..zones.len())];
    if kind == 0 {
        let name = format!("copy-{}", rng.random::<u32>());
        return install_copy(verbs.node(), vm, &name).map(|()| format!("{name} of {vm}"));
    }
    let zonepath = verbs.node().path(&verbs.node().zone(vm)?.zonepath);
    let name = ["metadata", "tags", "routes"][rng.random_range(0..3)];
    let how = edit(&zonepath.join(format!("config/{name}.json")), name, rng)?;
    Ok(format!("{name}.json {how} {vm}"))
}

/// Installs a zone with the uuid of another one, as one that was restored beside it.
fn install_copy(node: &Node, vm: &str, name: &str) -> Result<(), NodeError> {
    node.zfs(|all| all.create(&format!("zones/{name}")))?;
    let (mut zone, mut config) = (node.zone(vm)?, node.zone_config(vm)?);
    zone.zonepath = format!("/zones/{name}");
    config.put("name", name);
    config.put("zonepath", &zone.zonepath);
    name.clone_into(&mut zone.zonename);
    (zone.state, zone.zoneid, zone.kstat) = (ZoneState::Installed, None, None);
    node.step(|guard| {
        let mut zones = node.zones()?;
        zone.zonedid = zones.take_zonedid();
        zones.insert(zone);
        files::replace(&node.zone_xml(name), config.document().as_bytes())?;
        guard.save_zones(&zones)?;
        guard.post(&Sysevent::zone("zoneadm", name, "incomplete", "installed", None))
    })
}

/// Does to a configuration file what editors and other programs than vmadm do.
fn edit(file: &Path, name: &str, rng: &mut StdRng) -> Result<&'static str, NodeError> {
    let word = rng.random_range(0..1000_u16).to_string();
    let value = match name {
        "metadata" => json!({"customer_metadata": {"k": word}, "internal_metadata": {}}),
        "tags" => json!({"k": word}),
        _ => json!({format!("10.7.0.{}", word.len()): "10.7.0.1"}),
    };
    let text = value.to_string();
    Ok(match rng.random_range(0..4_u8) {
        0 => {
            files::remove_file(file)?;
            "removed"
        }
        1 => {
            files::replace(file, text.as_bytes())?;
            "replaced"
        }
        2 => {
            // Truncated first, as by a shell.
            files::write_in_place(file, b"")?;
            files::write_in_place(file, text.as_bytes())?;
            "emptied and written"
        }
        _ => {
            files::write_in_place(file, text.as_bytes())?;
            "written"
        }
    })
}

/// Compares what both daemons show with the node.
pub(super) fn agree(old: &[VmObject], fresh: &[VmObject], node: &[VmObject]) -> anyhow::Result<()> {
    for (whose, cache) in [("the old daemon", old), ("a fresh daemon", fresh)] {
        same_vms(cache, node).map_err(|what| anyhow::anyhow!("{whose}: {what}"))?;
    }
    Ok(())
}
