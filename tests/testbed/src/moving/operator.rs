// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an operator orders, and how he waits for its end.

use std::time::Duration;

use anyhow::{Result, bail};
use migration_core::intent::End;
use sdc_clients::migrations::{Migration, Migrations, Options};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::judge::Judge;
use super::subject::VM;

/// Attempts of one command.
const ATTEMPTS: usize = 8;
/// After its start a service has asked all agents, twice, within this.
const ASKED: Duration = Duration::from_secs(150);
/// What is noted of an operator who has gone and looked whether a node is off.
pub const LOOKED: &str = ">> by his own eyes: --really";
/// So long after its last sign of life a node may be taken for dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(301);
/// So long after its order a sync runs.
const IN_A_SYNC: Duration = Duration::from_millis(40);

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Begin,
    Automatic,
    Sync,
    Switch,
    Abort,
    Rollback,
    Finalize,
    /// A sync that is paused while it runs.
    Pause,
    /// A switch by the word that the source is dead.
    SwitchDead,
    /// The same of a source that is only cut off: it runs on.
    SwitchCut,
    /// The same of a source whose vminfod hangs: it is refused, and changes nothing.
    SwitchUnwell,
    /// The same of a source whose agent alone is down, without having looked: it is refused, and changes nothing.
    SwitchHasty,
    /// A rollback by the word that what the target wrote may be lost.
    Discard,
    /// Somebody has deleted the VM on its node: its hidden copy is the last one, and becomes the VM.
    Rescue,
}

impl Op {
    /// Its name in the service's routes.
    fn action(self) -> &'static str {
        match self {
            Op::Begin | Op::Automatic => "begin",
            Op::Sync | Op::Pause => "sync",
            Op::Switch | Op::SwitchDead | Op::SwitchCut | Op::SwitchUnwell | Op::SwitchHasty => {
                "switch"
            }
            Op::Abort => "abort",
            Op::Rollback | Op::Discard => "rollback",
            Op::Rescue => "rescue",
            Op::Finalize => "finalize",
        }
    }

    /// Returns the command that is told as `sdc-migrate VERB VM`.
    pub fn named(command: &str) -> Option<Op> {
        let verb = command.strip_prefix("sdc-migrate ")?.split(' ').next()?;
        [Op::Abort, Op::Finalize, Op::Rollback, Op::Switch, Op::Sync]
            .into_iter()
            .find(|op| op.action() == verb)
    }

    /// It says that the source's node is dead.
    fn is_word(self) -> bool {
        matches!(self, Op::SwitchDead | Op::SwitchCut | Op::SwitchUnwell | Op::SwitchHasty)
    }

    /// Returns the command that brings the same about where this record was adopted: it may say less than was done.
    fn after(self, adopted: Option<&Migration>) -> Op {
        match (self, adopted.map(|it| it.phase.as_str())) {
            (Op::Automatic, Some("sync" | "switch")) => Op::Switch,
            (Op::Rollback | Op::Discard, Some("begin" | "sync")) => Op::Abort,
            (Op::Rollback | Op::Discard, Some("switch")) if adopted.is_some_and(is_not_shown) => {
                Op::Abort
            }
            _ => self,
        }
    }

    /// Returns true if the operation has reached its end.
    fn is_done(self, record: Option<&Migration>) -> bool {
        let Some(record) = record else {
            return matches!(
                self,
                Op::Abort | Op::Rollback | Op::Finalize | Op::Discard | Op::Rescue
            );
        };
        let (phase, state) = (record.phase.as_str(), record.state.as_str());
        match self {
            Op::Begin | Op::Pause => state == "paused",
            Op::Sync => (phase, state) == ("sync", "paused") && syncs(record) > 0,
            Op::Switch | Op::Automatic | Op::SwitchDead | Op::SwitchCut => state == "successful",
            Op::SwitchUnwell | Op::SwitchHasty => matches!(state, "paused" | "failed"),
            Op::Abort => state == "aborted",
            Op::Rollback | Op::Finalize | Op::Discard | Op::Rescue => false,
        }
    }
}

/// A story: commands, and on which node the VM ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Story {
    Finalize,
    Rollback,
    Abort,
    Automatic,
    Paused,
    SourceDead,
    CutOff,
    Unwell,
    Hasty,
    Discard,
    Deleted,
}

/// Those in which nothing is given up, and no command is for a moment.
pub const COMMON: [Story; 4] = [Story::Finalize, Story::Rollback, Story::Abort, Story::Automatic];

/// All of them.
pub const STORIES: [Story; 11] = [
    Story::Finalize,
    Story::Rollback,
    Story::Abort,
    Story::Automatic,
    Story::Paused,
    Story::SourceDead,
    Story::CutOff,
    Story::Unwell,
    Story::Hasty,
    Story::Discard,
    Story::Deleted,
];

