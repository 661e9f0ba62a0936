// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zones of a node, some at a time: read, and composed as soon as what concerns every VM is
//! known.
//!
//! Must never hold more trees of values than it works on: what was read is packed before the next
//! zone is.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Semaphore, SetOnce};

use super::times::{self, Opened, Stamps};
use super::{
    ConfigJson, ConfigValues, Ctx, Datasets, Fault, Haste, LastExited, LoadError, Origin,
    PackedXml, Sysinfo, ZoneKstat, ZoneRow, ZoneXml, config, kstat, lastexited, receiving,
    zone_xml,
};
use crate::root::{ReadError, Root};
use crate::vm::draft::Draft;
use crate::vm::{self, ComposeError, Parts, Unpacked};

/// Readings of files that change meanwhile.
const TRIES: u32 = 3;

/// What concerns every VM.
#[derive(Clone)]
pub(super) struct Wide {
    pub kstats: Arc<HashMap<String, ZoneKstat>>,
    pub datasets: Datasets,
    pub sysinfo: Arc<Sysinfo>,
}

/// What is made of an object.
pub(super) type Make<T> = Box<dyn Fn(Draft) -> T + Send + Sync>;

/// What all groups of one load share.
pub(super) struct Work<T> {
    /// Empty until the commands have ended.
    wide: SetOnce<Wide>,
    /// `None`: no objects are wanted.
    make: Option<Make<T>>,
    haste: Haste,
    /// Groups that may be read at once: as long as the commands run, one less than there are cores.
    /// What they print has to be read, too, and a zone that is read before they ended costs more.
    room: Semaphore,
    /// How many more once they have ended.
    held_back: usize,
}

/// Whether something was made of a zone's object.
pub(super) enum Made<T> {
    /// Not yet, or none is wanted.
    No,
    /// This.
    Yes(T),
}

/// A zone, and its parts with what was made of them.
pub(super) struct One<T> {
    pub row: Arc<ZoneRow>,
    pub loaded: Loaded<T>,
}

type Loaded<T> = Result<(Parts, Made<T>), LoadError>;

/// Some zones that are read together.
pub(super) struct Group<T> {
    zones: Vec<Zone>,
    work: Arc<Work<T>>,
}

/// One of them, and what is known of it.
#[derive(Clone)]
struct Zone {
    row: Arc<ZoneRow>,
    known: Option<Parts>,
}

impl<T: Send + 'static> Group<T> {
    pub(super) fn of(
        rows: &[Arc<ZoneRow>],
        known: &mut HashMap<Arc<str>, Parts>,
        work: &Arc<Work<T>>,
    ) -> Self {
        let zone =
            |row: &Arc<ZoneRow>| Zone { row: Arc::clone(row), known: known.remove(&row.zonename) };
        Group { zones: rows.iter().map(zone).collect(), work: Arc::clone(work) }
    }

    /// One after another; a zone whose file system hangs has to do without.
    pub(super) async fn load(self, ctx: &Ctx) -> Vec<One<T>> {
        let work = Arc::clone(&self.work);
        // Nobody closes it.
        let _room = work.room.acquire().await.ok();
        let rows: Vec<_> = self.zones.iter().map(|zone| Arc::clone(&zone.row)).collect();
        let places = rows.iter().map(|row| Arc::clone(&row.zonepath)).collect();
        let (zones, shared, files) = (self.zones, Arc::clone(&self.work), ctx.clone());
        let work = move |root: &Root, at: usize| {
            let loaded = zones.get(at).map(|zone| shared.one(&files, root, zone.clone()));
            if shared.haste != Haste::Now {
                // Who waits for less may have waited for this thread to use up its turn: Linux lets
                // it, whatever its priority.
                std::thread::yield_now();
            }
            loaded
        };
        let loaded = ctx.root.walk(places, self.work.haste, work).await;
        let failed = |error| Err(LoadError::new(Origin::ZoneXml, Fault::Read(error)));
        let one = |(row, loaded): (Arc<ZoneRow>, Result<Option<Loaded<T>>, ReadError>)| {
            let loaded = loaded.transpose().map(|loaded| loaded.unwrap_or_else(failed));
            loaded.map(|loaded| One { row, loaded })
        };
        rows.into_iter().zip(loaded).filter_map(one).collect()
    }
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn new(make: Option<Make<T>>, haste: Haste, at_once: usize) -> Self {
        let first = if haste == Haste::Now { (cores() - 1).clamp(1, at_once) } else { at_once };
        let (room, held_back) = (Semaphore::new(first), at_once - first);
        Work { wide: SetOnce::new(), make, haste, room, held_back }
    }

    /// Lets all that is read be composed.
    pub(super) fn show(&self, wide: Wide) -> Wide {
        // A second one would be no news.
        let _first = self.wide.set(wide.clone());
        self.room.add_permits(self.held_back);
        wide
    }

    /// Reads a zone, and composes it if that can be done already.
    fn one(&self, ctx: &Ctx, root: &Root, zone: Zone) -> Loaded<T> {
        read(root, zone).and_then(|(parts, unpacked)| match self.wide.get() {
            Some(wide) => self.made(ctx, wide, parts, unpacked),
            None => Ok((parts, Made::No)),
        })
    }

    fn made(
        &self,
        ctx: &Ctx,
        wide: &Wide,
        mut parts: Parts,
        unpacked: Option<Unpacked>,
    ) -> Loaded<T> {
        parts.kstat = kstat::of(&wide.kstats, &parts.zone).cloned();
        let Some(make) = &self.make else { return Ok((parts, Made::No)) };
        let unpacked = unpacked.unwrap_or_else(|| parts.unpack());
        match vm::draft(&parts, unpacked, &wide.datasets, &wide.sysinfo) {
            Ok(vm) => Ok((parts, Made::Yes(make(vm)))),
            Err(e) => Err(LoadError::from_compose(ctx, &parts, e)),
        }
    }

    /// Composes what was read before what concerns every VM was known, as soon as it is.
    pub(super) async fn complete(self: &Arc<Self>, ctx: &Ctx, group: Vec<One<T>>) -> Vec<One<T>> {
        let lacks = |one: &One<T>| matches!(one.loaded, Ok((_, Made::No)));
        if !group.iter().any(lacks) {
            return group;
        }
        let (work, wide, ctx) = (Arc::clone(self), self.wide.wait().await.clone(), ctx.clone());
        let rows: Vec<Arc<ZoneRow>> = group.iter().map(|one| Arc::clone(&one.row)).collect();
        let each = move |One { row, loaded }: One<T>| {
            let loaded = match loaded {
                Ok((parts, Made::No)) => work.made(&ctx, &wide, parts, None),
                loaded => loaded,
            };
            One { row, loaded }
        };
        if self.make.is_none() {
            return group.into_iter().map(each).collect();
        }
        let _room = self.room.acquire().await.ok();
        let all = move || group.into_iter().map(each).collect();
        tokio::task::spawn_blocking(all).await.unwrap_or_else(|panic| {
            // Nothing of it is left, so each of its zones is tried again.
            let error = ReadError::io(std::io::Error::other(panic));
            let error = LoadError::new(Origin::ZoneXml, Fault::Read(error));
            rows.into_iter().map(|row| One { row, loaded: Err(error.clone()) }).collect()
        })
    }
}

