// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where signals come from: sysevents and file changes.
//!
//! Sources only translate "something may have changed" into [`Signal`]s. They never read state,
//! and a source that dies is restarted while everything it could have missed is marked stale.

pub mod files;
pub mod inbox;
pub mod sysevent;
pub mod watch;
pub mod watch_fswatcher;
pub mod zfs;

#[cfg(target_os = "linux")]
mod watch_linux;

use crate::sources::zfs::DatasetSignal;

/// A file that belongs to one zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ZoneFile {
    /// `/etc/zones/NAME.xml`
    Xml,
    /// `ZONEPATH/config/{metadata,tags,routes}.json`
    Config,
    /// `ZONEPATH/lastexited`
    LastExited,
    /// `/etc/zones/UUID-receiving.json`
    Receiving,
}

/// A sysevent about one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneSignal {
    /// The zone's name.
    pub name: String,
    /// The state that the event names. Never applied: only a reading sets a state.
    pub newstate: String,
    /// The kernel's number of this incarnation of the zone, if the event has one.
    pub zoneid: Option<i64>,
}

/// Something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A zone sysevent.
    Zone(ZoneSignal),
    /// A ZFS sysevent.
    Dataset(DatasetSignal),
    /// A file of a zone: its name (its uuid for [`ZoneFile::Receiving`]) and which one.
    File(String, ZoneFile),
    /// `/etc/zones/index`
    Index,
    /// `/tmp/.sysinfo.json`
    Sysinfo,
    /// The files of many zones are watched only now: what happened to them before is unknown.
    Unseen,
    /// Signals were lost: anything may have changed.
    Everything,
}
