// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The whole node in one reading; zones that cannot be read are kept apart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use vm_model::VmObject;
use vm_model::compose::outline;
use vm_model::datasets::{Datasets, VmDatasets};
use vm_model::origin::Origin;
use vm_model::outline::Outline;
use vm_model::parse::kstat::ZoneKstat;
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parse::zfs_list::Row;
use vm_model::parse::zone_index::{is_written, lines as parse_index};
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use super::blocking::{caught, in_shares, threads};
use super::read::zone_files::{self, ZoneFiles};
use super::read::{datasets, kstat, sysinfo, zone_index, zone_xmls, zoneadm};
use super::root::{ReadError, Root};
use crate::node::ctx::Ctx;
use crate::node::error::{Fault, LoadError};

/// The zones of the node, as zoneadm and the zone index have them.
#[derive(Debug)]
pub struct Zones {
    /// zoneadm's rows, in its order.
    pub rows: Vec<Arc<ZoneRow>>,
    /// The zones of the zone index that have no readable row: the listing is not complete.
    pub unlisted: Vec<String>,
    /// The zones of a uuid that have an XML, and neither a row nor a line of the index.
    pub strays: Vec<String>,
    /// How many zones the index has.
    pub indexed: usize,
    /// There is no index with a line in it, and no row.
    pub is_blind: bool,
    /// The uuids of the zones of the index.
    uuids: HashSet<String>,
}

impl Zones {
    /// Returns true if a source has a zone of this name or uuid.
    pub fn has(&self, name: &str) -> bool {
        let is_listed = self.rows.iter().any(|row| *row.zonename == *name || *row.uuid == *name);
        let mut others = self.unlisted.iter().chain(&self.strays);
        is_listed || self.uuids.contains(name) || others.any(|other| other == name)
    }
}

/// One reading of the whole node.
#[derive(Debug)]
pub struct Node {
    pub zones: Zones,
    /// What was read of each zone's files, in the order of the rows.
    pub files: Vec<Result<ZoneFiles, LoadError>>,
    /// The kstats of all zones, by uuid.
    pub kstats: HashMap<String, ZoneKstat>,
    /// The filesystems and volumes of the node.
    pub datasets: Vec<Row>,
    /// The node itself.
    pub sysinfo: Arc<Sysinfo>,
    /// Of each uuid the zone that is shown.
    firsts: HashMap<Arc<str>, Arc<ZoneRow>>,
}

/// What is known of the zones: their files are read again only where a stamp differs.
pub type Known = HashMap<Arc<str>, Arc<Parts>>;

/// Reads everything but the snapshots, with `at_once` threads for files. `only`: of the zones this one, and
/// those of its uuid.
/// Errors: a source that concerns every VM fails.
pub async fn node(
    ctx: &Ctx,
    known: Known,
    at_once: usize,
    only: Option<&str>,
) -> Result<Node, LoadError> {
    let zones = async {
        let mut zones = zones(ctx).await?;
        if let Some(name) = only {
            let uuid =
                zones.rows.iter().find(|row| *row.zonename == *name).map(|row| row.uuid.clone());
            zones.rows.retain(|row| Some(&row.uuid) == uuid.as_ref());
        }
        for row in &mut zones.rows {
            // An equal row stays where it is, so that a refresh does not scatter memory.
            let old = known.get(&row.zonename).map(|parts| &parts.zone);
            *row = Arc::clone(old.filter(|old| *old == row).unwrap_or(row));
        }
        let files = zone_files(&ctx.root, &zones.rows, known, at_once).await;
        Ok::<_, LoadError>((zones, files))
    };
    let ((zones, files), kstats, datasets, sysinfo) =
        tokio::try_join!(zones, kstat::node(ctx), datasets::node(ctx), sysinfo::load(ctx))?;
    // A VM without any dataset would lose its disks, its quota and its snapshots.
    if !zones.rows.is_empty() && datasets.is_empty() {
        return Err(LoadError::content(Origin::Datasets, "expected a dataset, found nothing"));
    }
    let mut firsts = HashMap::new();
    for row in &zones.rows {
        let first = firsts.entry(Arc::clone(&row.uuid)).or_insert_with(|| Arc::clone(row));
        if first.rank() < row.rank() {
            *first = Arc::clone(row);
        }
    }
    Ok(Node { zones, files, kstats, datasets, sysinfo: Arc::new(sysinfo), firsts })
}

