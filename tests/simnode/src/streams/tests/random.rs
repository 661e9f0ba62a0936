// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Random changes and streams that break: what arrives is what was sent, and nothing else.

use std::collections::HashMap;

use proptest::prelude::*;

use super::pair::{Pair, get, snapshots, zfs};
use crate::streams::fault::{Effect, End};
use crate::trees::Tree;

const TOP: &str = "zones/vm";

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8, usize, u8),
    Property(usize, u8, u8),
    Unset(usize, u8),
    Snapshot(usize),
    SnapshotProperty(usize, u8),
    DestroyOldest(usize),
    NewChild,
    Touch(u8),
    Sync { resumable: bool, fault: Option<(End, Effect, u16)>, again: Option<(End, Effect, u16)> },
}

fn step() -> impl Strategy<Value = Step> {
    let fault = || {
        let end = prop_oneof![Just(End::Send), Just(End::Receive)];
        let effect = prop_oneof![Just(Effect::Ends), Just(Effect::Flips), Just(Effect::NoSpace)];
        proptest::option::weighted(0.7, (end, effect, any::<u16>()))
    };
    let write = (0..3_usize, 0..4_u8, 0..60_000_usize, any::<u8>());
    prop_oneof![
        4 => write.prop_map(|(of, file, len, fill)| Step::Write(of, file, len, fill)),
        1 => (0..3_usize, 0..3_u8, any::<u8>()).prop_map(|(of, key, value)| Step::Property(of, key, value)),
        1 => (0..3_usize, 0..3_u8).prop_map(|(of, key)| Step::Unset(of, key)),
        1 => (0..3_usize).prop_map(Step::Snapshot),
        1 => (0..3_usize, any::<u8>()).prop_map(|(of, value)| Step::SnapshotProperty(of, value)),
        1 => (0..3_usize).prop_map(Step::DestroyOldest),
        1 => Just(Step::NewChild),
        1 => any::<u8>().prop_map(Step::Touch),
        4 => (any::<bool>(), fault(), fault())
            .prop_map(|(resumable, fault, again)| Step::Sync { resumable, fault, again }),
    ]
}

struct World {
    pair: Pair,
    /// Every snapshot that the source ever had, by number.
    taken: HashMap<u64, (String, Tree)>,
    count: u32,
}

impl World {
    fn new() -> World {
        let pair = Pair::new();
        zfs(&pair.source, "create zones/vm").unwrap();
        zfs(&pair.source, "create zones/vm/a").unwrap();
        World { pair, taken: HashMap::new(), count: 0 }
    }

    fn datasets(&self) -> Vec<String> {
        Pair::state(&self.pair.source, TOP).into_keys().collect()
    }

    fn dataset(&self, at: usize) -> String {
        let all = self.datasets();
        all[at % all.len()].clone()
    }

    fn snapshot(&mut self, of: &str, recursive: bool) -> String {
        self.count += 1;
        let name = format!("s{}", self.count);
        let flag = if recursive { "-r " } else { "" };
        zfs(&self.pair.source, &format!("snapshot {flag}{of}@{name}")).unwrap();
        for dataset in self.datasets() {
            for (name, guid, contents, _) in snapshots(&self.pair.source, &dataset) {
                self.taken.entry(guid).or_insert((format!("{dataset}@{name}"), contents));
            }
        }
        name
    }

    fn step(&mut self, step: Step) {
        let source = &self.pair.source;
        match step {
            Step::Write(of, file, len, fill) => {
                let bytes: Vec<u8> =
                    (0..len).map(|at| fill.wrapping_mul((at / 5000) as u8)).collect();
                source.write_file(&self.dataset(of), &format!("d/{file}"), &bytes).unwrap();
            }
            Step::Property(of, key, value) => {
                let (key, value) = match key {
                    0 => ("quota", format!("{}m", 100 + u32::from(value))),
                    1 => ("readonly", if value & 1 == 1 { "on" } else { "off" }.to_string()),
                    _ => ("x:y", value.to_string()),
                };
                zfs(source, &format!("set {key}={value} {}", self.dataset(of))).unwrap();
            }
            Step::Unset(of, key) => {
                let name = self.dataset(of);
                let line = match key {
                    0 => format!("set quota=none {name}"),
                    1 => format!("inherit readonly {name}"),
                    _ => format!("inherit x:y {name}"),
                };
                zfs(source, &line).unwrap();
            }
            Step::Snapshot(of) => {
                let name = self.dataset(of);
                self.snapshot(&name, false);
            }
            Step::SnapshotProperty(of, value) => {
                let name = self.dataset(of);
                let snap = self.snapshot(&name, false);
                zfs(&self.pair.source, &format!("set x:s={value} {name}@{snap}")).unwrap();
            }
            Step::DestroyOldest(of) => {
                let name = self.dataset(of);
                if let Some((snap, ..)) = snapshots(source, &name).first() {
                    zfs(source, &format!("destroy {name}@{snap}")).unwrap();
                }
            }
            Step::NewChild => {
                self.count += 1;
                zfs(source, &format!("create zones/vm/n{}", self.count)).unwrap();
            }
            Step::Touch(fill) => {
                if self.pair.target.datasets().unwrap().get(TOP).is_some() {
                    let _ = self.pair.target.write_file(TOP, "stray", &[fill]);
                }
            }
            Step::Sync { resumable, fault, again } => self.sync(resumable, [fault, again]),
        }
    }

