// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Looks at both nodes at every step (P13): never two copies running, never two shown, never the last good copy
//! gone, and nothing gone that a migration did not make (`Things`). It also is the guest: whatever runs writes now
//! and then, and what was written last has to be somewhere.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use migration_core::intent::End;
use simnode::Node;
use simnode::datasets::Datasets;
use tokio::time::Instant;

use super::subject::files;
use super::things::Things;

/// Every so many looks the guest writes.
const WRITES: usize = 25;
/// Another service takes over after this time, at the earliest.
const LEASE: Duration = Duration::from_secs(8);

/// One copy of the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub running: bool,
    /// It is hidden.
    pub hidden: bool,
    /// It boots with its node.
    pub autoboot: bool,
}

#[derive(Default)]
struct State {
    nodes: Vec<(End, Node)>,
    looks: usize,
    /// What the guest has written last; 0: nothing yet.
    written: u64,
    faults: Vec<String>,
    notes: Vec<String>,
    /// What a person was told of the migration, each once, and the commands that he gave.
    told: Vec<String>,
    typed: Vec<&'static str>,
    is_over: bool,
    /// Which service acted last, and when.
    acted: Option<(u8, Instant)>,
    vmapi: Option<mocks::vmapi::Store>,
    /// What is written on this node is lost, by an operator's word.
    given_up: Option<End>,
    /// This node has no power: nobody sees what it has.
    dark: Option<End>,
    /// The copy that a person has booted, and whether it was seen running: until it is stopped, or is the VM, it is none
    /// that the migration lets run.
    by_hand: Option<(End, bool)>,
    /// Where the VM ran last, since when it does not, and how long it did not run before, from where to where.
    ran: Option<End>,
    down: Option<(End, Instant)>,
    outages: Vec<Outage>,
    /// What is on each node, where it is known who made it.
    things: Option<Things>,
    /// What the VM's configuration on a node said, and its text: it is parsed again only where it changed.
    configs: HashMap<PathBuf, (String, Config)>,
}

/// A time without a copy that runs.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Where the VM ran before.
    pub from: End,
    /// Where it ran next.
    pub to: End,
    pub since: Instant,
    pub length: Duration,
}

/// What the judge asks of a zone's configuration.
#[derive(Clone, Copy)]
struct Config {
    hidden: bool,
    autoboot: bool,
}

/// The judge of one run.
pub struct Judge {
    vm: String,
    state: Mutex<State>,
}