/// Reads the list of zones.
/// Errors: zoneadm fails, or the index exists and cannot be read.
pub async fn zones(ctx: &Ctx) -> Result<Zones, LoadError> {
    let listing = zoneadm::list(ctx).await?;
    // Afterwards: a zone that is created meanwhile is in the index first.
    let index = zone_index::load(ctx).await;
    let index = index.map_err(|e| LoadError::new(Origin::Zoneadm, Fault::Read(e)))?;
    // Last: a zone that is deleted meanwhile loses its XML with its line.
    let mut strays =
        zone_xmls::uuids(ctx).await.map_err(|e| LoadError::new(Origin::ZoneXml, Fault::Read(e)))?;
    let lines: Vec<_> = parse_index(&index).collect();
    let indexed: HashSet<&str> = lines.iter().map(|line| line.name).collect();
    strays.retain(|name| !listing.names.contains(name) && !indexed.contains(&**name));
    let unlisted = lines.iter().filter(|line| !listing.names.contains(line.name));
    Ok(Zones {
        unlisted: unlisted.map(|line| line.name.to_owned()).collect(),
        strays,
        indexed: lines.len(),
        is_blind: !is_written(&index) && listing.rows.is_empty(),
        uuids: lines.iter().filter_map(|line| line.uuid.map(str::to_owned)).collect(),
        rows: listing.rows,
    })
}

async fn zone_files(
    root: &Root,
    rows: &[Arc<ZoneRow>],
    known: Known,
    at_once: usize,
) -> Vec<Result<ZoneFiles, LoadError>> {
    let places = rows.iter().map(|row| Arc::clone(&row.zonepath)).collect();
    let rows = rows.to_vec();
    let read = move |root: &Root, at: usize| match rows.get(at) {
        Some(row) => {
            zone_files::read(root, row, known.get(&row.zonename).map(|it| &**it), Stale::ALL)
        }
        None => Err(LoadError::new(Origin::Times, Fault::Absent)),
    };
    let hangs = |error: ReadError| LoadError::new(Origin::Times, Fault::Read(error));
    let read = root.on_each(places, at_once, read).await;
    read.into_iter().map(|zone| zone.map_err(hangs).flatten()).collect()
}

impl Node {
    /// The zone of the same uuid that is shown.
    fn first<'a>(&'a self, row: &'a Arc<ZoneRow>) -> &'a Arc<ZoneRow> {
        self.firsts.get(&row.uuid).unwrap_or(row)
    }

    /// Fails if another zone of its uuid ranks before this one.
    fn check_first(&self, row: &Arc<ZoneRow>) -> Result<(), LoadError> {
        let first = self.first(row);
        if first.zonename == row.zonename { Ok(()) } else { Err(outranked_by(&first.zonename)) }
    }

    /// The parts of one zone, by its place among the rows; `datasets` are those of the node with
    /// their snapshots.
    pub fn parts_at(
        &self,
        at: usize,
        datasets: &Datasets,
    ) -> Option<(Arc<ZoneRow>, Result<Parts, LoadError>)> {
        let (row, files) = (self.zones.rows.get(at)?, self.files.get(at)?);
        let parts = files.clone().map(|files| {
            // As deployed, that of the zone with this name; not that of another zone of the uuid.
            let is_others = row.zoneid.is_none() && self.first(row).zoneid.is_some();
            let kstat = self.kstats.get(&*row.uuid).filter(|_| !is_others).cloned();
            assemble(row, files, kstat, datasets, &self.sysinfo)
        });
        Some((Arc::clone(row), parts))
    }

    /// The parts of each zone, in the order of the rows.
    pub fn parts<'a>(
        &'a self,
        datasets: &'a Datasets,
    ) -> impl Iterator<Item = (Arc<ZoneRow>, Result<Parts, LoadError>)> + 'a {
        (0..self.zones.rows.len()).filter_map(|at| self.parts_at(at, datasets))
    }
}

