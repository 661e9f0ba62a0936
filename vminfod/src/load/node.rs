// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A whole node in one call: everything read, every object composed, bad zones kept apart.
//!
//! The zones' files are read while the commands that concern every VM still run; a zone that was
//! read before they ended keeps its parts only, and its object is composed afterwards. No more
//! trees of values are held at once than there are threads: what is to be kept of an object is made
//! where it was composed ([`node_of`]).

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sdc_clients::vminfod::VmObject;

use super::node_zones::{Group, Made, Make, One, Wide, Work, cores};
use super::zoneadm::{self, Listed};
use super::{
    Ctx, Datasets, Haste, LoadError, Origin, Sysinfo, ZoneKstat, datasets, kstat, sysinfo,
};
use crate::vm::Parts;
use crate::vm::draft::Draft;

pub use super::node_zones::zone;

/// Groups of zones that are read at once, at most …
const AT_ONCE: usize = 16;
/// … and beyond one for each core: some wait for their disk. More threads than that would each keep
/// memory that they once had.
const BEYOND_CORES: usize = 2;
/// The same in the background, which must leave room for everything else.
const BACKGROUND_AT_ONCE: usize = 2;
/// Zones of one group: enough that changing threads costs nothing.
const GROUP: usize = 48;
/// The same where each group has a thread made for it.
const THREAD_GROUP: usize = 256;

/// Everything that one load of a node gave.
#[derive(Debug, Clone)]
pub struct Node<T = VmObject> {
    /// The objects, or what was made of them, in zoneadm's order, those in state receiving last.
    pub vms: Vec<T>,
    /// The zones that have no object, and why.
    pub broken: Vec<Broken>,
    /// What the objects were made of (and what is known of broken zones is not in it), by zonename.
    pub parts: HashMap<Arc<str>, Parts>,
    /// zoneadm's rows.
    pub rows: Arc<Listed>,
    /// The kstats of all zones.
    pub kstats: Arc<HashMap<String, ZoneKstat>>,
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

/// What is known already: whatever says the same as before stays where it is in memory.
#[derive(Debug, Default)]
pub struct Known {
    /// The zones that need not be read again where their files are what they were, by zonename.
    pub zones: HashMap<Arc<str>, Parts>,
    /// The last list of them.
    pub rows: Arc<Listed>,
    /// The datasets of the node.
    pub datasets: Datasets,
}

/// Loads the whole node. Fails only when a source that concerns every VM does.
pub async fn node(ctx: &Ctx) -> Result<Node, LoadError> {
    node_of(ctx, VmObject::from).await
}

/// The same where something is made of each object at once, in the thread that composed it, so that
/// the drafts of all objects are never there together.
pub async fn node_of<T: Send + 'static>(
    ctx: &Ctx,
    make: impl Fn(Draft) -> T + Send + Sync + 'static,
) -> Result<Node<T>, LoadError> {
    everything(ctx, Known::default(), Some(Box::new(make)), Haste::Now).await
}

/// The same where most is known: files whose stamps are what they were when they were read are
/// confirmed unread. Composes no object, since nearly all would be what they are.
pub async fn refresh(ctx: &Ctx, known: Known, haste: Haste) -> Result<Node, LoadError> {
    everything(ctx, known, None, haste).await
}

async fn everything<T: Send + 'static>(
    ctx: &Ctx,
    known: Known,
    make: Option<Make<T>>,
    haste: Haste,
) -> Result<Node<T>, LoadError> {
    let at_once = if haste == Haste::Background { BACKGROUND_AT_ONCE } else { at_once() };
    let work = Arc::new(Work::new(make, haste, at_once));
    let Known { zones: mut known, rows: older, datasets } = known;
    let zones = async {
        let rows = zoneadm::list_after(ctx, &older).await?;
        let size = if haste == Haste::Now { GROUP } else { THREAD_GROUP };
        let groups = rows.chunks(size).map(|rows| Group::of(rows, &mut known, &work));
        let groups: Vec<Group<T>> = groups.collect();
        let (count, mut read) = (groups.len(), Read::with_room_for(rows.len()));
        let loaded = stream::iter(groups.into_iter().map(|group| group.load(ctx)));
        // However many wait for the commands, the next ones are read.
        let completed = loaded.buffered(at_once).map(|group| work.complete(ctx, group));
        let mut completed = pin!(completed.buffered(count.max(1)));
        while let Some(group) = completed.next().await {
            group.into_iter().for_each(|one| read.take(one));
        }
        Ok::<_, LoadError>((rows, read))
    };
    let wide = async {
        let (sysinfo, kstats, datasets) = tokio::try_join!(
            sysinfo::load(ctx),
            kstat::node(ctx),
            datasets::node_after(ctx, datasets)
        )?;
        let (kstats, sysinfo) = (Arc::new(kstats), Arc::new(sysinfo));
        Ok(work.show(Wide { kstats, datasets, sysinfo }))
    };
    let ((rows, read), Wide { kstats, datasets, sysinfo }) = tokio::try_join!(zones, wide)?;
    if !rows.is_empty() {
        have_pools(&datasets)?;
    }
    let Read { mut vms, mut receiving, broken, parts } = read;
    vms.append(&mut receiving);
    Ok(Node { vms, broken, parts, rows, kstats, datasets, sysinfo })
}

/// What was read of the zones so far, in zoneadm's order.
struct Read<T> {
    vms: Vec<T>,
    receiving: Vec<T>,
    broken: Vec<Broken>,
    parts: HashMap<Arc<str>, Parts>,
}

impl<T> Read<T> {
    fn with_room_for(zones: usize) -> Self {
        let (vms, parts) = (Vec::with_capacity(zones), HashMap::with_capacity(zones));
        Read { vms, receiving: Vec::new(), broken: Vec::new(), parts }
    }

    fn take(&mut self, One { row, loaded }: One<T>) {
        match loaded {
            Ok((parts, made)) => {
                let list = if parts.is_receiving() { &mut self.receiving } else { &mut self.vms };
                if let Made::Yes(vm) = made {
                    list.push(vm);
                }
                self.parts.insert(row.zonename.clone(), parts);
            }
            Err(error) => {
                let (zonename, uuid) = (row.zonename.to_string(), row.uuid.to_string());
                self.broken.push(Broken { zonename, uuid, error });
            }
        }
    }
}

fn at_once() -> usize {
    (cores() + BEYOND_CORES).min(AT_ONCE)
}

/// No pool has no dataset: by an empty list every VM would lose its disks, its quota and its
/// snapshots.
pub(super) fn have_pools(datasets: &Datasets) -> Result<(), LoadError> {
    if datasets.is_empty() {
        return Err(LoadError::content(Origin::Datasets, "expected a dataset, found nothing"));
    }
    Ok(())
}
