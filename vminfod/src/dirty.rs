// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which parts of a VM are stale, and what a pair of readings of a zone's state may hide.
//!
//! Pure. Nothing here knows a clock or a file; a state is never taken from an event, except to
//! show that a zone went through it between two readings that look alike.

use std::ops::{BitOr, BitOrAssign};

use crate::load::ZoneRow;
use crate::sources::{ZoneFile, ZoneSignal};

/// A set of parts of one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stale(u16);

impl Stale {
    /// Nothing is stale.
    pub const NONE: Self = Self(0);
    /// zoneadm's row.
    pub const ZONEADM: Self = Self(1);
    /// The zone's XML.
    pub const XML: Self = Self(2);
    /// The kernel's numbers.
    pub const KSTAT: Self = Self(4);
    /// `config/*.json`
    pub const CONFIG: Self = Self(8);
    /// `lastexited`
    pub const LAST_EXITED: Self = Self(16);
    /// The newest time of its files.
    pub const TIMES: Self = Self(32);
    /// `UUID-receiving.json`
    pub const RECEIVING: Self = Self(64);
    /// All that is read from files with a time.
    pub const FILES: Self = Self(2 | 8 | 16);
    /// Nothing of its own; datasets or sysinfo changed, so the object is to be composed again.
    pub const OBJECT: Self = Self(128);
    /// Its datasets (asked for by a fresh reading only; events name the dataset themselves).
    pub const DATASETS: Self = Self(256);
    /// All that concerns this VM alone.
    pub const ALL: Self = Self(255);
    /// The same and its datasets.
    pub const FRESH: Self = Self(511);

    /// What a zone sysevent makes stale.
    pub const ON_ZONE_EVENT: Self = Self(1 | 2 | 4 | 32);
    /// What a rollback makes stale.
    pub const ON_ROLLBACK: Self = Self(8 | 16 | 32 | 64 | 128);

    /// What a change of one of its files makes stale.
    pub fn on_file(file: ZoneFile) -> Self {
        match file {
            ZoneFile::Xml => Self::ZONEADM | Self::XML | Self::KSTAT | Self::TIMES,
            ZoneFile::Config => Self::CONFIG | Self::TIMES,
            ZoneFile::LastExited => Self::LAST_EXITED | Self::TIMES,
            ZoneFile::Receiving => Self::RECEIVING,
        }
    }

    /// Is any of `parts` in it?
    pub fn has(self, parts: Self) -> bool {
        self.0 & parts.0 != 0
    }

    /// The same without `parts`.
    pub fn without(self, parts: Self) -> Self {
        Self(self.0 & !parts.0)
    }

    /// Are all of `parts` in it?
    pub fn covers(self, parts: Self) -> bool {
        self.0 & parts.0 == parts.0
    }

    /// Is there anything to do?
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Its parts by name, for logs.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [
            "zoneadm",
            "zone_xml",
            "kstat",
            "config",
            "lastexited",
            "file_times",
            "receiving",
            "object",
            "zfs",
        ];
        names.into_iter().enumerate().filter_map(move |(bit, name)| {
            let is_in = self.has(Self(1 << bit));
            is_in.then_some(name)
        })
    }
}

impl BitOr for Stale {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Stale {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What the kernel reported of a zone since its last reading that settled the question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The first state seen in which the zone was leaving `running`, and which incarnation it was.
    left: Option<Box<(String, Option<i64>)>>,
    /// It was reported to come back after that.
    back: bool,
}

/// What two readings and the events between them say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The readings say it all.
    Plain,
    /// The zone was away in between: show it in this state first.
    Show(String),
    /// The kernel says that it is leaving and zoneadm does not yet: look again soon.
    LookAgain,
}

impl Trace {
    /// Takes the next event of the zone.
    pub fn note(&mut self, event: &ZoneSignal) {
        match event.newstate.as_str() {
            state @ ("shutting_down" | "uninitialized") => {
                if self.left.is_none() {
                    self.left = Some(Box::new((state.to_owned(), event.zoneid)));
                }
                self.back = false;
            }
            "initialized" | "ready" | "running" if self.left.is_some() => self.back = true,
            _ => {}
        }
    }

    /// What was noted before and during a reading that settled nothing.
    pub fn after(self, earlier: Self) -> Self {
        match earlier.left {
            None => self,
            left => Self { back: self.back || (self.left.is_none() && earlier.back), left },
        }
    }

