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
    /// Show it.
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

    fn row(zone_state: &str, zoneid: i64) -> ZoneRow {
        ZoneRow {
            zoneid: Some(zoneid),
            zonename: "z".into(),
            zone_state: zone_state.to_owned(),
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
            trace.note(&ZoneEvent { name: "z".into(), newstate: (*state).into(), zoneid });
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
        // The same id again, or no id in the events: the events are enough.
        let whole = trace(&[("uninitialized", 0), ("running", 0)]);
        assert_eq!(
            whole.judge(&row("running", 5), &row("running", 5), false),
            Verdict::Show("uninitialized".into())
        );
        // No event at all: the id is enough.
        assert_eq!(
            trace(&[]).judge(&row("running", 5), &row("running", 6), false),
            Verdict::Show("shutting_down".into())
        );
    }

    #[test]
    fn an_event_ahead_of_zoneadm_asks_for_another_reading() {
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
    fn a_late_event_is_no_second_reboot() {
        let late = trace(&[("uninitialized", 5), ("running", 6)]);
        assert_eq!(late.judge(&row("running", 6), &row("running", 6), true), Verdict::Plain);
    }

    #[test]
    fn readings_that_differ_need_no_event() {
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
}
