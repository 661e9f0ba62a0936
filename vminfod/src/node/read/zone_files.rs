// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads the stale files of one zone, in one visit to a thread that may block.

use std::path::PathBuf;
use std::sync::Arc;

use vm_model::origin::{Origin, ParseError};
use vm_model::parse::config_json::{self, ConfigJson};
use vm_model::parse::lastexited::{self, LastExited};
use vm_model::parse::receiving::{self, Receiving};
use vm_model::parse::zone_xml::{self, ZoneXml};
use vm_model::parse::zoneadm::ZoneRow;
use vm_model::parts::{
    self, CONFIG, FILES, LAST_EXITED, METADATA, Parts, ROUTES, Stamps, TAGS, XML, state_of,
};
use vm_model::stale::Stale;

use super::stamps;
use crate::node::ctx::Ctx;
use crate::node::error::{Fault, LoadError};
use crate::node::root::{Content, ReadError, Root};

/// Attempts to read files that change meanwhile; the signal of the change leads to another reading.
const TRIES: u32 = 3;

const CONFIG_CAP: u64 = 16 << 20;
const LAST_EXITED_CAP: u64 = 64 << 10;
const RECEIVING_CAP: u64 = 4 << 20;

/// What was read of a zone's files.
#[derive(Debug, Clone)]
pub struct ZoneFiles {
    pub xml: Arc<ZoneXml>,
    /// Metadata, tags and routes.
    pub config: Arc<ConfigJson>,
    /// How the last run ended.
    pub lastexited: Option<LastExited>,
    /// The versions that were read.
    pub stamps: Stamps,
    /// What is being received into the zone.
    pub receiving: Option<Receiving>,
    /// Files with invalid content, which count as empty or unchanged.
    pub doubts: Vec<String>,
}

/// Reads the stale files of one zone; the others are those of `known`.
/// Errors: the first source that fails; for a hung file system the times of the files.
pub async fn load(
    ctx: &Ctx,
    row: &Arc<ZoneRow>,
    known: Option<&Arc<Parts>>,
    stale: Stale,
) -> Result<ZoneFiles, LoadError> {
    let (place, row, known) = (Arc::clone(&row.zonepath), Arc::clone(row), known.cloned());
    let read = move |root: &Root| read(root, &row, known.as_deref(), stale);
    let done = ctx.root.on_files(&place, read).await;
    done.map_err(|error| LoadError::new(Origin::Times, Fault::Read(error)))?
}

/// The same in the calling thread, which may block.
/// Errors: the first source that fails.
pub fn read(
    root: &Root,
    row: &ZoneRow,
    known: Option<&Parts>,
    mut stale: Stale,
) -> Result<ZoneFiles, LoadError> {
    if row.zonepath.is_empty() {
        let what = format!("expected a path for the zone {}, found none", row.zonename);
        return Err(LoadError::content(Origin::Zoneadm, what));
    }
    let known = known.filter(|parts| parts.zone.zonepath == row.zonepath);
    if known.is_none() {
        stale |= Stale::ALL;
    }
    let mut now = match known {
        Some(parts) if !stale.contains(Stale::TIMES) => parts.stamps,
        _ => stamps::read(root, &row.zonename, &row.zonepath)?,
    };
    let mut tries = 0;
    let files = loop {
        if let Some(parts) = known {
            // Only a fresh reading reads a file whose stamp is the same.
            if !stale.contains(Stale::DATASETS) && parts.stamps.confirmed_by(&now) {
                stale.remove(Stale::FILES);
            }
            // The times that are shown belong to the content that is shown.
            for at in (0..FILES).filter(|at| parts.stamps.differs(&now, *at)) {
                stale |= part_of(at);
            }
        }
        let mut reading = Reading { root, row, now: &now, is_torn: false, doubts: Vec::new() };
        let files = reading.files(known, stale)?;
        tries += 1;
        if !reading.is_torn || tries == TRIES {
            break files;
        }
        now = stamps::read(root, &row.zonename, &row.zonepath)?;
    };
    if let Some(parts) = known {
        for (part, places) in [
            (Stale::XML, XML..XML + 1),
            (Stale::LAST_EXITED, LAST_EXITED..LAST_EXITED + 1),
            (Stale::CONFIG, CONFIG),
        ] {
            if !stale.contains(part) {
                now.keep(&parts.stamps, places);
            }
        }
    }
    Ok(ZoneFiles { stamps: now, ..files })
}

/// The part that a file belongs to, by its place among the stamps.
fn part_of(at: usize) -> Stale {
    match at {
        parts::XML => Stale::XML,
        parts::LAST_EXITED => Stale::LAST_EXITED,
        _ => Stale::CONFIG,
    }
}

/// One reading of the stale files.
struct Reading<'a> {
    root: &'a Root,
    row: &'a ZoneRow,
    /// The stamps that were taken before.
    now: &'a Stamps,
    /// A file changed after its stamp was taken.
    is_torn: bool,
    doubts: Vec<String>,
}

