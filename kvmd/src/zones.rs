// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The loop for zones: follows vminfod, finds the ends of VMs, and joins QEMU's own verdict where a VM
//! has a second monitor. The platform's monitor of a zone is not touched.
//!
//! An end is judged once the zone is at rest and its facts had time to arrive, or as soon as the zone
//! runs again. A second monitor that has not ended yet is waited for a little longer: it knows more.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::vminfod::{VmObject, Vminfod, WatchEvent, key_of, watch};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use crate::config::Zones;
use crate::ledger::{Marker, Record, Source};
use crate::marker::is_name;
use crate::monitor::{Outlet, Seat, Shared, monitor};
use crate::needed::Need;
use crate::verdict::{Rule, Verdict};
use crate::zone::{Facts, Life, join};

/// A second monitor may end so long after the facts have settled: QEMU ends before its zone, but on a busy node its
/// end may be read later.
const MONITOR_ENDS: Duration = Duration::from_secs(10);
/// Capacity of the channel of QEMU's verdicts.
const VERDICTS: usize = 64;

struct Zone {
    facts: Facts,
    /// The last exit on record: not that of a later life.
    last_exit: Option<String>,
    /// While it runs, and until it is judged.
    life: Option<Life>,
    /// When its facts have settled, once it is at rest.
    judge_at: Option<Instant>,
    qmp: Option<Verdict>,
    monitored: bool,
    /// Lives that were judged before their QEMU's verdict had come.
    overtaken: u32,
}

impl Zone {
    /// Returns when to judge it at the latest, by what is known now.
    fn due(&self) -> Option<Instant> {
        let is_awaited = self.monitored && self.qmp.is_none();
        let more = if is_awaited { MONITOR_ENDS } else { Duration::ZERO };
        self.judge_at.map(|settled| settled + more)
    }
}

/// The loop.
pub struct Follower {
    shared: Arc<Shared>,
    zones: Zones,
    root: PathBuf,
    need: Need,
    known: HashMap<String, Zone>,
    verdicts: mpsc::Sender<(String, Verdict)>,
    heard: mpsc::Receiver<(String, Verdict)>,
    monitors: JoinSet<String>,
}

impl Follower {
    /// Makes a loop without zones; zone paths begin at `root`.
    pub fn new(shared: Arc<Shared>, zones: Zones, root: PathBuf, need: Need) -> Self {
        let (verdicts, heard) = mpsc::channel(VERDICTS);
        let known = HashMap::new();
        Self { shared, zones, root, need, known, verdicts, heard, monitors: JoinSet::new() }
    }

    /// Follows until the shutdown.
    pub async fn run(mut self, client: Vminfod) {
        let shared = Arc::clone(&self.shared);
        let mut watcher = watch(&client, Jitter::from_entropy());
        let mut rescan = interval(shared.limits.rescan);
        loop {
            let next_judgement = self.next_judgement();
            // All arms are cancel-safe: the watcher keeps what it began, verdicts stay queued.
            tokio::select! {
                event = watcher.next() => self.event(event),
                Some((name, verdict)) = self.heard.recv() => self.hear(&name, verdict),
                Some(ended) = self.monitors.join_next() => {
                    if let Ok(name) = ended {
                        self.unwatch(&name);
                    }
                }
                () = sleep_until(next_judgement) => self.judge_due(),
                _ = rescan.tick() => {
                    if let Some(reason) = self.need.missing() {
                        tracing::info!(reason, "not needed any more: stopping");
                        shared.shutdown.trigger();
                    }
                    self.start_monitors();
                }
                () = shared.shutdown.wait() => break,
            }
        }
        self.monitors.abort_all();
    }

    /// Takes QEMU's verdict in. One that comes after its life was judged says nothing of a later one.
    fn hear(&mut self, name: &str, verdict: Verdict) {
        let Some(zone) = self.known.get_mut(name) else { return };
        if zone.overtaken > 0 {
            zone.overtaken -= 1;
            let user = verdict.is_users_wish();
            tracing::info!(
                vm = name,
                user,
                "QEMU's verdict came after the end was judged without it: not counted"
            );
        } else {
            zone.qmp = Some(verdict);
        }
    }

    /// Takes in what the monitors have said so far.
    fn hear_all(&mut self) {
        while let Ok((name, verdict)) = self.heard.try_recv() {
            self.hear(&name, verdict);
        }
    }

    /// Notes that a zone's monitor has ended; all its verdicts were sent before.
    fn unwatch(&mut self, name: &str) {
        self.hear_all();
        if let Some(zone) = self.known.get_mut(name) {
            zone.monitored = false;
            zone.overtaken = 0;
        }
    }