/// The parts of one VM from what was read of its sources.
pub fn assemble(
    row: &Arc<ZoneRow>,
    files: ZoneFiles,
    kstat: Option<ZoneKstat>,
    datasets: &Datasets,
    sysinfo: &Arc<Sysinfo>,
) -> Parts {
    let ZoneFiles { xml, config, lastexited, stamps, receiving, doubts: _ } = files;
    let (zone, sysinfo) = (Arc::clone(row), Arc::clone(sysinfo));
    let mut parts = Parts {
        zone,
        xml,
        kstat,
        config,
        lastexited,
        stamps,
        receiving,
        datasets: VmDatasets::default(),
        sysinfo,
    };
    parts.datasets = own_datasets(&parts, datasets);
    parts
}

/// The datasets of one VM, among all of the node.
pub fn own_datasets(parts: &Parts, all: &Datasets) -> VmDatasets {
    all.only(parts.dataset_names(all).iter().map(String::as_str))
}

/// The object of these parts.
/// Errors: a source has a value that no field can hold. A panic fails this VM only.
pub fn composed(root: &Root, parts: &Parts) -> Result<Outline, LoadError> {
    let composed = caught(|| outline(parts));
    let composed = composed.map_err(|panic| LoadError::new(Origin::Times, Fault::Read(panic)))?;
    composed.map_err(|error| {
        let is_xml = error.origin == Origin::ZoneXml;
        let error = LoadError::from(error);
        if is_xml { error.in_file(root.zone_xml(&parts.zone.zonename)) } else { error }
    })
}

/// The fault of a zone that is not shown because this one has the same uuid and ranks before it.
pub fn outranked_by(zone: &str) -> LoadError {
    LoadError::content(Origin::Zoneadm, format!("not shown: zone {zone} has the same uuid"))
}

/// The objects of a node that was read without a daemon.
#[derive(Debug)]
pub struct Objects {
    /// In zoneadm's order, those in state receiving last.
    pub vms: Vec<VmObject>,
    /// The zones that have no object: name, uuid, why.
    pub broken: Vec<(String, String, LoadError)>,
}

/// Reads and composes the whole node, snapshots included.
/// Errors: a source that concerns every VM fails.
pub async fn objects(ctx: &Ctx) -> Result<Objects, LoadError> {
    objects_of(ctx, None).await
}

async fn objects_of(ctx: &Ctx, only: Option<&str>) -> Result<Objects, LoadError> {
    let (mut node, snapshots) =
        tokio::try_join!(node(ctx, Known::new(), threads(), only), datasets::snapshots(ctx))?;
    let mut datasets: Datasets = std::mem::take(&mut node.datasets).into_iter().collect();
    datasets.replace_snapshots(snapshots);
    let root = ctx.root.clone();
    let objects = in_shares((0..node.zones.rows.len()).collect(), move |at| {
        let (row, parts) = node.parts_at(at, &datasets)?;
        let object = parts.and_then(|parts| {
            let vm = composed(&root, &parts)?.whole();
            node.check_first(&row)?;
            Ok((parts.is_receiving(), vm))
        });
        Some((row, object))
    });
    let (mut vms, mut receiving, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for (row, object) in objects.await.into_iter().flatten() {
        match object {
            Ok((true, vm)) => receiving.push(vm),
            Ok((false, vm)) => vms.push(vm),
            Err(error) => broken.push((row.zonename.to_string(), row.uuid.to_string(), error)),
        }
    }
    vms.append(&mut receiving);
    Ok(Objects { vms, broken })
}

/// Reads and composes one VM, exactly as [`objects`] shows it; `None` if there is no such zone.
/// The datasets are those of the whole node: one of any pool may be mounted where the VM is.
/// Errors: a source that concerns every VM fails, or one of the VM's own.
pub async fn object(ctx: &Ctx, zonename: &str) -> Result<Option<VmObject>, LoadError> {
    let Objects { vms, broken } = objects_of(ctx, Some(zonename)).await?;
    match broken.into_iter().find(|(name, ..)| name == zonename) {
        Some((.., error)) => Err(error),
        None => Ok(vms.into_iter().next()),
    }
}