impl Reading<'_> {
    fn files(&mut self, known: Option<&Parts>, stale: Stale) -> Result<ZoneFiles, LoadError> {
        let xml = match known {
            Some(parts) if !stale.contains(Stale::XML) => Arc::clone(&parts.xml),
            _ => Arc::new(self.xml()?),
        };
        let lastexited = match known {
            Some(parts) if !stale.contains(Stale::LAST_EXITED) => parts.lastexited.clone(),
            _ => self.lastexited()?,
        };
        let config = match known {
            Some(parts) if !stale.contains(Stale::CONFIG) => Arc::clone(&parts.config),
            known => self.config(known)?,
        };
        let receiving = match state_of(self.row, &xml) == "receiving" {
            true => self.receiving()?,
            false => None,
        };
        let (stamps, doubts) = (*self.now, std::mem::take(&mut self.doubts));
        Ok(ZoneFiles { xml, config, lastexited, stamps, receiving, doubts })
    }

    /// A file by its place among the stamps; `None` if it does not exist.
    fn content(
        &mut self,
        at: usize,
        path: &PathBuf,
        read: Result<Content, ReadError>,
        origin: Origin,
    ) -> Result<Option<Vec<u8>>, LoadError> {
        let content = match read {
            Ok(content) => Some(content),
            Err(error) if error.is_absent() => None,
            Err(error) => return Err(LoadError::new(origin, Fault::Read(error)).in_file(path)),
        };
        let version = content.as_ref().map_or(0, |content| stamps::digest(&content.stat));
        self.is_torn |= self.now.versions.get(at) != Some(&version);
        Ok(content.map(|content| content.bytes))
    }

    fn xml(&mut self) -> Result<ZoneXml, LoadError> {
        let path = self.root.zone_xml(&self.row.zonename);
        // An operator may have put a link there; a zone cannot.
        let read = self.root.read_file(&path, zone_xml::MAX_BYTES);
        match self.content(XML, &path, read, Origin::ZoneXml)? {
            Some(bytes) => zone_xml::parse(&bytes).map_err(|e| LoadError::from(e).in_file(path)),
            None => Err(LoadError::new(Origin::ZoneXml, Fault::Absent).in_file(path)),
        }
    }

    fn lastexited(&mut self) -> Result<Option<LastExited>, LoadError> {
        let path = self.root.lastexited(&self.row.zonepath);
        let read = self.root.read_unlinked(&path, LAST_EXITED_CAP);
        match self.content(LAST_EXITED, &path, read, Origin::LastExited)? {
            Some(bytes) => lastexited::parse(&bytes).map_err(|e| LoadError::from(e).in_file(path)),
            None => Ok(None),
        }
    }

    fn config(&mut self, known: Option<&Parts>) -> Result<Arc<ConfigJson>, LoadError> {
        let dir = self.root.config_dir(&self.row.zonepath);
        let read = self.root.check_unlinked(&dir);
        let read = read.map_err(|e| LoadError::new(Origin::Config, Fault::Read(e)).in_file(&dir));
        match read.and_then(|()| self.config_texts()) {
            Ok(config) => Ok(Arc::new(config)),
            // The files of an incomplete zone may not exist yet: its VM is shown without these fields.
            Err(_) if self.row.zone_state == "incomplete" => {
                self.is_torn = false;
                Ok(Arc::default())
            }
            Err(error) => match (&error.fault, known) {
                (Fault::Read(ReadError::TooLarge { .. }), Some(parts)) => {
                    self.doubts.push(error.to_string());
                    Ok(Arc::clone(&parts.config))
                }
                _ => Err(error),
            },
        }
    }

    fn config_texts(&mut self) -> Result<ConfigJson, LoadError> {
        let [metadata, routes, tags] = [("metadata", METADATA), ("routes", ROUTES), ("tags", TAGS)]
            .map(|(name, at)| {
                let path = self.root.config_file(&self.row.zonepath, name);
                let read = self.root.read_unlinked(&path, CONFIG_CAP);
                let bytes = self.content(at, &path, read, Origin::Config)?;
                let (text, doubt) = config_json::text(bytes.as_deref()).map_err(|error| {
                    LoadError::from(ParseError::json(Origin::Config, error)).in_file(&path)
                })?;
                self.doubts.extend(doubt.map(|error| format!("{}: {error}", path.display())));
                Ok::<_, LoadError>(text)
            });
        let path = self.root.config_file(&self.row.zonepath, "metadata");
        ConfigJson::new(&metadata?, &routes?, &tags?)
            .map_err(|error| LoadError::from(error).in_file(path))
    }

    /// A receiving file that cannot be read counts as absent, as deployed.
    fn receiving(&self) -> Result<Option<Receiving>, LoadError> {
        let path = self.root.receiving(&self.row.uuid);
        let Ok(content) = self.root.read_file(&path, RECEIVING_CAP) else { return Ok(None) };
        let parsed = receiving::parse(&content.bytes);
        parsed.map(Some).map_err(|error| LoadError::from(error).in_file(path))
    }
}