    fn event(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Synced(vms) => vms.iter().for_each(|vm| self.see(vm)),
            WatchEvent::Created(vm)
            | WatchEvent::Modified { vm, .. }
            | WatchEvent::Hidden(vm)
            | WatchEvent::Shown(vm) => self.see(&vm),
            WatchEvent::Deleted(vm) => {
                if let Some(name) = key_of(&vm) {
                    self.deleted(name);
                }
            }
            // Changes meanwhile are found with the next complete view.
            _ => {}
        }
    }

    fn see(&mut self, vm: &VmObject) {
        let (Some(name), Some(facts)) = (key_of(vm).filter(|name| is_name(name)), Facts::of(vm))
        else {
            return;
        };
        let name = name.to_owned();
        let now = self.shared.clock.now();
        let zone = self.known.entry(name.clone()).or_insert_with(|| Zone {
            facts: facts.clone(),
            last_exit: None,
            life: None,
            judge_at: None,
            qmp: None,
            monitored: false,
            overtaken: 0,
        });
        let runs_again = facts.runs() && zone.judge_at.is_some();
        if runs_again {
            self.judge(&name);
        }
        let Some(zone) = self.known.get_mut(&name) else { return };
        zone.facts = facts;
        if zone.life.is_none() && zone.facts.exit_timestamp.is_some() {
            zone.last_exit.clone_from(&zone.facts.exit_timestamp);
        }
        if zone.facts.runs() && zone.life.is_none() {
            zone.life = Some(Life::begin(&zone.facts, zone.last_exit.clone()));
            zone.qmp = None;
        }
        let Some(life) = &mut zone.life else { return };
        life.see(&zone.facts, now);
        if zone.facts.rests() && zone.judge_at.is_none() {
            zone.judge_at = Some(Instant::now() + self.zones.settle);
        }
        if zone.facts.runs() {
            self.watch_monitor(&name);
        }
    }

    fn deleted(&mut self, name: &str) {
        if let Some(zone) = self.known.get_mut(name)
            && let Some(life) = &mut zone.life
        {
            life.delete();
            self.judge(name);
        }
        self.known.remove(name);
        self.shared.ledger.deleted(name);
    }

    fn next_judgement(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3600);
        self.known.values().filter_map(Zone::due).min().unwrap_or(never)
    }

    fn judge_due(&mut self) {
        let now = Instant::now();
        let due = |zone: &Zone| zone.due().is_some_and(|at| at <= now);
        let names: Vec<String> =
            self.known.iter().filter(|(_, zone)| due(zone)).map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.judge(name));
    }

    /// Publishes the verdict on the life that ended.
    fn judge(&mut self, name: &str) {
        self.hear_all();
        let Some(zone) = self.known.get_mut(name) else { return };
        zone.judge_at = None;
        let Some(life) = zone.life.take() else { return };
        zone.last_exit = zone.facts.exit_timestamp.clone().or(zone.last_exit.take());
        let window = self.shared.limits.admin_window;
        let by_facts = life.verdict(&zone.facts, self.shared.clock.now(), window);
        if zone.monitored && zone.qmp.is_none() {
            zone.overtaken += 1;
        }
        let (verdict, by_qmp) = join(zone.qmp.take(), by_facts);
        self.shared.ledger.publish(&Record {
            name: name.to_owned(),
            user: verdict.is_users_wish(),
            verdict,
            rule: Rule::Reason,
            marker: Marker::None,
            source: if by_qmp { Source::Qmp } else { Source::Zone },
            generation: 0,
        });
    }

    /// Starts monitors for all running zones that have none.
    fn start_monitors(&mut self) {
        let running: Vec<String> = self
            .known
            .iter()
            .filter(|(_, zone)| zone.facts.runs() && !zone.monitored)
            .map(|(name, _)| name.clone())
            .collect();
        running.iter().for_each(|name| self.watch_monitor(name));
    }

    /// Starts the monitor of a kvm zone if a second monitor is configured and exists.
    fn watch_monitor(&mut self, name: &str) {
        let Some(inside) = &self.zones.socket else { return };
        let Some(zone) = self.known.get_mut(name) else { return };
        if zone.monitored || zone.facts.brand != "kvm" {
            return;
        }
        let Some(zonepath) = &zone.facts.zonepath else { return };
        let top = self.root.join(zonepath.trim_start_matches('/')).join("root");
        let Some(socket) = socket_inside(&top, inside) else { return };
        zone.monitored = true;
        let seat =
            Seat { name: name.to_owned(), socket, outlet: Outlet::Zones(self.verdicts.clone()) };
        let (shared, name) = (Arc::clone(&self.shared), name.to_owned());
        self.monitors.spawn(async move {
            monitor(shared, seat, Arc::new(Notify::new())).await;
            name
        });
    }
}

/// Returns the socket at `inside` below a zone's root. The zone's root user owns everything there, so
/// no part of the path may be a link: it could lead anywhere on the node.
pub fn socket_inside(top: &Path, inside: &Path) -> Option<PathBuf> {
    let mut path = top.to_owned();
    let mut parts = inside.strip_prefix("/").ok()?.components().peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
        let fits = if parts.peek().is_some() { kind.is_dir() } else { kind.is_socket() };
        if !fits {
            return None;
        }
    }
    Some(path)
}
