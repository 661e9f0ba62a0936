// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why an object says what it says: when each of its sources was last read, whether that is stale,
//! and what failed since.

use tokio::time::Instant;

use vm_model::origin::Origin;
use vm_model::parts::Parts;
use vm_model::stale::Stale;

use super::engine::Reconciler;

/// The sources that are read for each VM, with the part each of them is.
const OWN: [(Origin, Stale); 7] = [
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
    /// All of them at once, as nearly always …
    all: Option<Instant>,
    /// … or each at its own time.
    each: Option<Box<[Option<Instant>; OWN.len()]>>,
}

impl Reads {
    /// Notes a reading of these parts.
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

    /// When the last one began.
    pub fn last(&self) -> Option<Instant> {
        self.each().into_iter().max().flatten()
    }

    fn each(&self) -> [Option<Instant>; OWN.len()] {
        self.each.as_deref().copied().unwrap_or([self.all; OWN.len()])
    }
}

/// One source of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceWhy {
    /// Its name, as [`Origin::name`] has it.
    pub name: String,
    /// When it was last read, or confirmed unread because nothing about it had changed.
    pub read_at: Option<Instant>,
    /// A newer reading is wanted or under way.
    pub stale: bool,
    /// What the last attempt met.
    pub error: Option<String>,
}

/// All sources of one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The zone's name: the key of the VM.
    pub zonename: String,
    /// The VM's uuid.
    pub uuid: String,
    /// Its sources, always in the same order; a failing part of no source of its own comes last.
    pub sources: Vec<SourceWhy>,
}

impl Reconciler {
    /// What is known of the sources of this VM.
    pub(super) fn why(&self, name: &str) -> Option<Why> {
        let name = self.vms.zone_named(name);
        let vm = self.vms.get(&name)?;
        let parts = vm.parts.as_ref()?;
        let own = OWN.iter().zip(vm.reads.each()).map(|((origin, part), read_at)| SourceWhy {
            name: origin.name().to_owned(),
            read_at,
            stale: vm.is_stale(*part),
            error: None,
        });
        let mut sources: Vec<SourceWhy> = own.collect();
        sources.push(self.zfs_of(parts, vm.is_stale(Stale::DATASETS)));
        sources.push(SourceWhy {
            name: Origin::Sysinfo.name().to_owned(),
            read_at: self.status.sysinfo().map(|view| view.at),
            stale: self.sysinfo.is_stale(),
            error: None,
        });
        for key in [&*name, Origin::Sysinfo.name()] {
            self.blame(&mut sources, key);
        }
        Some(Why { uuid: parts.zone.uuid.to_string(), zonename: name.to_string(), sources })
    }

    /// Puts the failure noted under this key on its source.
    fn blame(&self, sources: &mut Vec<SourceWhy>, key: &str) {
        let Some(trouble) = self.status.edit(|view| view.errors.get(key).cloned()) else { return };
        let error = Some(trouble.message);
        match sources.iter_mut().find(|source| source.name == trouble.source) {
            Some(source) => source.error = error,
            None => {
                let name = trouble.source;
                sources.push(SourceWhy { name, read_at: None, stale: true, error });
            }
        }
    }

    /// The datasets of a VM, which are read for the node and one by one.
    fn zfs_of(&self, parts: &Parts, is_stale: bool) -> SourceWhy {
        let mut why = SourceWhy {
            name: Origin::Datasets.name().to_owned(),
            read_at: None,
            stale: is_stale,
            error: None,
        };
        for dataset in parts.dataset_names(&self.datasets.tables) {
            why.read_at = why.read_at.max(self.datasets.read_at(&dataset));
            why.stale |= self.datasets.is_wanted(&dataset);
            let trouble = self.status.edit(|view| view.errors.get(&dataset).cloned());
            why.error = why.error.or(trouble.map(|trouble| trouble.message));
        }
        why
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