impl Judge {
    /// Judges this VM.
    pub fn new(vm: &str) -> Judge {
        Judge { vm: vm.to_owned(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at this node, too.
    pub fn add(&self, end: End, node: &Node) {
        self.state().nodes.push((end, node.clone()));
    }

    /// Looks for who made what there is, too.
    pub fn know_makers(&self) {
        self.state().things = Some(Things::default());
    }

    /// Compares with VMAPI's record, too.
    pub fn know(&self, vmapi: &mocks::vmapi::Store) {
        self.state().vmapi = Some(vmapi.clone());
    }

    /// An agent has taken what a service said.
    pub fn acts(&self, nth: u8) {
        let before = self.state().acted.replace((nth, Instant::now()));
        if let Some((other, at)) = before
            && other != nth
            && at.elapsed() < LEASE
        {
            self.fault("P15", "two services act on one record");
        }
    }

    /// Something is wrong.
    pub fn fault(&self, promise: &str, what: &str) {
        let mut state = self.state();
        let line = format!("{promise}: {what}");
        if !state.faults.contains(&line) {
            state.notes.push(format!("!! {line}"));
            state.faults.push(line);
        }
    }

    /// Something is worth knowing where something is wrong.
    pub fn note(&self, what: impl Into<String>) {
        self.state().notes.push(what.into());
    }

    /// A person is told this.
    pub fn tells(&self, what: &str) {
        let told = &mut self.state().told;
        if !told.iter().any(|it| it == what) {
            told.push(what.to_owned());
        }
    }

    /// A person gives this command.
    pub fn types(&self, verb: &'static str) {
        self.state().typed.push(verb);
    }

    /// What a person was told, and the commands that he gave.
    pub fn dialogue(&self) -> (Vec<String>, Vec<&'static str>) {
        let state = self.state();
        (state.told.clone(), state.typed.clone())
    }

    /// What was wrong.
    pub fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    pub fn notes(&self) -> Vec<String> {
        self.state().notes.clone()
    }

    /// An operator gives up what is on this node, for what the other one has.
    pub fn give_up(&self, end: End, other: &Node) {
        let file = files(&self.vm).into_iter().next_back();
        let kept = file.and_then(|(dataset, file)| {
            let bytes = other.file(&*other.datasets().ok()?, &dataset, file)?;
            String::from_utf8_lossy(&bytes).trim().parse().ok()
        });
        let mut state = self.state();
        state.given_up = Some(end);
        state.written = kept.unwrap_or(0);
        let line = format!("-- what the {end} has is given up for {}", state.written);
        state.notes.push(line);
    }

    /// A node that was declared dead has no power, until it has booted; or nobody can reach it, until it is back and
    /// its copy was to be stopped.
    pub fn dark(&self, end: End, is_dark: bool) {
        let dark = &mut self.state().dark;
        *dark = dark.filter(|it| *it != end).or(is_dark.then_some(end));
    }

    /// A person is about to boot this copy.
    pub fn by_hand(&self, end: End) {
        self.state().by_hand = Some((end, false));
    }

    /// A copy runs that a person has booted.
    pub fn is_by_hand(&self) -> bool {
        self.state().by_hand.is_some()
    }

    /// The times without a copy that runs, but for one that is not over.
    pub fn outages(&self) -> Vec<Outage> {
        self.state().outages.clone()
    }

    /// Each copy that runs, but for one that a person has booted and that is not the VM yet.
    fn run(&self, copies: &[(End, &Node, Copy)], server: Option<&serde_json::Value>) -> Vec<End> {
        let mut state = self.state();
        if let Some((end, was_running)) = state.by_hand {
            let copy = copies.iter().find(|(it, ..)| *it == end);
            let runs = copy.is_some_and(|(.., copy)| copy.running);
            let is_vm = copy.is_some_and(|(_, node, copy)| {
                !copy.hidden && server.is_none_or(|server| server == node.cn_uuid())
            });
            let is_over = was_running && !runs || runs && is_vm;
            state.by_hand = (!is_over).then_some((end, was_running || runs));
        }
        let by_hand = state.by_hand.map(|it| it.0);
        let running = copies.iter().filter(|(end, _, copy)| copy.running && by_hand != Some(*end));
        let running: Vec<End> = running.map(|(end, ..)| *end).collect();
        match (running.first(), state.down, state.ran) {
            (Some(&to), Some((from, since)), _) => {
                state.outages.push(Outage { from, to, since, length: since.elapsed() });
                (state.down, state.ran) = (None, Some(to));
            }
            (Some(&to), None, _) => state.ran = Some(to),
            (None, None, Some(from)) => state.down = Some((from, Instant::now())),
            (None, ..) => {}
        }
        running
    }

    /// The guest writes no more.
    pub fn rest(&self) {
        self.state().is_over = true;
    }

    /// Returns the copy on a node.
    pub fn copy(&self, node: &Node) -> Option<Copy> {
        let zones = node.zones().ok()?;
        let zone = zones.find(&self.vm)?;
        let Config { hidden, autoboot } = self.config(node)?;
        Some(Copy { running: zone.state.is_active(), hidden, autoboot })
    }

    fn config(&self, node: &Node) -> Option<Config> {
        let file = node.zone_xml(&self.vm);
        let text = std::fs::read_to_string(&file).ok()?;
        if let Some((known, config)) = self.state().configs.get(&file)
            && *known == text
        {
            return Some(*config);
        }
        let xml = simnode::xml::parse(&text).ok()?;
        let config = Config {
            hidden: xml.value("attr", "do-not-inventory") == Some("true"),
            autoboot: xml.get("autoboot") == Some("true"),
        };
        self.state().configs.insert(file, (text, config));
        Some(config)
    }

    /// Checks the promises against the world as it is now.
    pub fn check(&self, label: &str) {
        let (nodes, written, looks, dark) = {
            let mut state = self.state();
            state.looks += 1;
            (state.nodes.clone(), state.written, state.looks, state.dark)
        };
        let copies: Vec<(End, &Node, Copy)> =
            nodes.iter().filter_map(|(end, node)| Some((*end, node, self.copy(node)?))).collect();
        let vmapi = self.state().vmapi.clone();
        let server = vmapi.and_then(|vmapi| vmapi.get(&self.vm)?.get("server_uuid").cloned());
        let run = self.run(&copies, server.as_ref());
        let is_up = |(end, ..): &&(End, &Node, Copy)| run.contains(end) && dark != Some(*end);
        if copies.iter().filter(is_up).count() > 1 {
            self.fault("P13", &format!("two copies run ({label})"));
        }
        let is_shown = |(end, _, copy): &&(End, &Node, Copy)| !copy.hidden && dark != Some(*end);
        if copies.iter().filter(is_shown).count() > 1 {
            self.fault("P13", &format!("two copies are shown ({label})"));
        }
        for (end, node, _) in copies.iter().filter(is_up) {
            if server.as_ref().is_some_and(|server| server != node.cn_uuid()) {
                self.fault(
                    "M17",
                    &format!("the {end}'s copy runs, and VMAPI has it elsewhere ({label})"),
                );
            }
        }
        let lost = {
            let state = &mut *self.state();
            let given_up = state.given_up;
            let things = state.things.as_mut();
            things.map(|things| things.look(&self.vm, &nodes, given_up)).unwrap_or_default()
        };
        for what in lost {
            self.fault("M256", &format!("{what} is gone, which no migration made ({label})"));
        }
        let destroys = ["destroy", "rollback", "receive", "delete"];
        let is_good = |node: &Node| self.has(node, written);
        if written > 0
            && destroys.iter().any(|word| label.contains(word))
            && !nodes.iter().any(|(_, node)| is_good(node))
        {
            self.fault("P13", &format!("what was written last is nowhere ({label})"));
        }
        let mut running = copies.iter().filter(is_up);
        if let (Some((end, node, _)), None) = (running.next(), running.next())
            && looks.is_multiple_of(WRITES)
        {
            self.write(*end, node);
        }
    }

    /// The guest writes, on the node where it runs.
    pub fn write(&self, end: End, node: &Node) {
        let written = self.state().written;
        if self.state().is_over || self.state().given_up == Some(end) {
            return;
        }
        if written > 0 && !self.has_live(node, written) {
            self.fault("P13", &format!("the VM runs on the {end}'s node with old data"));
        }
        let next = written + 1;
        for (dataset, file) in files(&self.vm) {
            let mut bytes = next.to_string().into_bytes();
            bytes.resize(64, b' ');
            if let Err(error) = node.write_file(&dataset, file, &bytes) {
                self.note(format!("the guest cannot write {dataset}: {error}"));
                return;
            }
        }
        self.state().written = next;
    }

    /// What the guest wrote last is in the live datasets of this node.
    pub fn is_latest(&self, node: &Node) -> bool {
        let written = self.state().written;
        self.has_live(node, written)
    }

    fn has_live(&self, node: &Node, written: u64) -> bool {
        node.datasets().is_ok_and(|all| self.has_at(node, &all, written, ""))
    }

    fn has(&self, node: &Node, written: u64) -> bool {
        let Ok(all) = node.datasets() else { return false };
        let root = format!("zones/{}", self.vm);
        let names = all
            .snapshots(&root)
            .into_iter()
            .filter_map(|row| Some(format!("@{}", row.name.split_once('@')?.1)));
        std::iter::once(String::new())
            .chain(names)
            .any(|name| self.has_at(node, &all, written, &name))
    }

    fn has_at(&self, node: &Node, all: &Datasets, written: u64, snapshot: &str) -> bool {
        files(&self.vm).iter().all(|(dataset, file)| {
            let bytes = node.file(all, &format!("{dataset}{snapshot}"), file);
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
            text.as_deref() == Some(&written.to_string())
        })
    }
}
