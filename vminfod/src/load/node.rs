// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A whole node in one call: everything read, every object composed, bad zones kept apart.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sdc_clients::vminfod::VmObject;

use super::{
    Ctx, Datasets, Fault, LoadError, Origin, PackedXml, Sysinfo, ZoneKstat, ZoneRow, config,
    datasets, kstat, lastexited, receiving, sysinfo, times, zone_xml, zoneadm,
};
use crate::root::Root;
use crate::vm::{self, ComposeError, Parts};

/// How many groups of zones are read at once.
const AT_ONCE: usize = 8;
/// Zones of one group: enough that changing threads costs nothing, few enough that one that hangs
/// holds up few.
const GROUP: usize = 32;

/// Readings of files that change meanwhile.
const TRIES: u32 = 3;

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
    if datasets.is_empty() && !rows.is_empty() {
        // No pool has no dataset: every VM would lose its disks, its quota and its snapshots.
        return Err(LoadError::content(Origin::Datasets, "expected a dataset, found nothing"));
    }
    let rows: Vec<Arc<ZoneRow>> = rows.into_iter().map(Arc::new).collect();
    let mut node = Node {
        vms: Vec::with_capacity(rows.len()),
        broken: Vec::new(),
        parts: HashMap::with_capacity(rows.len()),
        rows: rows.clone(),
        kstats,
        datasets,
        sysinfo: Arc::new(sysinfo),
    };
    let groups: Vec<Group> = rows.chunks(GROUP).map(|rows| Group::of(&node, rows)).collect();
    let mut loads = stream::iter(groups.into_iter().map(|group| group.load(ctx))).buffered(AT_ONCE);
    let mut receiving = Vec::new();
    while let Some(loaded) = loads.next().await {
        for (row, loaded) in loaded {
            match loaded {
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
    }
    drop(loads);
    node.vms.append(&mut receiving);
    Ok(node)
}

type Loaded = Result<(Parts, VmObject), LoadError>;

/// Some zones that are read and composed together, with what concerns all of them.
#[derive(Clone)]
struct Group {
    zones: Vec<(Arc<ZoneRow>, Option<ZoneKstat>)>,
    datasets: Datasets,
    sysinfo: Arc<Sysinfo>,
}

impl Group {
    fn of(node: &Node, rows: &[Arc<ZoneRow>]) -> Self {
        let kstat = |row: &Arc<ZoneRow>| kstat::of(&node.kstats, row).cloned();
        Group {
            zones: rows.iter().map(|row| (row.clone(), kstat(row))).collect(),
            datasets: node.datasets.clone(),
            sysinfo: node.sysinfo.clone(),
        }
    }

    /// All at once; if that outlasts the deadline of a read, one by one, so that only the zone
    /// whose file system hangs has to do without.
    async fn load(self, ctx: &Ctx) -> Vec<(Arc<ZoneRow>, Loaded)> {
        let (group, files) = (self.clone(), ctx.clone());
        let work = move |_: &Root| {
            let read = |(row, kstat): &(Arc<ZoneRow>, Option<ZoneKstat>)| {
                let parts = read(&files.root, row.clone(), kstat.clone());
                (row.clone(), parts.and_then(|parts| group.compose(&files, parts)))
            };
            group.zones.iter().map(read).collect()
        };
        if let Ok(loaded) = ctx.root.on_files(work).await {
            return loaded;
        }
        let mut loaded = Vec::with_capacity(self.zones.len());
        for (row, kstat) in &self.zones {
            let parts = zone(ctx, row.clone(), kstat.clone()).await;
            loaded.push((row.clone(), parts.and_then(|parts| self.compose(ctx, parts))));
        }
        loaded
    }

    fn compose(&self, ctx: &Ctx, parts: Parts) -> Loaded {
        match vm::compose(&parts, &self.datasets, &self.sysinfo) {
            Ok(vm) => Ok((parts, vm)),
            Err(e) => Err(LoadError::from_compose(ctx, &parts, e)),
        }
    }
}

/// Reads what concerns one zone alone; `kstat` comes from the node's.
pub async fn zone(
    ctx: &Ctx,
    zone: Arc<ZoneRow>,
    kstat: Option<ZoneKstat>,
) -> Result<Parts, LoadError> {
    ctx.on_files(Origin::ZoneXml, move |root| read(root, zone, kstat)).await
}

fn read(root: &Root, zone: Arc<ZoneRow>, kstat: Option<ZoneKstat>) -> Result<Parts, LoadError> {
    if zone.zonepath.is_empty() {
        let what = format!("expected a path for the zone {}, found none", zone.zonename);
        return Err(LoadError::content(Origin::Zoneadm, what));
    }
    // No object may have the time of a file that it was not made of.
    let mut last_modified = times::read(root, &zone)?;
    let mut tries = 0;
    let (xml, lastexited, config) = loop {
        let xml = zone_xml::read(root, &zone.zonename)?;
        let lastexited = lastexited::read(root, &zone)?;
        let config = Arc::new(config::read(root, &zone)?);
        tries += 1;
        let after = times::read(root, &zone)?;
        if after == last_modified || tries == TRIES {
            break (xml, lastexited, config);
        }
        last_modified = after;
    };
    let receives = vm::state_of(&zone, &xml) == "receiving";
    let receiving = if receives { receiving::read(root, &zone)? } else { None };
    let xml = Arc::new(PackedXml::from(&xml));
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
