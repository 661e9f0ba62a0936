// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the stale parts of one VM, in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use vm_model::origin::Origin;
use vm_model::parse::kstat::ZoneKstat;
use vm_model::parse::text::is_lower_uuid;
use vm_model::parse::zone_index::lines;
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use crate::node::read::zone_files::{self, ZoneFiles};
use crate::node::read::{kstat, zone_index, zoneadm};
use crate::node::root::ReadError;
use crate::node::{Ctx, Fault, LoadError};

/// An invalid file this soon after its signal may still be written …
const YOUNG: Duration = Duration::from_millis(50);
/// … and is read once more after this.
const SETTLE: Duration = Duration::from_millis(20);

/// The result of a reading.
#[derive(Debug)]
pub enum Loaded {
    /// zoneadm knows no such zone and the index lacks it.
    Gone,
    /// No zone has this name; the VM of this uuid has a zone of another name.
    Elsewhere(Arc<str>),
    /// All sources of the VM: the stale ones read, the others as before.
    Sources(Box<Sources>),
}

/// The sources of one VM.
#[derive(Debug)]
pub struct Sources {
    pub row: Arc<ZoneRow>,
    pub kstat: Option<ZoneKstat>,
    pub files: ZoneFiles,
}

/// Why there is no reading.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadFault {
    #[error(transparent)]
    Load(#[from] LoadError),
    /// zoneadm does not know a zone that the index lists.
    #[error("zoneadm knows no such zone, but the zone index lists it")]
    Disputed,
    /// The index cannot be read: zoneadm alone is not enough to delete a VM.
    #[error("zone index: {0}")]
    Index(ReadError),
    /// The reading or the composition panicked.
    #[error("the reading panicked")]
    Panic,
}

impl ReadFault {
    pub fn source_name(&self) -> &'static str {
        match self {
            Self::Load(error) => error.source_name(),
            Self::Disputed => "zoneadm",
            Self::Index(_) => "zone index",
            Self::Panic => "reading",
        }
    }
}

pub struct Reading {
    pub ctx: Ctx,
    pub name: Arc<str>,
    /// What is known of it.
    pub known: Option<Arc<Parts>>,
    /// What is stale of that.
    pub stale: Stale,
    /// When the first signal came that this reading answers.
    pub signalled: Instant,
}

impl Reading {
    /// Reads.
    /// Errors: the first source that fails.
    pub async fn run(mut self) -> Result<Loaded, ReadFault> {
        if self.known.is_none() {
            self.stale |= Stale::ALL;
        }
        let mut row = match &self.known {
            Some(parts) if !self.stale.contains(Stale::ZONEADM) => Arc::clone(&parts.zone),
            _ => match self.row().await? {
                Some(row) => row,
                None => return self.missing().await,
            },
        };
        let mut files = self.files(&row).await;
        if matches!(&files, Err(error) if error.origin == Origin::ZoneXml && error.is_absent())
            && !self.stale.contains(Stale::ZONEADM)
        {
            // The configuration is gone; the zone may be gone too.
            self.stale |= Stale::ON_ZONE_EVENT;
            row = match self.row().await? {
                Some(row) => row,
                None => return self.missing().await,
            };
            files = self.files(&row).await;
        }
        let files = files?;
        let kstat = match &self.known {
            Some(parts) if !self.stale.contains(Stale::KSTAT) => parts.kstat.clone(),
            // A zone that is not active has no kstat; a stray one is seen by refreshes.
            Some(parts) if row.zoneid.is_none() && parts.zone == row => parts.kstat.clone(),
            _ => kstat::one(&self.ctx, &row).await?,
        };
        Ok(Loaded::Sources(Box::new(Sources { row, kstat, files })))
    }

    async fn row(&self) -> Result<Option<Arc<ZoneRow>>, LoadError> {
        let uuid = self.known.as_ref().map_or(&*self.name, |parts| &*parts.zone.uuid);
        let uuid = Some(uuid).filter(|uuid| is_lower_uuid(uuid));
        Ok(zoneadm::one(&self.ctx, &self.name, uuid).await?.map(Arc::new))
    }

    /// Returns what the index says of a zone that zoneadm does not know. It is gone only if both agree.
    async fn missing(&self) -> Result<Loaded, ReadFault> {
        let index = zone_index::load(&self.ctx).await.map_err(ReadFault::Index)?;
        let line = lines(&index).find(|line| *line.name == *self.name);
        // A zone without a uuid is not a VM.
        if line.is_some_and(|line| self.known.is_some() || line.uuid.is_some()) {
            return Err(ReadFault::Disputed);
        }
        let by_uuid = lines(&index).find(|line| line.uuid == Some(&*self.name));
        match by_uuid.filter(|line| self.known.is_none() && *line.name != *self.name) {
            Some(line) => Ok(Loaded::Elsewhere(line.name.into())),
            None => Ok(Loaded::Gone),
        }
    }

    /// Reads the files, a second time if one may have been truncated by a writer just then.
    async fn files(&self, row: &Arc<ZoneRow>) -> Result<ZoneFiles, LoadError> {
        let read = || zone_files::load(&self.ctx, row, self.known.as_ref(), self.stale);
        let first = read().await;
        let is_doubtful = match &first {
            Ok(files) => !files.doubts.is_empty(),
            Err(error) => matches!(error.fault, Fault::Parse(_)),
        };
        if is_doubtful && self.signalled.elapsed() < YOUNG {
            sleep(SETTLE).await;
            return read().await;
        }
        first
    }
}