impl Story {
    pub fn ops(self) -> &'static [Op] {
        match self {
            Story::Finalize => &[Op::Begin, Op::Sync, Op::Switch, Op::Finalize],
            Story::Rollback => &[Op::Begin, Op::Sync, Op::Switch, Op::Rollback],
            Story::Abort => &[Op::Begin, Op::Sync, Op::Abort],
            Story::Automatic => &[Op::Automatic, Op::Finalize],
            Story::Paused => &[Op::Begin, Op::Pause, Op::Sync, Op::Abort],
            Story::SourceDead => &[Op::Begin, Op::Sync, Op::SwitchDead, Op::Finalize],
            Story::CutOff => &[Op::Begin, Op::Sync, Op::SwitchCut, Op::Finalize],
            Story::Unwell => &[Op::Begin, Op::Sync, Op::SwitchUnwell, Op::Switch, Op::Finalize],
            Story::Hasty => &[Op::Begin, Op::Sync, Op::SwitchHasty, Op::Switch, Op::Finalize],
            Story::Discard => &[Op::Begin, Op::Sync, Op::Switch, Op::Discard],
            Story::Deleted => &[Op::Begin, Op::Sync, Op::Rescue],
        }
    }

    /// Where the VM is in the end.
    pub fn end(self) -> End {
        match self {
            Story::Finalize
            | Story::Automatic
            | Story::SourceDead
            | Story::CutOff
            | Story::Unwell
            | Story::Hasty
            | Story::Deleted => End::Target,
            Story::Rollback | Story::Abort | Story::Paused | Story::Discard => End::Source,
        }
    }
}

/// Returns how many syncs the record says there were.
fn syncs(record: &Migration) -> u64 {
    record.other.get("num_sync_phases").and_then(Value::as_u64).unwrap_or(0)
}

/// Returns true if the service knows that its record is older than what the agents have heard.
fn is_older(record: &Migration) -> bool {
    record.other.get("journal").is_some_and(|it| !it["older"].is_null())
}

/// Returns true for a switch that has not shown the target: it is aborted.
fn is_not_shown(record: &Migration) -> bool {
    let intent = record.other.get("journal");
    record.state == "failed" && intent.is_none_or(|it| it["target_shown"] != true)
}

/// How long he waits.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For the end of an operation.
    pub patience: Duration,
    /// Between two looks at a record.
    pub look: Duration,
    /// Before a command is given again.
    pub again: Duration,
}

/// What the faults are about.
pub trait Weather {
    /// No fault can be the reason where something fails now.
    fn is_calm(&self) -> bool;

    /// The service's store was lost, or restored as it once was.
    fn was_lost(&self) -> bool {
        false
    }

    /// A copy runs that somebody has booted by hand.
    fn is_by_hand(&self) -> bool {
        false
    }
}

impl<F: Fn() -> bool> Weather for F {
    fn is_calm(&self) -> bool {
        self()
    }
}

/// An operator who moves the VM from a node to another.
pub struct Operator<'a> {
    /// The service. It asks once.
    pub client: Migrations,
    /// Where the VM is at first.
    pub source: Uuid,
    /// Where it goes.
    pub target: Uuid,
    /// Who is told what was done.
    pub judge: &'a Judge,
    /// How long he waits.
    pub waits: Waits,
}