    /// Judges a new reading against the last one. `last_look`: there will be no other soon.
    pub fn judge(&self, before: &ZoneRow, now: &ZoneRow, last_look: bool) -> Verdict {
        if before.zone_state != "running" || now.zone_state != "running" {
            return Verdict::Plain;
        }
        // A trailing event of an earlier incarnation says nothing of the one that was read.
        let left =
            self.left.as_deref().filter(|(_, zoneid)| zoneid.is_none() || *zoneid == before.zoneid);
        match left {
            Some((state, _)) if self.back || last_look || before.zoneid != now.zoneid => {
                Verdict::Show(state.clone())
            }
            Some(_) => Verdict::LookAgain,
            None if before.zoneid != now.zoneid => Verdict::Show("shutting_down".to_owned()),
            None => Verdict::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::word;

    fn row(zone_state: &str, zoneid: i64) -> ZoneRow {
        ZoneRow {
            zoneid: Some(zoneid),
            zonename: "z".into(),
            zone_state: word(zone_state),
            zonepath: "/zones/z".into(),
            uuid: "z".into(),
            brand: "joyent".into(),
            zonedid: Some(1),
        }
    }

    fn trace(events: &[(&str, i64)]) -> Trace {
        let mut trace = Trace::default();
        for (state, zoneid) in events {
            let zoneid = (*zoneid > 0).then_some(*zoneid);
            trace.note(&ZoneSignal { name: "z".into(), newstate: (*state).into(), zoneid });
        }
        trace
    }

    #[test]
    fn a_reboot_between_two_readings_is_shown() {
        let whole = trace(&[
            ("shutting_down", 5),
            ("uninitialized", 5),
            ("initialized", 6),
            ("ready", 6),
            ("running", 6),
        ]);
        assert_eq!(
            whole.judge(&row("running", 5), &row("running", 6), false),
            Verdict::Show("shutting_down".into())
        );
        // The same number again, or no number in the events: the kernel's word is enough.
        let whole = trace(&[("uninitialized", 0), ("running", 0)]);
        assert_eq!(
            whole.judge(&row("running", 5), &row("running", 5), false),
            Verdict::Show("uninitialized".into())
        );
        // No event at all: the number is enough.
        assert_eq!(
            trace(&[]).judge(&row("running", 5), &row("running", 6), false),
            Verdict::Show("shutting_down".into())
        );
    }

    #[test]
    fn a_kernel_ahead_of_zoneadm_is_waited_for() {
        let ahead = trace(&[("shutting_down", 5)]);
        assert_eq!(ahead.judge(&row("running", 5), &row("running", 5), false), Verdict::LookAgain);
        assert_eq!(
            ahead.judge(&row("running", 5), &row("running", 5), true),
            Verdict::Show("shutting_down".into())
        );
        assert_eq!(
            ahead.judge(&row("running", 5), &row("shutting_down", 5), false),
            Verdict::Plain
        );
    }

    #[test]
    fn old_news_is_no_second_reboot() {
        let late = trace(&[("uninitialized", 5), ("running", 6)]);
        assert_eq!(late.judge(&row("running", 6), &row("running", 6), true), Verdict::Plain);
    }

    #[test]
    fn readings_that_differ_speak_for_themselves() {
        let any = trace(&[("shutting_down", 5), ("running", 6)]);
        for (before, now) in [("running", "installed"), ("installed", "running"), ("down", "ready")]
        {
            assert_eq!(
                any.judge(&row(before, 5), &row(now, 6), false),
                Verdict::Plain,
                "{before} {now}"
            );
        }
        assert_eq!(
            trace(&[("running", 5)]).judge(&row("running", 5), &row("running", 5), true),
            Verdict::Plain
        );
    }

    #[test]
    fn parts_of_files() {
        assert!(Stale::on_file(ZoneFile::Xml).has(Stale::ZONEADM));
        assert!(!Stale::on_file(ZoneFile::Config).has(Stale::ZONEADM | Stale::XML));
        assert!(Stale::NONE.is_none() && !Stale::ALL.is_none());
        let mut sum = Stale::NONE;
        sum |= Stale::XML | Stale::TIMES;
        assert!(sum.has(Stale::TIMES) && !sum.has(Stale::CONFIG));
    }
}
