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
use vm_model::parse::zone_index::{is_written, lines};
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use super::witness::Witnesses;
use crate::node::read::zone_files::{self, ZoneFiles};
use crate::node::read::{kstat, zone_index, zone_xmls, zoneadm};
use crate::node::root::ReadError;
use crate::node::{Ctx, Fault, LoadError};

/// An invalid file this soon after its signal may still be written …
const YOUNG: Duration = Duration::from_millis(50);
/// … and is read once more after this.
const SETTLE: Duration = Duration::from_millis(20);

/// The result of a reading.
#[derive(Debug)]
pub enum Loaded {
    /// No witness has the zone: neither zoneadm nor the index, and it has no XML.
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
    /// A witness has the zone, another one lacks it.
    #[error("{0}")]
    Disputed(Witnesses),
    /// The index cannot be read: zoneadm alone is not enough to delete a VM.
    #[error("zone index: {0}")]
    Index(ReadError),
    /// The index has no line, not even that of `global`: what it lacks is not gone.
    #[error("zone index: there is none, or it has no line")]
    NoIndex,
    /// Whether the XML is there cannot be read.
    #[error("zone configuration: {0}")]
    Xml(ReadError),
    /// The reading or the composition panicked.
    #[error("the reading panicked")]
    Panic,
}

impl ReadFault {
    pub fn source_name(&self) -> &'static str {
        match self {
            Self::Load(error) => error.source_name(),
            Self::Disputed(witnesses) => witnesses.lacking(),
            Self::Index(_) | Self::NoIndex => "zone index",
            Self::Xml(_) => "zone_xml",
            Self::Panic => "reading",
        }
    }
}

/// What is found of a zone.
enum Found {
    Row(Arc<ZoneRow>),
    /// No row: it is gone, or has another name.
    Nowhere(Loaded),
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
    /// The file watcher has reported a change of its XML.
    pub xml_changed: bool,
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
            _ => match self.found().await? {
                Found::Row(row) => row,
                Found::Nowhere(loaded) => return Ok(loaded),
            },
        };
        let mut files = self.files(&row).await;
        if matches!(&files, Err(error) if error.origin == Origin::ZoneXml && error.is_absent())
            && !self.stale.contains(Stale::ZONEADM)
        {
            // The configuration is gone; the zone may be gone too.
            self.stale |= Stale::ON_ZONE_EVENT;
            row = match self.found().await? {
                Found::Row(row) => row,
                Found::Nowhere(loaded) => return Ok(loaded),
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

    /// Returns the row of the zone, or where it is instead. zonecfg removes line and XML one after the other: while
    /// the signal is young, a disagreement is looked at once more.
    /// Errors: a source fails, or the witnesses disagree.
    async fn found(&self) -> Result<Found, ReadFault> {
        let found = self.witnessed().await;
        if matches!(found, Err(ReadFault::Disputed(_))) && self.signalled.elapsed() < YOUNG {
            sleep(SETTLE).await;
            return self.witnessed().await;
        }
        let is_unseen = self.known.is_some() && !self.xml_changed;
        if is_unseen && matches!(found, Ok(Found::Nowhere(Loaded::Gone))) {
            // The word of the file watcher may be on its way: whether the XML was seen to go matters to agents.
            sleep(YOUNG).await;
        }
        found
    }

    async fn witnessed(&self) -> Result<Found, ReadFault> {
        if let Some(row) = self.row().await? {
            return Ok(Found::Row(row));
        }
        let index = zone_index::load(&self.ctx).await.map_err(ReadFault::Index)?;
        if self.known.is_some() && !is_written(&index) {
            return Err(ReadFault::NoIndex);
        }
        let line = lines(&index).find(|line| *line.name == *self.name);
        let by_uuid = lines(&index).find(|line| line.uuid == Some(&*self.name));
        if let Some(line) = by_uuid.filter(|line| self.known.is_none() && *line.name != *self.name)
        {
            return Ok(Found::Nowhere(Loaded::Elsewhere(line.name.into())));
        }
        // A zone without a uuid is not a VM, and an XML of another name may be a template.
        let index = line.is_some_and(|line| self.known.is_some() || line.uuid.is_some());
        let may_count = self.known.is_some() || is_lower_uuid(&self.name);
        let xml =
            may_count && zone_xmls::has(&self.ctx, &self.name).await.map_err(ReadFault::Xml)?;
        let witnesses = Witnesses { row: false, index, xml };
        match witnesses.are_silent() {
            true => Ok(Found::Nowhere(Loaded::Gone)),
            false => Err(ReadFault::Disputed(witnesses)),
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