impl Operator<'_> {
    /// Returns the record that is not over, when nothing of it runs any more. A service that does not answer is
    /// asked again.
    pub async fn rested(&self) -> Result<Option<Migration>> {
        let until = Instant::now() + self.waits.patience;
        loop {
            match self.client.get(VM).await {
                Ok(record) => {
                    self.reads(&record);
                    let runs = ["running", "queued"].contains(&record.state.as_str());
                    let finalizes =
                        record.other.get("journal").is_some_and(|it| it["finalize"] == true);
                    if !runs && !finalizes || is_older(&record) {
                        return Ok(Some(record));
                    }
                    if Instant::now() > until {
                        bail!("P14: {} {} does not end", record.phase, record.state);
                    }
                }
                Err(error) if error.is_not_found_resource() => return Ok(None),
                Err(error) if Instant::now() > until => {
                    bail!("the service does not answer: {error}")
                }
                Err(_) => {}
            }
            sleep(self.waits.look).await;
        }
    }

    /// What a record tells him: what failed, and what it waits for.
    fn reads(&self, record: &Migration) {
        if let Some(error) = &record.error {
            self.judge.tells(error);
        }
        if let Some(waits) = record.other.get("waits_for").and_then(Value::as_str)
            && !waits.starts_with("you")
        {
            // Without its numbers.
            self.judge.tells(waits.split(" (attempt").next().unwrap_or(waits));
        }
    }

    /// Gives a command. Returns false if it was refused, and nobody knows where the service does not answer.
    pub async fn command(&self, op: Op) -> Result<bool> {
        let is_word = matches!(op, Op::SwitchDead | Op::SwitchCut);
        // Whoever insists of a node that answers is refused, too.
        let is_taken = self.ordered(op, op == Op::SwitchUnwell).await?;
        if is_taken || !is_word {
            return Ok(is_taken);
        }
        // He waits until what was heard of it is old; where nobody knows what was heard, he goes and looks.
        sleep(DEAD_AFTER).await;
        Ok(self.ordered(op, false).await? || self.ordered(op, true).await?)
    }

    async fn ordered(&self, op: Op, really: bool) -> Result<bool> {
        self.judge.types(op.action());
        if really {
            self.judge.note(LOOKED);
        }
        let options = Options {
            // CNAPI chooses where nobody names a node; there is no other one.
            override_server_uuid: (op != Op::Automatic).then(|| self.target.to_string()),
            migration_automatic: op == Op::Automatic,
            source_dead: op.is_word().then(|| self.source.to_string()),
            discard: op == Op::Discard,
            really,
            ..Options::default()
        };
        match self.client.act(VM, op.action(), &options).await {
            Ok(_) if op == Op::Pause => {
                sleep(IN_A_SYNC).await;
                let paused = self.client.act(VM, "pause", &Options::default()).await;
                self.judge.note(format!(">> pause: {:?}", paused.map(drop)));
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(error) => {
                let why = error.peer_text().unwrap_or_default();
                self.judge.note(format!(">> {op:?}: {error}: {why}"));
                Ok(error.status().is_none())
            }
        }
    }

    /// After the store was lost: adopts the migration that the service does not know, or knows as it once was, as its
    /// status asks for. Returns its record, if there is one.
    async fn adopted(&self, record: Option<Migration>) -> Result<Option<Migration>> {
        if record.as_ref().is_some_and(|it| !is_older(it) && it.state != "aborted") {
            return Ok(record);
        }
        sleep(ASKED).await;
        let nodes = [self.source, self.target].map(|cn| cn.to_string());
        for other in [None, Some(nodes[0].as_str()), Some(nodes[1].as_str())] {
            // Of a node that does not answer a new store does not know when it last did: he goes and looks.
            match self.client.adopt(VM, other, other.is_some()).await {
                Ok(record) => {
                    let (phase, state) = (&record.phase, &record.state);
                    self.judge.note(format!(">> adopted: {phase} {state}, {other:?}"));
                    break;
                }
                Err(error) => {
                    let why = error.peer_text().unwrap_or_default();
                    self.judge.note(format!(">> adopt {other:?}: {error}: {why}"));
                }
            }
        }
        self.rested().await
    }

    /// Of two copies that both run, says that the one on this node is not to be used any more.
    pub async fn decides(&self, not: Uuid) -> Result<()> {
        match self.client.adopt(VM, Some(&not.to_string()), true).await {
            Ok(adopted) => {
                self.judge.note(format!(">> decided: {} {}", adopted.phase, adopted.state));
                Ok(())
            }
            Err(error) => {
                let why = error.peer_text().unwrap_or_default().to_owned();
                bail!("P14: of two copies that run none can be chosen: {error}: {why}")
            }
        }
    }

    /// Brings an operation to its end. What a fault has made fail is done again by one command. Returns false where it
    /// stands still with a copy that runs by somebody's hand.
    pub async fn op(&self, op: Op, weather: impl Weather) -> Result<bool> {
        let mut calm = 0;
        let mut adopted: Option<Migration> = None;
        for _ in 0..ATTEMPTS {
            let began_calm = weather.is_calm();
            let verb = op.after(adopted.as_ref());
            self.judge.note(format!(">> {verb:?}"));
            self.command(verb).await?;
            sleep(Duration::from_millis(10)).await;
            let mut record = self.rested().await?;
            if weather.was_lost() || record.as_ref().is_some_and(is_older) {
                if matches!(op, Op::SwitchUnwell | Op::SwitchHasty) {
                    return Ok(true); // nothing is known of that node before it is well
                }
                record = self.adopted(record).await?;
                adopted.clone_from(&record);
            }
            let told = record.as_ref().map(|it| (&it.phase, &it.state, &it.error));
            self.judge.note(format!(">> {op:?}: {told:?}"));
            if op.is_done(record.as_ref()) || verb.is_done(record.as_ref()) && verb == Op::Abort {
                return Ok(true);
            }
            if weather.is_by_hand() {
                return Ok(false);
            }
            calm += usize::from(began_calm);
            if calm >= 2 {
                bail!("P14: {op:?} does not succeed without faults: {told:?}");
            }
            let is_begin = matches!(op, Op::Begin | Op::Automatic);
            if is_begin
                && record.as_ref().is_some_and(|it| it.phase == "begin" && it.state == "failed")
            {
                // What a failed begin left is removed first.
                self.command(Op::Abort).await?;
                self.rested().await?;
            }
            if verb == Op::Switch
                && record.as_ref().is_some_and(|it| it.phase == "sync" && syncs(it) == 0)
            {
                // The store has lost that there was a sync, and the refusal names it.
                self.command(Op::Sync).await?;
                self.rested().await?;
            }
            sleep(self.waits.again).await;
        }
        bail!("P14: {op:?} never succeeds");
    }
}
