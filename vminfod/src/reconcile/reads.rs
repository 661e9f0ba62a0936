// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When the parts of a VM were last read.

use tokio::time::Instant;
use vm_model::origin::Origin;
use vm_model::stale::Stale;

/// The sources that are read for each VM, and their parts.
pub const OWN: [(Origin, Stale); 7] = [
    (Origin::Zoneadm, Stale::ZONEADM),
    (Origin::ZoneXml, Stale::XML),
    (Origin::Kstat, Stale::KSTAT),
    (Origin::Config, Stale::CONFIG),
    (Origin::LastExited, Stale::LAST_EXITED),
    (Origin::Times, Stale::TIMES),
    (Origin::Receiving, Stale::RECEIVING),
];

/// When the parts of one VM were last read (the beginning of that reading).
#[derive(Debug, Default)]
pub struct Reads {
    /// The time of all, unless `each` is set.
    all: Option<Instant>,
    each: Option<Box<[Option<Instant>; OWN.len()]>>,
}

impl Reads {
    /// Records a reading of these parts.
    pub fn note(&mut self, parts: Stale, began: Instant) {
        if OWN.iter().all(|(_, part)| parts.intersects(*part)) {
            *self = Reads { all: Some(began), each: None };
            return;
        }
        let each = self.each.get_or_insert_with(|| Box::new([self.all; OWN.len()]));
        for (at, (_, part)) in each.iter_mut().zip(OWN) {
            if parts.intersects(part) {
                *at = Some(began);
            }
        }
    }

    pub fn last(&self) -> Option<Instant> {
        self.each().into_iter().max().flatten()
    }

    /// When the last reading began that all of these parts have behind them.
    pub fn oldest(&self, parts: Stale) -> Option<Instant> {
        let each = self.each().into_iter().zip(OWN);
        let own = each.filter(|(_, (_, part))| parts.intersects(*part));
        own.map(|(at, _)| at).min().flatten()
    }

    /// When the last reading of each of [`OWN`] began.
    pub fn each(&self) -> [Option<Instant>; OWN.len()] {
        self.each.as_deref().copied().unwrap_or([self.all; OWN.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_part_has_the_time_of_its_last_reading() {
        let (first, mut reads) = (Instant::now(), Reads::default());
        let shown = |reads: &Reads| reads.each().map(|at| at.map(|at| (at - first).as_secs()));
        assert_eq!(shown(&reads), [None; OWN.len()]);
        let at = |seconds| first + std::time::Duration::from_secs(seconds);
        reads.note(Stale::CONFIG, at(1));
        assert_eq!(shown(&reads), [None, None, None, Some(1), None, None, None]);
        reads.note(Stale::ALL, at(2));
        assert_eq!((shown(&reads), reads.each.is_none()), ([Some(2); OWN.len()], true));
        reads.note(Stale::ZONEADM | Stale::TIMES | Stale::OBJECT, at(3));
        assert_eq!(shown(&reads), [3, 2, 2, 2, 2, 3, 2].map(Some));
    }
}
