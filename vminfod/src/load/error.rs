// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What can go wrong in a load: always the source, its file if it has one, and what was expected.

use std::path::{Path, PathBuf};

use crate::commands::CommandError;
use crate::json::JsonError;
use crate::root::ReadError;

/// A source of truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The list of zones.
    Zoneadm,
    /// A zone's configuration.
    ZoneXml,
    /// zfs list.
    Datasets,
    /// The zone_misc kstats.
    Kstat,
    /// metadata.json, tags.json, routes.json.
    Config,
    /// How the zone's init last ended.
    LastExited,
    /// The modification times of a zone's files.
    Times,
    /// The node's own description.
    Sysinfo,
    /// The create payload of a VM being received.
    Receiving,
}

impl Origin {
    /// All of them.
    pub const ALL: [Origin; 9] = [
        Origin::Zoneadm,
        Origin::ZoneXml,
        Origin::Datasets,
        Origin::Kstat,
        Origin::Config,
        Origin::LastExited,
        Origin::Times,
        Origin::Sysinfo,
        Origin::Receiving,
    ];

    /// Its name in messages and in /status.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Zoneadm => "zoneadm",
            Origin::ZoneXml => "zone_xml",
            Origin::Datasets => "zfs",
            Origin::Kstat => "kstat",
            Origin::Config => "config",
            Origin::LastExited => "lastexited",
            Origin::Times => "file_times",
            Origin::Sysinfo => "sysinfo",
            Origin::Receiving => "receiving",
        }
    }
}

/// A failed load.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{}: {fault}", origin.name(), path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default())]
pub struct LoadError {
    origin: Origin,
    path: Option<PathBuf>,
    #[source]
    fault: Fault,
}

/// What it failed on.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// The file could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The file has to be there and is not.
    #[error("no such file")]
    Absent,
    /// The command gave no output.
    #[error(transparent)]
    Command(CommandError),
    /// The command failed.
    #[error("exit status {status}: {complaint}")]
    Exit {
        /// Its exit status.
        status: i32,
        /// What it wrote to standard error.
        complaint: String,
    },
    /// The text is not JSON.
    #[error(transparent)]
    Json(JsonError),
    /// A line of a text does not say what it should.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: u32,
        /// What was found and what was expected.
        what: String,
    },
    /// The whole does not say what it should.
    #[error("{0}")]
    Content(String),
}

impl LoadError {
    /// A fault of a source.
    pub fn new(origin: Origin, fault: Fault) -> Self {
        LoadError { origin, path: None, fault }
    }

    /// The same, in this file.
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    pub(crate) fn content(origin: Origin, what: impl Into<String>) -> Self {
        LoadError::new(origin, Fault::Content(what.into()))
    }

    pub(crate) fn line(origin: Origin, line: u32, what: impl Into<String>) -> Self {
        LoadError::new(origin, Fault::Line { line, what: what.into() })
    }

    /// The source.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The source's name.
    pub fn source_name(&self) -> &'static str {
        self.origin.name()
    }

    /// The file, if the source is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What it failed on.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Whether the file it needs is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self.fault, Fault::Absent)
    }
}
