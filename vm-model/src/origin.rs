// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sources that a VM object is composed of, and the error of one that cannot be parsed.
//!
//! Each error names its source, since people repair files and not objects, and since the parts of other sources stay
//! good.

use crate::js::JsonError;

/// A source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `zoneadm list`
    Zoneadm,
    /// `/etc/zones/NAME.xml`
    ZoneXml,
    /// `zfs list`
    Datasets,
    /// The zone_misc kstats.
    Kstat,
    /// `config/{metadata,tags,routes}.json`
    Config,
    /// `ZONEPATH/lastexited`
    LastExited,
    /// The modification times of a zone's files.
    Times,
    /// `/tmp/.sysinfo.json`
    Sysinfo,
    /// `/etc/zones/UUID-receiving.json`
    Receiving,
}

impl Origin {
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

    /// Returns its name in messages and in `/status`.
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

/// A source cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}", origin.name())]
pub struct ParseError {
    pub origin: Origin,
    /// The reason.
    #[source]
    pub fault: Fault,
}

/// Why a source cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is not JSON.
    #[error(transparent)]
    Json(JsonError),
    /// A line is bad.
    #[error("line {line}: {what}")]
    Line {
        /// Counted from 1.
        line: u32,
        /// What was expected and what was found.
        what: String,
    },
    /// The whole is bad: what was expected and what was found.
    #[error("{0}")]
    Content(String),
}

impl ParseError {
    /// Returns the error of a source that is not JSON.
    pub fn json(origin: Origin, error: JsonError) -> Self {
        ParseError { origin, fault: Fault::Json(error) }
    }

    /// Returns the error of one line, counted from 1.
    pub fn line(origin: Origin, line: u32, what: impl Into<String>) -> Self {
        ParseError { origin, fault: Fault::Line { line, what: what.into() } }
    }

    /// Returns the error of the whole source.
    pub fn content(origin: Origin, what: impl Into<String>) -> Self {
        ParseError { origin, fault: Fault::Content(what.into()) }
    }
}
