// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The story of two nodes: a VM that runs moves to the other one and back, and then for good. Each step is looked at
//! on both nodes, in VMAPI and in NAPI; what changes is told in the order in which it happens.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use migration_core::intent::End;
use sdc_clients::Http;
use sdc_clients::migrations::Options;
use sdc_clients::napi::Napi;
use serde_json::{Value, json};

use super::asking::{OWN_AGENT, found, until};
use super::error::LabError;
use super::outcome::Outcome;
use super::screen::{Screen, Voice};
use super::world::World;
use crate::moving::ending::{Ending, Side, wrong_words};
use crate::moving::judge::{Copy, Judge};
use crate::moving::operator::{Op, Operator, Waits};
use crate::moving::subject::VM;

/// The longest that the records may take to be right after a step.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks at the copies: far less than what passes between two steps of a migration.
const LOOK: Duration = Duration::from_millis(20);
const WAITS: Waits = Waits {
    patience: PATIENCE,
    look: Duration::from_millis(50),
    again: Duration::from_millis(500),
};

/// The steps, where the VM is after each, and whether nothing of the migration is left then.
const STEPS: [(&str, Op, End, bool); 6] = [
    ("begin", Op::Begin, End::Source, false),
    ("sync", Op::Sync, End::Source, false),
    ("switch", Op::Switch, End::Target, false),
    ("rollback", Op::Rollback, End::Source, true),
    ("automatic migration", Op::Automatic, End::Target, false),
    ("finalize", Op::Finalize, End::Target, true),
];

/// Plays the story on two worlds whose daemons run.
pub(super) async fn play(
    worlds: [&World; 2],
    screen: &Screen,
    outcome: &mut Outcome,
) -> Result<(), LabError> {
    let judge = Judge::new(VM);
    let source = worlds[0];
    screen.say(Voice::Lab, &format!("move: a VM with two NICs is made on node 1, {VM}"));
    let nics = source.provision().await?;
    let sight =
        Sight { judge: &judge, worlds, screen, seen: Mutex::default(), doubles: Mutex::default() };
    let told = async {
        judge.write(End::Source, source.node());
        let done = settled(&sight, &nics, End::Source, true, screen).await?;
        outcome.add(screen, "move: VMAPI and NAPI know it".to_owned(), done);
        let client = source.migrations()?;
        let [from, to] = worlds.map(|it| it.node().cn_uuid().parse().unwrap_or_default());
        let operator = Operator { client, source: from, target: to, judge: &judge, waits: WAITS };
        for (name, op, end, is_over) in STEPS {
            screen.say(Voice::Lab, &format!("move: {name}"));
            let done = operator.op(op, || true).await;
            sight.check();
            if let Err(why) = &done {
                screen.say(Voice::Lab, &format!("move: {why:#}; {}", judge.notes().join("; ")));
            }
            let good = done.is_ok() && settled(&sight, &nics, end, is_over, screen).await?;
            let text = format!("{name}: VM, VMAPI's record and {} NICs right", nics.len());
            outcome.add(screen, text, good);
            if !good {
                return Ok(());
            }
            // The guest writes where it runs: what it wrote has to be wherever it runs next.
            judge.write(end, sight.world(end).node());
        }
        Ok(())
    };
    // Dropping the looks loses nothing: the story looks itself when a step is done.
    let result = tokio::select! {
        result = told => result,
        () = sight.keep_checking() => Ok(()),
    };
    let doubles = sight.doubles();
    outcome.add(
        screen,
        format!("moments with two copies running or shown {doubles}"),
        doubles == 0,
    );
    let faults = judge.faults();
    outcome.add(
        screen,
        format!("what the VM wrote went with it {}", faults.join("; ")),
        faults.is_empty(),
    );
    let wrong = wrong_words(source.napi.store(), source.vmapi.store(), &nics);
    let deleted = wrong.iter().filter(|it| it.starts_with("DELETE")).count();
    let told = wrong.len() - deleted;
    let text = format!("its NICs deleted {deleted} times, VMAPI told destroyed {told} times");
    outcome.add(screen, text, wrong.is_empty());
    result
}

/// Moves a VM to a node in one command, and deletes the copy that it leaves.
pub(super) async fn for_good(
    world: &World,
    vm: &str,
    to: &str,
    within: Duration,
) -> Result<(), LabError> {
    let client = world.migrations()?;
    let options = Options {
        migration_automatic: true,
        override_server_uuid: Some(to.to_owned()),
        ..Options::default()
    };
    let asked = client.act(vm, "begin", &options).await;
    asked.map_err(LabError::request("moving a VM"))?;
    until("the VM has moved", within, async || {
        let record = client.get(vm).await.map_err(LabError::request("reading a migration"))?;
        Ok(record.state == "successful")
    })
    .await?;
    let asked = client.act(vm, "finalize", &Options::default()).await;
    asked.map_err(LabError::request("finalizing a migration"))?;
    until("the migration is over", within, async || {
        Ok(found(client.get(vm).await, "reading a migration")?.is_none())
    })
    .await
}

