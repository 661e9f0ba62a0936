// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Shows a reboot that happened between two readings of a zone's state.
//!
//! A state comes from a reading, never from an event. There is one exception, because `vmadm reboot`
//! waits for it: if two readings in a row say `running` and the events between them, or the zone's
//! id, show that the zone was down, the state that the event named is shown first.

use crate::parse::sysevent::ZoneEvent;
use crate::parse::zoneadm::ZoneRow;

/// The events of a zone since the last reading that explained them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The first state in which the zone was going down, and the zone's id.
    left: Option<Box<(String, Option<i64>)>>,
    /// A later event said that it is coming up again.
    back: bool,
}

/// What to do with a new reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Plain,
    /// The zone was down in between: show this state first.
    Show(String),
    /// The kernel says that the zone is going down, and zoneadm does not yet: read again soon.
    LookAgain,
}

impl Trace {
    /// Records the next event of the zone.
    pub fn note(&mut self, event: &ZoneEvent) {
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

    /// Returns the events of before and during a reading that did not explain them.
    pub fn after(self, earlier: Self) -> Self {
        match earlier.left {
            None => self,
            left => Self { back: self.back || (self.left.is_none() && earlier.back), left },
        }
    }

    /// Compares a new reading with the last one. `last_look`: no other reading follows soon.
    pub fn judge(&self, before: &ZoneRow, now: &ZoneRow, last_look: bool) -> Verdict {
        if before.zone_state != "running" || now.zone_state != "running" {
            return Verdict::Plain;
        }
        // An event of another zone id is a late one of an earlier incarnation.
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
    use crate::parse::zoneadm;

    /// Reads `STATE=ZONEID` or `STATE`.
    fn state(text: &str) -> (String, Option<i64>) {
        let (state, zoneid) = text.split_once('=').unwrap_or((text, ""));
        (state.to_owned(), zoneid.parse().ok())
    }

    fn row(text: &str) -> ZoneRow {
        let (state, zoneid) = text.split_once('=').unwrap();
        let uuid = "f8428503-41e2-426e-b0f9-a5d849b545f6";
        let line = format!("{zoneid}:{uuid}:{state}:/zones/z:{uuid}:joyent:excl:1");
        zoneadm::parse(line.as_bytes()).remove(0)
    }

    #[test]
    fn only_a_reboot_between_two_readings_is_shown() {
        use Verdict::{LookAgain, Plain};
        let show = |state: &str| Verdict::Show(state.to_owned());
        let whole = "shutting_down=5 uninitialized=5 initialized=6 ready=6 running=6";
        let some = "shutting_down=5 running=6";
        // The events, the readings before and after them, whether no other reading follows soon.
        for (events, before, now, last_look, verdict) in [
            (whole, "running=5", "running=6", false, show("shutting_down")),
            // The same id again, or no id in the events: the events are enough.
            ("uninitialized running", "running=5", "running=5", false, show("uninitialized")),
            // No event at all: the id is enough.
            ("", "running=5", "running=6", false, show("shutting_down")),
            // An event ahead of zoneadm asks for another reading.
            ("shutting_down=5", "running=5", "running=5", false, LookAgain),
            ("shutting_down=5", "running=5", "running=5", true, show("shutting_down")),
            ("shutting_down=5", "running=5", "shutting_down=5", false, Plain),
            // A late event is no second reboot.
            ("uninitialized=5 running=6", "running=6", "running=6", true, Plain),
            // Readings that differ need no event.
            (some, "running=5", "installed=6", false, Plain),
            (some, "installed=5", "running=6", false, Plain),
            (some, "down=5", "ready=6", false, Plain),
            ("running=5", "running=5", "running=5", true, Plain),
        ] {
            let mut trace = Trace::default();
            for (newstate, zoneid) in events.split_whitespace().map(state) {
                trace.note(&ZoneEvent { name: "z".into(), newstate, zoneid });
            }
            let judged = trace.judge(&row(before), &row(now), last_look);
            assert_eq!(judged, verdict, "{events}: {before} → {now}");
        }
    }
}
