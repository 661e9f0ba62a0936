// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last signs of life of a node, checked before an operator's confirmation that it is dead is accepted.

use std::time::Duration;

use daemon::needs::Need;
use migration_core::dead::{Heartbeat, Signs};
use migration_core::need::{Why, silent};
use migration_core::record::{Record, node_of};
use serde_json::{Value, json};
use tokio::join;
use tokio::time::timeout;
use uuid::Uuid;

use super::action_params::Words;
use super::refused::Refused;
use super::state::Service;

/// The longest that people wait for what CNAPI last heard of a node that is silent.
const PATIENCE: Duration = Duration::from_secs(3);

impl Service {
    /// Asks for the signs of a node: its agent and CNAPI now, the store for its last contact.
    /// `beside` is the other node of the migration.
    pub async fn signs(&self, cn: Uuid, beside: Option<Uuid>) -> Result<Signs, Refused> {
        let (answers, signs) = join!(self.hears(cn), self.last_signs(cn, beside));
        Ok(Signs { answers, ..signs? })
    }

    /// The same without asking the agent, which is known to be silent.
    async fn last_signs(&self, cn: Uuid, beside: Option<Uuid>) -> Result<Signs, Refused> {
        let ((others, heartbeat), last_contact) = join!(
            async {
                // In this order: a service that stops between the two finds this node's newer, and not older, than
                // they were together.
                let others = match beside {
                    Some(beside) => Some(self.heartbeat(beside).await),
                    None => None,
                };
                (others, self.heartbeat(cn).await)
            },
            self.contacts.last(cn, self.clock.now())
        );
        let others = match others {
            Some(Heartbeat::At(at)) => Some(at),
            _ => None,
        };
        Ok(Signs { cn, answers: false, heartbeat, others, last_contact: last_contact? })
    }

    async fn heartbeat(&self, cn: Uuid) -> Heartbeat {
        match self.peers.cnapi.get_server(&cn.to_string()).await {
            Ok(server) => Heartbeat::read(server.last_heartbeat.as_deref()),
            Err(error) if error.is_not_found_resource() => Heartbeat::Stranger,
            Err(error) => {
                tracing::warn!(%cn, reason = %error, "cannot read a node's heartbeat from CNAPI; only --really declares the node dead");
                Heartbeat::Silent
            }
        }
    }

    /// Returns the state of a migration that waits for a node whose agent does not answer: what was last heard of it,
    /// and the whole command that goes on without it. None if it waits for none.
    pub async fn silence(&self, record: &Record) -> Result<Option<Value>, Refused> {
        let Some((why, end)) = silent(record) else { return Ok(None) };
        let beside = node_of(record, end.other());
        let Some(cn) = node_of(record, end) else { return Ok(None) };
        let (dead_after, now) = (self.settings.read().await?.dead_after, self.clock.now());
        // CNAPI may be as silent as the node.
        let signs = match timeout(PATIENCE, self.last_signs(cn, beside)).await {
            Ok(signs) => signs?,
            Err(_) => Signs {
                cn,
                answers: false,
                heartbeat: Heartbeat::Silent,
                others: None,
                last_contact: None,
            },
        };
        let really = signs.dead(dead_after, false, now).is_err();
        let told = told(record, why, cn).map(|(need, command)| {
            let really = if really && why != Why::NodesSilent { " --really" } else { "" };
            let (says, signs) = (need.says, signs.sentence(now));
            let since = record.intent.silent(end);
            json!({"state": need.name, "says": says, "command": format!("{command}{really}"), "signs": signs,
                "cn": cn, "since": since})
        });
        Ok(told)
    }

    /// Accepts an operator's confirmation that a node is dead, unless it may be alive.
    /// Refuses with 412 if it answers, or may be alive and the operator has not seen that it is off.
    pub async fn take_for_dead(
        &self,
        cn: Uuid,
        beside: Option<Uuid>,
        is_really: bool,
    ) -> Result<(), Refused> {
        let (signs, settings) = (self.signs(cn, beside).await?, self.settings.read().await?);
        let (dead_after, now) = (settings.dead_after, self.clock.now());
        let dead = signs.dead(dead_after, is_really, now);
        dead.map_err(|why| Refused::precondition(&why.to_string()))?;
        tracing::warn!(%cn, is_really, signs = signs.sentence(now), "an operator declared a node dead");
        Ok(())
    }

    /// Checks the confirmations of a command: each names the node of its end, which may be declared dead.
    /// Refuses with 409 for another node, 412 as [`Service::take_for_dead`].
    pub async fn take(&self, record: &Record, words: Words) -> Result<(), Refused> {
        let (source, target) = (Some(record.source_server_uuid), record.target_server_uuid);
        for (end, named, node, beside) in [
            ("source", words.source_dead, source, target),
            ("target", words.target_dead, target, source),
        ] {
            let Some(named) = named else { continue };
            if Some(named) != node {
                return Err(Refused::argument(&format!("{named} is not the {end}'s node")));
            }
            self.take_for_dead(named, beside, words.really).await?;
        }
        Ok(())
    }

    /// Returns the signs of both nodes of a migration for people, and why each is not taken for dead.
    pub async fn signs_of(&self, record: &Record) -> Result<Value, Refused> {
        let (dead_after, now) = (self.settings.read().await?.dead_after, self.clock.now());
        let (source, target) = (record.source_server_uuid, record.target_server_uuid);
        let shown = async |cn: Uuid, beside: Option<Uuid>| {
            let signs = self.signs(cn, beside).await?;
            let alive = signs.dead(dead_after, false, now).err().map(|why| why.to_string());
            let (answers, says) = (signs.answers, signs.sentence(now));
            Ok::<_, Refused>(json!({"cn": cn, "answers": answers, "says": says, "alive": alive}))
        };
        let of_target = match target {
            Some(cn) => shown(cn, Some(source)).await?,
            None => Value::Null,
        };
        Ok(json!({"source": shown(source, target).await?, "target": of_target}))
    }
}

/// Returns the row of a state of silence, and its command with the flags that are needed.
pub fn told(record: &Record, why: Why, cn: Uuid) -> Option<(&'static Need, String)> {
    let need = daemon::needs::find(why.name()?)?;
    let (vm, cn) = (record.vm_uuid.to_string(), cn.to_string());
    let command = need.command_for(&[("VM", &vm), ("CN", &cn)]);
    let loses = record.intent.has_written();
    Some((need, if loses { command } else { command.replace(" --discard", "") }))
}
