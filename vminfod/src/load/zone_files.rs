// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The stale files of one zone, read in one visit to a thread that may block: each visit costs two
//! changes of threads, and whoever hears of a file's change waits for all of them.
//!
//! Must never give a file's content beside the stamp of a later version of it.

use std::sync::Arc;

use super::{
    ConfigJson, Ctx, LastExited, LoadError, Origin, PackedXml, Receiving, ZoneRow, config,
    lastexited, receiving, times, zone_xml,
};
use crate::dirty::Stale;
use crate::root::Root;
use crate::vm::{self, Parts};

/// Readings of files that change meanwhile; the next signal brings what the last one missed.
const TRIES: u32 = 3;

/// What one zone's object is made of that comes from files.
#[derive(Debug)]
pub struct ZoneFiles {
    /// Its configuration.
    pub xml: Arc<PackedXml>,
    /// Metadata, tags and routes.
    pub config: Arc<ConfigJson>,
    /// How its last run ended.
    pub lastexited: Option<LastExited>,
    /// The versions that were read.
    pub stamps: times::Stamps,
    /// What is being received into it.
    pub receiving: Option<Receiving>,
}

/// Reads what is stale of the files of one zone and takes the rest from what is known of it.
///
/// # Errors
/// The first source that fails; its file system as that of the files' times.
pub async fn load(
    ctx: &Ctx,
    row: &Arc<ZoneRow>,
    known: Option<&Parts>,
    stale: Stale,
) -> Result<ZoneFiles, LoadError> {
    let receives = known.is_some_and(|parts| vm::state_of(row, &parts.xml) == "receiving");
    if known.is_some() && !stale.has(Stale::FILES | Stale::TIMES) && !receives {
        // Nothing is asked of a file system.
        return read(&ctx.root, row, known, stale);
    }
    let (place, row, known) = (&row.zonepath, Arc::clone(row), known.cloned());
    ctx.on_files(Origin::Times, place, move |root| read(root, &row, known.as_ref(), stale)).await
}

/// The same here and now, where it may block.
fn read(
    root: &Root,
    row: &ZoneRow,
    known: Option<&Parts>,
    mut stale: Stale,
) -> Result<ZoneFiles, LoadError> {
    let mut stamps = match known {
        Some(parts) if !stale.has(Stale::TIMES) => parts.stamps,
        _ => times::read(root, row)?,
    };
    // What is of the version that was read need not be read again, except for those who ask.
    if !stale.has(Stale::DATASETS) && known.is_some_and(|parts| parts.stamps.confirmed_by(&stamps))
    {
        stale = stale.without(Stale::FILES);
    }
    // The stamps are taken before: what is read may be a part of the files.
    let opened = &mut times::Opened::begin();
    let mut tries = 0;
    let (xml, lastexited, config) = loop {
        // A time that nobody knew belongs to a file that may be newer than what is known of it.
        if known.is_some_and(|parts| parts.last_modified() != stamps.last_modified) {
            stale |= Stale::FILES;
        }
        let xml = match known {
            Some(parts) if !stale.has(Stale::XML) => Arc::clone(&parts.xml),
            _ => Arc::new(PackedXml::from(&zone_xml::read(root, &row.zonename, opened)?)),
        };
        let lastexited = match known {
            Some(parts) if !stale.has(Stale::LAST_EXITED) => parts.lastexited.clone(),
            _ => lastexited::read(root, row, opened)?,
        };
        let config = match known {
            Some(parts) if !stale.has(Stale::CONFIG) => Arc::clone(&parts.config),
            _ => Arc::new(ConfigJson::from(&config::read(root, row, opened)?)),
        };
        tries += 1;
        if !stale.has(Stale::TIMES) || tries == TRIES {
            break (xml, lastexited, config);
        }
        let after = times::read(root, row)?;
        if after == stamps {
            break (xml, lastexited, config);
        }
        // A file was replaced while they were read: which of them is unknown.
        stamps = after;
        stale |= Stale::FILES;
    };
    // What was not read is still of the version that it was.
    if let Some(parts) = known {
        for (part, files) in [
            (Stale::XML, times::XML..times::XML + 1),
            (Stale::LAST_EXITED, times::LAST_EXITED..times::LAST_EXITED + 1),
            (Stale::CONFIG, times::CONFIG),
        ] {
            if !stale.has(part) {
                stamps.keep(&parts.stamps, files);
            }
        }
    }
    let receives = vm::state_of(row, &xml) == "receiving";
    let receiving = if receives { receiving::read(root, row)? } else { None };
    Ok(ZoneFiles { xml, config, lastexited, stamps, receiving })
}
