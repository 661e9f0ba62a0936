// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that comes back: its copy of a VM may have been replaced while it was away. What has an open migration here
//! is neither shown nor booted before migration-service confirms that it was not. A node that was only cut off runs on:
//! its agent asks when it has received nothing about a migration for a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Program};
use tokio::time::Instant;
use uuid::Uuid;

use super::execute::order;
use super::failed::Failed;
use super::memory::{Entry, Memory, Taken};
use super::parts::Parts;
use super::peer::Peers;
use super::status::{Count, Own, State, Task};
use migration_core::protocol::{About, Order, Replaced, What};

/// For one question to the service, and between two.
const ANSWERS: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(10);
/// So often the service is asked before the zones boot.
const ASKED: u32 = 3;
const DEADLINE: Duration = Duration::from_secs(60);

/// Why a node's zones may boot although they were not checked.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("zonecfg of {vm}: {source}")]
    Zonecfg {
        vm: Uuid,
        /// Its message.
        source: CommandError,
    },
    #[error("zoneadm of {vm}: {source}")]
    Zoneadm {
        vm: Uuid,
        /// Its message.
        source: CommandError,
    },
    /// The state file.
    #[error(transparent)]
    NotTaken(#[from] super::memory::NotTaken),
}

type Open = BTreeMap<Uuid, Entry>;

/// Asks the service which copies of this node were replaced, and which of its open migrations it knows.
async fn replaced(
    peers: &Peers,
    (service, cn): (&str, Uuid),
    open: &Open,
) -> Result<Replaced, sdc_clients::Error> {
    let ids = open.iter().map(|(id, Entry { revision, other, nonce, .. })| {
        let other = other.map(|it| it.to_string()).unwrap_or_default();
        let nonce = nonce.map(|it| it.to_string()).unwrap_or_default();
        format!("{id}.{revision}.{other}.{nonce}")
    });
    let ids: Vec<String> = ids.collect();
    let call = sdc_clients::http::Call::get(&["agents", &cn.to_string(), "replaced"])
        .query("open", ids.join(","))
        .timeout(ANSWERS);
    peers.service(service)?.execute(call).await?.json("the copies that were replaced")
}

/// Before the zones boot: hides and keeps down each copy that was replaced or that the service does not answer for,
/// until it does. Returns what was done, for the start method's log.
pub async fn before_zones(
    memory: &Memory,
    commands: &dyn Commands,
    peers: &Peers,
    (service, cn): (&str, Uuid),
) -> Result<String, BootError> {
    let open = memory.open();
    if open.is_empty() {
        return Ok("no migration is open on this node\n".to_owned());
    }
    let mut answer = replaced(peers, (service, cn), &open).await;
    for _ in 1..ASKED {
        if answer.is_err() {
            tokio::time::sleep(PAUSE).await;
            answer = replaced(peers, (service, cn), &open).await;
        }
    }
    let mut text = String::new();
    for (migration, entry) in open {
        let vm = entry.vm;
        let zone = Zone { vm, commands };
        let word = match &answer {
            Ok(answer) => copy_answer(answer, migration),
            Err(error) => CopyAnswer::None(error.to_string()),
        };
        if word == CopyAnswer::Replaced {
            zone.set_autoboot(false).await?;
            zone.hide().await?;
            memory.change(migration, found_replaced).await?;
            zone.halt().await?;
            text += &format!("{vm} was replaced on another node: it is hidden and does not boot\n");
        } else if let CopyAnswer::None(why) = word
            && !zone.is_up().await?
        {
            let taken = zone.has().await?;
            if taken != Taken::default() {
                memory.change(migration, |entry| found_unknown(entry, taken)).await?;
                zone.set_autoboot(false).await?;
                zone.hide().await?;
                text += &format!("{vm} waits: {why}; migration-agent release {vm} gives it back\n");
            }
        }
    }
    Ok(text)
}

/// The service's answer about one migration.
#[derive(Debug, PartialEq, Eq)]
enum CopyAnswer {
    /// The copy was replaced.
    Replaced,
    /// It was not.
    Kept,
    /// Nothing, and why.
    None(String),
}

/// A service whose store is empty, or older than the migration, does not know it: that is no answer.
fn copy_answer(answer: &Replaced, migration: Uuid) -> CopyAnswer {
    if answer.replaced.contains(&migration) {
        CopyAnswer::Replaced
    } else if answer.known.contains(&migration) {
        CopyAnswer::Kept
    } else {
        CopyAnswer::None(format!(
            "the service has no record of migration {migration}, or an older one"
        ))
    }
}

fn found_replaced(entry: &mut Entry) {
    (entry.waits, entry.hidden, entry.replaced) = (None, true, true);
}

