// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parts of a VM that are stale: they have to be read again.
//!
//! An event names a part of a VM and not its value: the part is marked and read again. So an event that comes twice,
//! late or out of order costs a reading and changes nothing.

use bitflags::bitflags;

/// A file of a zone.
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

impl ZoneFile {
    /// Returns its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            ZoneFile::Xml => "xml",
            ZoneFile::Config => "config",
            ZoneFile::LastExited => "lastexited",
            ZoneFile::Receiving => "receiving",
        }
    }
}

bitflags! {
    /// A set of parts of one VM.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Stale: u16 {
        const ZONEADM = 1;
        /// The zone's XML.
        const XML = 1 << 1;
        /// The zone's kstat.
        const KSTAT = 1 << 2;
        /// `config/*.json`
        const CONFIG = 1 << 3;
        /// `lastexited`
        const LAST_EXITED = 1 << 4;
        /// The newest modification time of its files.
        const TIMES = 1 << 5;
        /// `UUID-receiving.json`
        const RECEIVING = 1 << 6;
        /// Nothing has to be read: the datasets or the sysinfo in memory changed.
        const OBJECT = 1 << 7;
        /// Its datasets, which are listed by name after the rest was read. Only a request for all that is true of the
        /// VM sets this; a ZFS event names a dataset instead.
        const DATASETS = 1 << 8;

        /// The files that have a stamp.
        const FILES = Self::XML.bits() | Self::CONFIG.bits() | Self::LAST_EXITED.bits();
        /// Everything but the datasets.
        const ALL = Self::DATASETS.bits() - 1;
        const FRESH = Self::ALL.bits() | Self::DATASETS.bits();
        /// The parts that a zone sysevent makes stale.
        const ON_ZONE_EVENT = Self::ZONEADM.bits() | Self::XML.bits() | Self::KSTAT.bits() | Self::TIMES.bits();
        /// The parts that a rollback makes stale.
        const ON_ROLLBACK = Self::CONFIG.bits() | Self::LAST_EXITED.bits() | Self::TIMES.bits()
            | Self::RECEIVING.bits() | Self::OBJECT.bits();
    }
}

impl Stale {
    /// Returns the parts that a change of this file makes stale.
    pub fn on_file(file: ZoneFile) -> Self {
        match file {
            ZoneFile::Xml => Self::XML | Self::TIMES,
            ZoneFile::Config => Self::CONFIG | Self::TIMES,
            ZoneFile::LastExited => Self::LAST_EXITED | Self::TIMES,
            ZoneFile::Receiving => Self::RECEIVING,
        }
    }

    /// Returns the names of the parts, for logs and `/why`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (Self::ZONEADM, "zoneadm"),
            (Self::XML, "zone_xml"),
            (Self::KSTAT, "kstat"),
            (Self::CONFIG, "config"),
            (Self::LAST_EXITED, "lastexited"),
            (Self::TIMES, "file_times"),
            (Self::RECEIVING, "receiving"),
            (Self::OBJECT, "object"),
            (Self::DATASETS, "zfs"),
        ]
        .into_iter()
        .filter_map(move |(part, name)| self.contains(part).then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_makes_its_part_stale() {
        assert_eq!(Stale::on_file(ZoneFile::Xml), Stale::XML | Stale::TIMES);
        assert!(!Stale::on_file(ZoneFile::Config).intersects(Stale::ZONEADM | Stale::XML));
        assert_eq!((Stale::ALL | Stale::DATASETS, Stale::ALL.bits()), (Stale::FRESH, 255));
        let names: Vec<_> = Stale::ON_ROLLBACK.names().collect();
        assert_eq!(names, ["config", "lastexited", "file_times", "receiving", "object"]);
    }
}
