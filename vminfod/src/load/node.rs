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
/// The same in the background, which must leave room for everything else.
const BACKGROUND_AT_ONCE: usize = 2;
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

/// What is known of the zones already, by zonename.
pub type Known = HashMap<String, Parts>;

/// Loads the whole node. Fails only when a source that concerns every VM does.
pub async fn node(ctx: &Ctx) -> Result<Node, LoadError> {
    everything(ctx, None, Haste::Now).await
}

/// The same where most is known: files whose stamps are what they were when they were read are
/// confirmed unread. Composes no object, since nearly all would be what they are.
pub async fn refresh(ctx: &Ctx, known: Known, haste: Haste) -> Result<Node, LoadError> {
    everything(ctx, Some(known), haste).await
}

/// Whether somebody waits for what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// Yes.
    Now,
    /// No: the files are read at low priority.
    Background,
}

async fn everything(ctx: &Ctx, known: Option<Known>, haste: Haste) -> Result<Node, LoadError> {
    let at_once = if haste == Haste::Now { AT_ONCE } else { BACKGROUND_AT_ONCE };
    let composes = known.is_none();
    let mut known = known.unwrap_or_default();
    let (rows, sysinfo, kstats, datasets) = tokio::try_join!(
        zoneadm::list(ctx),
        sysinfo::load(ctx),
        kstat::node(ctx),
        datasets::node(ctx)
    )?;
    if !rows.is_empty() {
        have_pools(&datasets)?;
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
    let groups = rows.chunks(GROUP).map(|rows| Group::of(&node, rows, &mut known, composes, haste));
    let groups: Vec<Group> = groups.collect();
    let mut loads = stream::iter(groups.into_iter().map(|group| group.load(ctx))).buffered(at_once);
    let mut receiving = Vec::new();
    while let Some(loaded) = loads.next().await {
        for (row, loaded) in loaded {
            match loaded {
                Ok((parts, vm)) => {
                    let list = if parts.is_receiving() { &mut receiving } else { &mut node.vms };
                    list.extend(vm);
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

/// No pool has no dataset: by an empty list every VM would lose its disks, its quota and its
/// snapshots.
pub(super) fn have_pools(datasets: &Datasets) -> Result<(), LoadError> {
    if datasets.is_empty() {
        return Err(LoadError::content(Origin::Datasets, "expected a dataset, found nothing"));
    }
    Ok(())
}

/// The parts, and the object if one was wanted.
type Loaded = Result<(Parts, Option<VmObject>), LoadError>;

/// Some zones that are read and composed together, with what concerns all of them.
#[derive(Clone)]
struct Group {
    zones: Vec<Zone>,
    datasets: Datasets,
    sysinfo: Arc<Sysinfo>,
    composes: bool,
    haste: Haste,
}

/// One of them, and what is known of it.
#[derive(Clone)]
struct Zone {
    row: Arc<ZoneRow>,
    kstat: Option<ZoneKstat>,
    known: Option<Parts>,
}

impl Group {
    fn of(
        node: &Node,
        rows: &[Arc<ZoneRow>],
        known: &mut Known,
        composes: bool,
        haste: Haste,
    ) -> Self {
        let zone = |row: &Arc<ZoneRow>| Zone {
            row: row.clone(),
            kstat: kstat::of(&node.kstats, row).cloned(),
            known: known.remove(&row.zonename),
        };
        Group {
            zones: rows.iter().map(zone).collect(),
            datasets: node.datasets.clone(),
            sysinfo: node.sysinfo.clone(),
            composes,
            haste,
        }
    }

    /// All at once; if that outlasts the deadline of a read, one by one, so that only the zone
    /// whose file system hangs has to do without.
    async fn load(self, ctx: &Ctx) -> Vec<(Arc<ZoneRow>, Loaded)> {
        let (group, files) = (self.clone(), ctx.clone());
        let work = move |_: &Root| {
            let read = |zone: &Zone| {
                let parts = read(&files.root, zone.clone());
                if group.haste == Haste::Background {
                    std::thread::yield_now();
                }
                (zone.row.clone(), parts.and_then(|parts| group.compose(&files, parts)))
            };
            group.zones.iter().map(read).collect()
        };
        let loaded = match self.haste {
            Haste::Now => ctx.root.on_files(work).await,
            Haste::Background => ctx.root.on_files_in_background(work).await,
        };
        if let Ok(loaded) = loaded {
            return loaded;
        }
        let mut loaded = Vec::with_capacity(self.zones.len());
        for zone in &self.zones {
            let one = zone.clone();
            let parts = ctx.on_files(Origin::ZoneXml, move |root| read(root, one)).await;
            loaded.push((zone.row.clone(), parts.and_then(|parts| self.compose(ctx, parts))));
        }
        loaded
    }

    fn compose(&self, ctx: &Ctx, parts: Parts) -> Loaded {
        if !self.composes {
            return Ok((parts, None));
        }
        match vm::compose(&parts, &self.datasets, &self.sysinfo) {
            Ok(vm) => Ok((parts, Some(vm))),
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
    let zone = Zone { row: zone, kstat, known: None };
    ctx.on_files(Origin::ZoneXml, move |root| read(root, zone)).await
}

fn read(root: &Root, zone: Zone) -> Result<Parts, LoadError> {
    let Zone { row: zone, kstat, known } = zone;
    if zone.zonepath.is_empty() {
        let what = format!("expected a path for the zone {}, found none", zone.zonename);
        return Err(LoadError::content(Origin::Zoneadm, what));
    }
    // No object may have the time of a file that it was not made of.
    let mut stamps = times::read(root, &zone)?;
    let last_modified = stamps.last_modified;
    if let Some(known) = known.filter(|known| known.zone.zonepath == zone.zonepath)
        && known.stamps.confirmed_by(&stamps)
    {
        let receives = vm::state_of(&zone, &known.xml) == "receiving";
        let receiving = if receives { receiving::read(root, &zone)? } else { None };
        return Ok(Parts { zone, kstat, last_modified, stamps, receiving, ..known });
    }
    let mut tries = 0;
    let (xml, lastexited, config) = loop {
        let xml = zone_xml::read(root, &zone.zonename)?;
        let lastexited = lastexited::read(root, &zone)?;
        let config = Arc::new(config::read(root, &zone)?);
        tries += 1;
        let after = times::read(root, &zone)?;
        if after == stamps || tries == TRIES {
            break (xml, lastexited, config);
        }
        stamps = after;
    };
    let xml = Arc::new(PackedXml::from(&xml));
    let receives = vm::state_of(&zone, &xml) == "receiving";
    let receiving = if receives { receiving::read(root, &zone)? } else { None };
    let last_modified = stamps.last_modified;
    Ok(Parts { zone, xml, kstat, config, lastexited, last_modified, stamps, receiving })
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