/// Waits until everything is as it has to be after a step, and tells what is not.
async fn settled(
    sight: &Sight<'_>,
    nics: &[Value],
    end: End,
    is_over: bool,
    screen: &Screen,
) -> Result<bool, LabError> {
    let ending = sight.ending(nics, end)?;
    let what = "what a migration leaves is right";
    let wrongs = async || match is_over {
        true => ending.wrongs().await,
        false => ending.underway(),
    };
    match until(what, PATIENCE, async || Ok(wrongs().await.is_empty())).await {
        Err(LabError::TooLate { .. }) => {
            for (promise, what) in wrongs().await {
                screen.say(Voice::Lab, &format!("move: {promise}: {what}"));
            }
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// What is seen of both copies.
#[derive(Clone, Default, PartialEq)]
struct Seen {
    copies: [Option<Copy>; 2],
    /// The node that VMAPI has it on.
    server: Option<Value>,
}

/// Looks at both copies, and tells what has changed.
struct Sight<'a> {
    judge: &'a Judge,
    worlds: [&'a World; 2],
    screen: &'a Screen,
    seen: Mutex<Seen>,
    /// Looks that found two copies running, or two shown.
    doubles: Mutex<u32>,
}

impl Sight<'_> {
    fn world(&self, end: End) -> &World {
        match end {
            End::Source => self.worlds[0],
            End::Target => self.worlds[1],
        }
    }

    fn ending<'a>(&'a self, nics: &'a [Value], end: End) -> Result<Ending<'a>, LabError> {
        let side = |end: End| {
            let world = self.world(end);
            Side { end, node: world.node().clone(), holds: world.agent_state_dir() }
        };
        let napi = Http::new(&self.worlds[0].napi.url(), OWN_AGENT);
        Ok(Ending {
            judge: self.judge,
            here: side(end),
            there: side(end.other()),
            vmapi: self.worlds[0].vmapi.store(),
            napi: self.worlds[0].napi.store(),
            addresses: Napi::new(napi.map_err(LabError::request("a client of NAPI"))?),
            nics,
            with_agents: true,
            is_watched: false,
        })
    }

    async fn keep_checking(&self) {
        loop {
            self.check();
            tokio::time::sleep(LOOK).await;
        }
    }

    fn doubles(&self) -> u32 {
        *self.doubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) {
        let copies = self.worlds.map(|world| self.judge.copy(world.node()));
        let vmapi = self.worlds[0].vmapi.store().get(VM);
        let server = vmapi.and_then(|vm| vm.get("server_uuid").cloned());
        let now = Seen { copies, server };
        let is =
            |what: fn(&Copy) -> bool| copies.iter().flatten().filter(|copy| what(copy)).count();
        if is(|copy| copy.running) > 1 || is(|copy| !copy.hidden) > 1 {
            *self.doubles.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for what in self.changes(&seen, &now) {
            self.screen.say(Voice::Lab, &format!("move: it {what}"));
        }
        *seen = now;
    }

    fn changes(&self, old: &Seen, new: &Seen) -> Vec<String> {
        let mut all = Vec::new();
        for (n, (old, new)) in (1..).zip(old.copies.iter().zip(&new.copies)) {
            let Some(copy) = new else {
                all.extend(old.map(|_| format!("is gone from node {n}")));
                continue;
            };
            let is_new = old.is_none();
            let old = old.unwrap_or(Copy { running: false, hidden: false, autoboot: false });
            if is_new {
                all.push(format!("is on node {n}"));
            }
            if old.running != copy.running {
                let word = if copy.running { "runs" } else { "is stopped" };
                all.push(format!("{word} on node {n}"));
            }
            if old.hidden != copy.hidden {
                let word = if copy.hidden { "hidden" } else { "shown" };
                all.push(format!("is {word} on node {n}"));
            }
        }
        if old.server != new.server {
            let is_there = |world: &&World| new.server == Some(json!(world.node().cn_uuid()));
            let at = self.worlds.iter().position(is_there);
            let text = at.map_or("nowhere".to_owned(), |at| format!("on node {}", at + 1));
            all.push(format!("is {text} for VMAPI"));
        }
        all
    }
}