/// How many threads can work at once.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Reads what concerns one zone alone; `kstat` comes from the node's.
pub async fn zone(
    ctx: &Ctx,
    zone: Arc<ZoneRow>,
    kstat: Option<ZoneKstat>,
) -> Result<Parts, LoadError> {
    let place = zone.zonepath.clone();
    let zone = Zone { row: zone, known: None };
    let read = ctx.on_files(Origin::ZoneXml, &place, move |root| Ok(read(root, zone)?.0)).await?;
    Ok(Parts { kstat, ..read })
}

/// The parts without the kstat, and what was read anew before it was packed.
fn read(root: &Root, zone: Zone) -> Result<(Parts, Option<Unpacked>), LoadError> {
    let Zone { row: zone, known } = zone;
    if zone.zonepath.is_empty() {
        let what = format!("expected a path for the zone {}, found none", zone.zonename);
        return Err(LoadError::content(Origin::Zoneadm, what));
    }
    let kstat = None;
    if let Some(known) = known.filter(|known| known.zone.zonepath == zone.zonepath) {
        let stamps = times::read(root, &zone)?;
        if known.stamps.confirmed_by(&stamps) {
            let receives = vm::state_of(&zone, &known.xml) == "receiving";
            let receiving = if receives { receiving::read(root, &zone)? } else { None };
            // What is the same stays where it is in memory.
            let zone = if *known.zone == *zone { Arc::clone(&known.zone) } else { zone };
            let parts = Parts { zone, kstat, stamps, receiving, ..known };
            return Ok((parts, None));
        }
    }
    let (xml, lastexited, config, stamps) = files(root, &zone)?;
    let unpacked = Unpacked { xml, config };
    let xml = Arc::new(PackedXml::from(&unpacked.xml));
    let config = Arc::new(ConfigJson::from(&unpacked.config));
    let receives = vm::state_of(&zone, &xml) == "receiving";
    let receiving = if receives { receiving::read(root, &zone)? } else { None };
    let parts = Parts { zone, xml, kstat, config, lastexited, stamps, receiving };
    Ok((parts, Some(unpacked)))
}

type Files = (ZoneXml, Option<LastExited>, ConfigValues, Stamps);

/// All files of a zone, with the stamps of just these. No object may have the time of a file that
/// it was not made of.
fn files(root: &Root, zone: &ZoneRow) -> Result<Files, LoadError> {
    let mut opened = Opened::begin();
    let (xml, lastexited, config) = contents(root, zone, &mut opened)?;
    if let Some(stamps) = opened.stamps() {
        return Ok((xml, lastexited, config, stamps));
    }
    // A link stands there, or what cannot be read: what it is has to be known before it is read.
    let mut stamps = times::read(root, zone)?;
    let mut tries = 0;
    loop {
        let (xml, lastexited, config) = contents(root, zone, &mut Opened::begin())?;
        tries += 1;
        let after = times::read(root, zone)?;
        if after == stamps || tries == TRIES {
            return Ok((xml, lastexited, config, stamps));
        }
        stamps = after;
    }
}

fn contents(
    root: &Root,
    zone: &ZoneRow,
    opened: &mut Opened,
) -> Result<(ZoneXml, Option<LastExited>, ConfigValues), LoadError> {
    let xml = zone_xml::read(root, &zone.zonename, opened)?;
    let lastexited = lastexited::read(root, zone, opened)?;
    let config = config::read(root, zone, opened)?;
    Ok((xml, lastexited, config))
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