    /// What is on the target is what was taken on the source.
    fn check(&self) {
        for (name, (snapshots, _)) in Pair::state(&self.pair.target, TOP) {
            for (snap, guid, contents, _) in snapshots {
                let full = format!("{name}@{snap}");
                assert_eq!(self.taken.get(&guid), Some(&(full, contents)));
            }
        }
    }

    /// The newest snapshot of the whole tree that both have.
    fn common(&self, top: &str) -> Option<String> {
        let theirs = snapshots(&self.pair.target, top);
        let ours = snapshots(&self.pair.source, top);
        let both = |guid: u64| theirs.iter().any(|(_, other, ..)| *other == guid);
        ours.into_iter().rev().find(|(_, guid, ..)| both(*guid)).map(|(name, ..)| name)
    }

    fn sync(&mut self, resumable: bool, faults: [Option<(End, Effect, u16)>; 2]) {
        let to = self.snapshot(TOP, true);
        let flags = if resumable { "-u -F -s" } else { "-u -F" };
        for (end, effect, after) in faults.into_iter().flatten() {
            let node = if end == End::Send { &self.pair.source } else { &self.pair.target };
            node.fail_stream(end, u64::from(after) * 2, effect).unwrap();
        }
        let whole = match self.common(TOP) {
            Some(base) => format!("-R -I @{base} {TOP}@{to}"),
            None => format!("-R {TOP}@{to}"),
        };
        let _ = self.pair.copy(&whole, &format!("{flags} {TOP}"));
        self.check();
        // Whatever broke is mended dataset by dataset, parents first.
        for dataset in self.datasets() {
            for attempt in 0.. {
                assert!(attempt < 20, "{dataset} never arrives");
                if self.arrived(&dataset, flags) {
                    break;
                }
                self.check();
            }
        }
        // Nothing may have been left to mend, and then the second fault still waits for its stream.
        for (node, end) in [(&self.pair.source, End::Send), (&self.pair.target, End::Receive)] {
            while node.take_stream_fault(end).unwrap().is_some() {}
        }
        // With no faults left a replica from a snapshot that all have makes both equal.
        let base = to;
        let to = self.snapshot(TOP, true);
        self.pair.copy(&format!("-R -I @{base} {TOP}@{to}"), &format!("-u -F {TOP}")).unwrap();
        self.check();
        assert_eq!(Pair::state(&self.pair.source, TOP), Pair::state(&self.pair.target, TOP));
    }

    /// Makes the next step of one dataset; returns true if it has all snapshots.
    fn arrived(&self, dataset: &str, flags: &str) -> bool {
        let (source, target) = (&self.pair.source, &self.pair.target);
        let present = target.datasets().unwrap().get(dataset).is_some();
        let token = present.then(|| get(target, "receive_resume_token", dataset));
        if let Some(token) = token.filter(|token| token != "-") {
            let resumed = self.pair.copy(&format!("-t {token}"), &format!("{flags} {dataset}"));
            if resumed.is_err() && get(target, "receive_resume_token", dataset) == token {
                // Its snapshot is gone, or no byte arrived.
                let _ = self.pair.copy("", &format!("-A {dataset}"));
            }
            return false;
        }
        let ours = snapshots(source, dataset);
        let newest = ours.last().unwrap();
        if snapshots(target, dataset).iter().any(|(_, guid, ..)| *guid == newest.1) {
            return true;
        }
        let line = match self.common(dataset) {
            Some(base) => format!("-p -I @{base} {dataset}@{}", newest.0),
            None => {
                if present {
                    zfs(target, &format!("destroy -r {dataset}")).unwrap();
                }
                format!("-p {dataset}@{}", ours[0].0)
            }
        };
        let _ = self.pair.copy(&line, &format!("{flags} {dataset}"));
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_arrives_is_what_was_sent(steps in proptest::collection::vec(step(), 1..16)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.sync(true, [None, None]);
    }
}
