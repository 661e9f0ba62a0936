// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A whole node in one call: everything read, every object composed, bad zones kept apart.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sdc_clients::vminfod::VmObject;

use super::{
    Ctx, Datasets, Fault, LoadError, Origin, Sysinfo, ZoneKstat, ZoneRow, config, datasets, kstat,
    lastexited, receiving, sysinfo, times, zone_xml, zoneadm,
};
use crate::vm::{self, ComposeError, Parts};

/// How many zones are read at once.
const AT_ONCE: usize = 8;

/// Everything that one load of a node gave.
#[derive(Debug, Clone)]
pub struct Node {
    /// The objects, in zoneadm's order, those in state receiving last.
    pub vms: Vec<VmObject>,
    /// The zones that have no object, and why.
    pub broken: Vec<Broken>,
    /// What the objects were made of (and what is known of broken zones is not in it), by zonename.
    pub parts: HashMap<String, Parts>,
    /// zoneadm's rows.
    pub rows: Vec<Arc<ZoneRow>>,
    /// The kstats of all zones.
    pub kstats: HashMap<String, ZoneKstat>,
    /// The datasets of the node.
    pub datasets: Datasets,
    /// The node itself.
    pub sysinfo: Arc<Sysinfo>,
}

/// A zone whose object could not be made.
#[derive(Debug, Clone)]
pub struct Broken {
    /// Its name.
    pub zonename: String,
    /// Its uuid.
    pub uuid: String,
    /// Why.
    pub error: LoadError,
}

/// What is read for one zone alone.
pub type ZoneParts = Parts;

/// Loads the whole node. Fails only when a source that concerns every VM does.
pub async fn node(ctx: &Ctx) -> Result<Node, LoadError> {
    let (rows, sysinfo, kstats, datasets) = tokio::try_join!(
        zoneadm::list(ctx),
        sysinfo::load(ctx),
        kstat::node(ctx),
        datasets::node(ctx)
    )?;
    let rows: Vec<Arc<ZoneRow>> = rows.into_iter().map(Arc::new).collect();
    let loads = rows.iter().cloned().map(|row| {
        let kstat = kstat::of(&kstats, &row).cloned();
        zone(ctx, row, kstat)
    });
    let loaded: Vec<Result<Parts, LoadError>> =
        stream::iter(loads).buffered(AT_ONCE).collect().await;
    let mut node = Node {
        vms: Vec::new(),
        broken: Vec::new(),
        parts: HashMap::new(),
        rows: rows.clone(),
        kstats,
        datasets,
        sysinfo: Arc::new(sysinfo),
    };
    let mut receiving = Vec::new();
    for (row, loaded) in rows.iter().zip(loaded) {
        let composed = loaded.and_then(|parts| {
            let vm = vm::compose(&parts, &node.datasets, &node.sysinfo)
                .map_err(|e| LoadError::from_compose(ctx, &parts, e))?;
            Ok((parts, vm))
        });
        match composed {
            Ok((parts, vm)) => {
                let list = if parts.is_receiving() { &mut receiving } else { &mut node.vms };
                list.push(vm);
                node.parts.insert(row.zonename.clone(), parts);
            }
            Err(error) => {
                let (zonename, uuid) = (row.zonename.clone(), row.uuid.clone());
                node.broken.push(Broken { zonename, uuid, error });
            }
        }
    }
    node.vms.append(&mut receiving);
    Ok(node)
}

/// Reads what concerns one zone alone; `kstat` comes from the node's.
pub async fn zone(
    ctx: &Ctx,
    zone: Arc<ZoneRow>,
    kstat: Option<ZoneKstat>,
) -> Result<Parts, LoadError> {
    if zone.zonepath.is_empty() {
        let what = format!("expected a path for the zone {}, found none", zone.zonename);
        return Err(LoadError::content(Origin::Zoneadm, what));
    }
    let xml = zone_xml::load(ctx, &zone.zonename).await?;
    let lastexited = lastexited::load(ctx, &zone).await?;
    let last_modified = times::load(ctx, &zone).await?;
    let config = Arc::new(config::load(ctx, &zone).await?);
    let receives = vm::state_of(&zone, &xml) == "receiving";
    let receiving = if receives { receiving::load(ctx, &zone).await? } else { None };
    Ok(Parts { zone, xml, kstat, config, lastexited, last_modified, receiving })
}

impl LoadError {
    /// What a failed composition means for the source it blames.
    pub fn from_compose(ctx: &Ctx, parts: &Parts, error: ComposeError) -> LoadError {
        let origin = error.origin;
        let fault = match error.line {
            Some(line) => Fault::Line { line, what: error.what },
            None => Fault::Content(error.what),
        };
        let load = LoadError::new(origin, fault);
        match origin {
            Origin::ZoneXml => load.in_file(ctx.root.zone_xml(&parts.zone.zonename)),
            _ => load,
        }
    }
}
