// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the stale parts of one VM, in a task of its own.
//!
//! Must never decide what the reading means: it gives parts, or positive evidence that there is
//! no such zone.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::dirty::Stale;
use crate::load::datasets::Row;
use crate::load::{
    Ctx, Datasets, LoadError, ZoneFiles, ZoneRow, datasets, is_lower_uuid, kstat, zone_files,
    zoneadm,
};
use crate::vm::Parts;

/// Bytes of a zone index; real ones have some hundred a zone.
const INDEX_CAP: u64 = 16 << 20;

/// What a reading gave.
#[derive(Debug)]
pub enum Loaded {
    /// zoneadm knows no such zone and the index lacks it.
    Gone,
    /// The parts, the fresh ones in place of the stale.
    Parts(Box<Parts>, Vec<Fresh>),
}

/// A dataset that was listed along with a VM.
#[derive(Debug)]
pub struct Fresh {
    /// Its name; it may be gone.
    pub name: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// Why there is no reading.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LoadFault {
    /// A source failed.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// zoneadm denies a zone that the index lists.
    #[error("zoneadm knows no such zone, but the zone index lists it")]
    Disputed,
    /// The index cannot be read, so nothing may be deleted on zoneadm's word alone.
    #[error("zone index: {0}")]
    Index(String),
    /// zoneadm gave a zone without a path.
    #[error("zoneadm gave no zonepath")]
    NoPath,
    /// The object could not be made of its parts.
    #[error("{origin}: {what}")]
    Compose {
        /// The source to blame.
        origin: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The task died.
    #[error("the load panicked")]
    Panic,
}

impl LoadFault {
    /// The source, by name.
    pub fn source_name(&self) -> &'static str {
        match self {
            Self::Load(error) => error.source_name(),
            Self::Disputed | Self::NoPath => "zoneadm",
            Self::Index(_) => "zone index",
            Self::Compose { origin, .. } => origin,
            Self::Panic => "load",
        }
    }
}

/// One kstat reading at a time, shared by all who asked before it began.
#[derive(Debug, Default)]
pub struct Kstats(Mutex<Option<(Instant, Arc<kstat::Printed>)>>);

impl Kstats {
    /// A reading that began after this call.
    async fn fresh(&self, ctx: &Ctx) -> Result<Arc<kstat::Printed>, LoadError> {
        let asked = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((began, kstats)) = &*last
            && *began > asked
        {
            return Ok(Arc::clone(kstats));
        }
        let began = Instant::now();
        let kstats = kstat::Printed::load(ctx).await?;
        *last = Some((began, Arc::clone(&kstats)));
        Ok(kstats)
    }
}

/// What is to be read.
pub struct Task {
    /// How.
    pub ctx: Ctx,
    /// The shared kstat reading.
    pub kstats: Arc<Kstats>,
    /// The zone's name.
    pub name: String,
    /// What is known of it.
    pub known: Option<Parts>,
    /// What is stale of that.
    pub stale: Stale,
    /// Datasets to list along, if asked for.
    pub datasets: Vec<String>,
}

impl Task {
    /// Reads.
    pub async fn run(self) -> Result<Loaded, LoadFault> {
        let (ctx, mut stale) = (&self.ctx, self.stale);
        let row = match &self.known {
            Some(parts) if !stale.has(Stale::ZONEADM) => Arc::clone(&parts.zone),
            known => match self.row(known.as_ref()).await? {
                Some(row) => row,
                None => return Ok(Loaded::Gone),
            },
        };
        if row.zonepath.is_empty() {
            return Err(LoadFault::NoPath);
        }
        let known = self.known.as_ref().filter(|parts| parts.zone.zonepath == row.zonepath);
        if known.is_none() {
            stale |= Stale::ALL;
        }
        let fresh = self.fresh_datasets(&row).await?;
        let kstat = match known {
            Some(parts) if !stale.has(Stale::KSTAT) => parts.kstat.clone(),
            _ => self.kstats.fresh(ctx).await?.of(&row).await?,
        };
        let files = zone_files::load(ctx, &row, known, stale).await?;
        let ZoneFiles { xml, config, lastexited, stamps, receiving } = files;
        let parts = Parts { zone: row, xml, kstat, config, lastexited, stamps, receiving };
        Ok(Loaded::Parts(Box::new(parts), fresh))
    }

    async fn row(&self, known: Option<&Parts>) -> Result<Option<Arc<ZoneRow>>, LoadFault> {
        let uuid = match known {
            Some(parts) => Some(&*parts.zone.uuid),
            None => Some(self.name.as_str()),
        };
        let uuid = uuid.filter(|uuid| is_lower_uuid(uuid));
        if let Some(row) = zoneadm::one(&self.ctx, &self.name, uuid).await? {
            return Ok(Some(Arc::new(row)));
        }
        // A zone may only go when both say so.
        match self.ctx.root.read_capped(&self.ctx.root.zone_index(), INDEX_CAP).await {
            Ok(index) if lists(&index, &self.name) => match known {
                Some(_) => Err(LoadFault::Disputed),
                // Never was a VM: the global zone, or one without a uuid.
                None => Ok(None),
            },
            Ok(_) => Ok(None),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(LoadFault::Index(error.to_string())),
        }
    }

    async fn fresh_datasets(&self, row: &ZoneRow) -> Result<Vec<Fresh>, LoadFault> {
        if !self.stale.has(Stale::DATASETS) {
            return Ok(Vec::new());
        }
        let mut names = self.datasets.clone();
        if names.is_empty() {
            names.push(row.zonepath.trim_start_matches('/').to_owned());
        }
        let mut fresh = Vec::new();
        for name in names {
            let rows = datasets::one(&self.ctx, &name).await?;
            fresh.push(Fresh { name, rows });
        }
        Ok(fresh)
    }
}

/// The datasets that one VM's object is made of, those that exist, did or should.
pub fn datasets_of(parts: &Parts, datasets: &Datasets) -> Vec<String> {
    let zonepath = &parts.zone.zonepath;
    let root = datasets.at(zonepath).map_or(zonepath.trim_start_matches('/'), Row::name).to_owned();
    let mut names = vec![root.clone()];
    let delegated = format!("{root}/data");
    if datasets.get(&delegated).is_some() {
        names.push(delegated);
    }
    for path in &parts.xml.devices() {
        // A volume that is not there now has its name in its path.
        let volume = path.strip_prefix(datasets::DEVICES).filter(|name| !name.is_empty());
        names.extend(datasets.at(path).map(Row::name).or(volume).map(str::to_owned));
    }
    names.dedup();
    names
}

/// Does a zone index have a line for this zone?
pub fn lists(index: &[u8], name: &str) -> bool {
    index
        .split(|byte| *byte == b'\n')
        .any(|line| line.split(|byte| *byte == b':').next() == Some(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lines() {
        let index = b"# comment\nglobal:installed:/:\nz1:running:/zones/z1:u1\n";
        assert!(lists(index, "z1") && lists(index, "global"));
        assert!(!lists(index, "z") && !lists(index, "u1") && !lists(b"", "z1"));
    }
}