/// What is taken adds up where the node goes down again before there is an answer.
fn found_unknown(entry: &mut Entry, taken: Taken) {
    let all = entry.waits.get_or_insert_default();
    all.autoboot |= taken.autoboot;
    all.shown |= taken.shown;
}

/// Asks the service while a VM waits, and when nothing about an open migration was received for `quiet`.
pub async fn ask(parts: Arc<Parts>, service: String, quiet: Duration) {
    let (mut answered, mut is_logged): (Option<Instant>, bool) = (None, false);
    loop {
        let open = parts.memory.open();
        let waits = open.values().any(|entry| entry.waits.is_some());
        let is_due = answered.is_none_or(|at| at.elapsed() >= quiet);
        let is_quiet = || open.keys().any(|id| parts.memory.is_quiet(*id, quiet));
        if waits || (is_due && is_quiet()) {
            let (status, began) = (&parts.status, Instant::now());
            match replaced(&parts.peers, (&service, parts.cn), &open).await {
                Ok(answer) => {
                    (answered, is_logged) = (Some(Instant::now()), false);
                    status.count(Count::Asked);
                    let mut state = State::Resting;
                    for (migration, entry) in &open {
                        if let Err(error) = obey(&parts, &answer, *migration, entry).await {
                            answered = None; // both copies may run: it is tried again at once
                            let vm = entry.vm;
                            tracing::error!(%vm, %error, "cannot act on a replaced or waiting copy; it is tried again");
                            state = State::Retrying(status.failed(Count::Errors, &error));
                        }
                    }
                    if state == State::Resting {
                        status.recovered(..began);
                    }
                    status.is(Task::Replaced, state);
                }
                Err(error) => {
                    if !is_logged {
                        tracing::warn!(%error, "migration-service did not answer which copies were replaced; asking again");
                    }
                    is_logged = true;
                    let why = status.failed(Count::Errors, &error);
                    status.is(Task::Replaced, State::Own(Own::Service(why)));
                }
            }
        } else {
            parts.status.is(Task::Replaced, State::Resting);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Acts on the service's answer about a VM.
async fn obey(
    parts: &Arc<Parts>,
    answer: &Replaced,
    migration: Uuid,
    entry: &Entry,
) -> Result<(), Failed> {
    match (copy_answer(answer, migration), entry.waits) {
        (CopyAnswer::Replaced, _) => keep_down(parts, migration, entry).await,
        (CopyAnswer::Kept, Some(taken)) => give_back(parts, migration, entry.vm, taken).await,
        (CopyAnswer::Kept, None) if answer.over.contains(&migration) => {
            let Entry { vm, end, revision, nonce, .. } = *entry;
            let about = About { migration, revision, nonce, vm, end };
            let over = Order { about, wait_ms: 0, order: What::Over, instead: None };
            tracing::info!(%vm, %migration, "forgetting a migration that has ended: its end never reached this agent");
            Ok(order(parts, over).await.map(drop)?)
        }
        (CopyAnswer::Kept, None) if entry.replaced => {
            Ok(parts.memory.change(migration, |entry| entry.replaced = false).await?)
        }
        (CopyAnswer::Kept, None) => Ok(()),
        (CopyAnswer::None(why), _) => {
            tracing::error!(vm = %entry.vm, why, "no answer from migration-service about a copy; the VM stays down");
            Ok(())
        }
    }
}

/// Stops and hides what was replaced. The other copy runs: there is no time for a shutdown. Orders that came since the
/// service was asked are newer than its answer.
async fn keep_down(parts: &Parts, migration: Uuid, entry: &Entry) -> Result<(), Failed> {
    let Entry { vm, end, revision, nonce, .. } = *entry;
    let about = About { migration, revision, nonce, vm, end };
    let is_newest = || parts.memory.is_newest(&about);
    is_newest()?;
    let Some(object) = parts.node.vm(vm).await? else {
        return Ok(parts.memory.change(migration, found_replaced).await?);
    };
    if !super::vm::is_off(&object) {
        tracing::error!(%vm, "the VM was replaced on another node; stopping and hiding this copy");
    }
    parts.node.set_autoboot(vm, false).await?;
    is_newest()?;
    parts.node.halt(vm).await?;
    is_newest()?;
    parts.memory.change(migration, |entry| entry.hold = true).await?;
    if let Err(error) = parts.node.hold(vm, migration).await {
        tracing::warn!(%vm, %error, "cannot place net-agent's hold on a replaced copy; it is tried again");
    }
    is_newest()?;
    parts.node.set_hidden(vm, true).await?;
    Ok(parts.memory.change(migration, found_replaced).await?)
}

async fn give_back(parts: &Parts, migration: Uuid, vm: Uuid, taken: Taken) -> Result<(), Failed> {
    if taken.shown {
        parts.node.set_hidden(vm, false).await?;
    }
    if taken.autoboot {
        parts.node.set_autoboot(vm, true).await?;
        parts.node.boot(vm).await?;
    }
    Ok(parts.memory.change(migration, |entry| entry.waits = None).await?)
}

/// Shows and boots a VM that waits, as an operator confirmed. Returns false if it does not wait.
pub async fn release(parts: &Parts, vm: Uuid) -> Result<bool, Failed> {
    let mut open = parts.memory.open().into_iter().filter(|(_, entry)| entry.vm == vm);
    let Some((migration, taken)) = open.find_map(|(id, entry)| Some((id, entry.waits?))) else {
        return Ok(false);
    };
    give_back(parts, migration, vm, taken).await?;
    Ok(true)
}

/// The configuration of a zone that has not booted.
struct Zone<'a> {
    vm: Uuid,
    commands: &'a dyn Commands,
}

impl Zone<'_> {
    async fn zoneadm(&self, verb: &[&str]) -> Result<String, BootError> {
        let vm = self.vm.to_string();
        let args = ["-z", &vm].iter().chain(verb).map(|it| (*it).to_owned()).collect();
        let ran = self.commands.run(Call::new(Program::Zoneadm, args, DEADLINE)).await;
        let wrong = |source| BootError::Zoneadm { vm: self.vm, source };
        let output = ran.map_err(wrong)?;
        if output.status != 0 && !output.complaint().contains("No such zone") {
            return Err(wrong(CommandError::Exit { command: verb.join(" "), output }));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns true if it runs, or is on its way: the node is not booting.
    async fn is_up(&self) -> Result<bool, BootError> {
        let listed = self.zoneadm(&["list", "-p"]).await?;
        let state = listed.split(':').nth(2).unwrap_or_default();
        Ok(!["", "configured", "incomplete", "installed"].contains(&state))
    }

    /// Stops it without a shutdown, if it is up.
    async fn halt(&self) -> Result<(), BootError> {
        if self.is_up().await? {
            tracing::error!(vm = %self.vm, "the VM was replaced on another node but runs here; halting it");
            self.zoneadm(&["halt"]).await?;
        }
        Ok(())
    }

    async fn zonecfg(&self, command: &str) -> Result<String, BootError> {
        let args = vec!["-z".to_owned(), self.vm.to_string(), command.to_owned()];
        let ran = self.commands.run(Call::new(Program::Zonecfg, args, DEADLINE)).await;
        let wrong = |source| BootError::Zonecfg { vm: self.vm, source };
        let output = ran.map_err(wrong)?;
        if output.status != 0 && !output.complaint().contains("No such") {
            return Err(wrong(CommandError::Exit { command: command.to_owned(), output }));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns the value of an attribute; none if there is no such one, or no zone.
    async fn attribute(&self, name: &str) -> Result<Option<String>, BootError> {
        let text = self.zonecfg(&format!("info attr name={name}")).await?;
        let value = text.lines().find_map(|line| line.trim().strip_prefix("value:"));
        Ok(value.map(|value| value.trim().trim_matches('"').to_owned()))
    }

    /// Returns what can be taken from it; nothing of a zone that is not there.
    async fn has(&self) -> Result<Taken, BootError> {
        let zone = self.zonecfg("info autoboot").await?;
        if !zone.starts_with("autoboot") {
            return Ok(Taken::default());
        }
        // vmadmd boots kvm and bhyve by an attribute of their own.
        let hvm = self.attribute("vm-autoboot").await?;
        let hidden = self.attribute("do-not-inventory").await?;
        Ok(Taken {
            autoboot: hvm.as_deref() == Some("true") || zone.ends_with("true"),
            shown: hidden.as_deref() != Some("true"),
        })
    }

    async fn set_autoboot(&self, on: bool) -> Result<(), BootError> {
        if self.attribute("vm-autoboot").await?.is_some() {
            let set = format!("select attr name=vm-autoboot; set value={on}; end");
            self.zonecfg(&set).await?;
        }
        self.zonecfg(&format!("set autoboot={on}")).await.map(drop)
    }

    async fn hide(&self) -> Result<(), BootError> {
        let set = match self.attribute("do-not-inventory").await? {
            Some(_) => "select attr name=do-not-inventory; set value=true; end",
            None => "add attr; set name=do-not-inventory; set type=boolean; set value=true; end",
        };
        self.zonecfg(set).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
