// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The last signs of life of a node, before somebody's word that it is dead is taken.

use migration_core::dead::{Heartbeat, Signs};
use migration_core::record::Record;
use serde_json::{Value, json};
use tokio::join;
use uuid::Uuid;

use super::asked::Words;
use super::refused::Refused;
use super::state::Service;

impl Service {
    /// Asks for the signs of a node: its agent and CNAPI now, the store for what was heard before.
    pub async fn signs(&self, cn: Uuid) -> Result<Signs, Refused> {
        let name = cn.to_string();
        let (answers, server, said) = join!(
            self.agents.is_alive(cn),
            self.peers.cnapi.get_server(&name),
            self.heard.last(cn)
        );
        let heartbeat = match server {
            Ok(server) => Heartbeat::read(server.last_heartbeat.as_deref()),
            Err(error) if error.is_not_found_resource() => Heartbeat::Stranger,
            Err(error) => {
                tracing::warn!(%cn, reason = %error, "cannot read a node's heartbeat from CNAPI");
                Heartbeat::Silent
            }
        };
        Ok(Signs { cn, answers, heartbeat, said: said? })
    }

    /// Takes an operator's word that a node is dead, unless it is not known to be.
    /// Refuses with 412 if it answers, or may be alive and the operator has not seen that it is off.
    pub async fn take_for_dead(&self, cn: Uuid, is_really: bool) -> Result<(), Refused> {
        let (signs, settings) = (self.signs(cn).await?, self.settings.read().await?);
        let (dead_after, now) = (settings.dead_after, self.clock.now());
        let dead = signs.dead(dead_after, is_really, now);
        dead.map_err(|why| Refused::precondition(&why.to_string()))?;
        tracing::warn!(%cn, is_really, signs = signs.told(now), "an operator says that a node is dead");
        Ok(())
    }

    /// Checks the words of a command: each names the node of its end, which may be taken for dead.
    /// Refuses with 409 for another node, 412 as [`Service::take_for_dead`].
    pub async fn take(&self, record: &Record, words: Words) -> Result<(), Refused> {
        for (end, named, node) in [
            ("source", words.source_dead, Some(record.source_server_uuid)),
            ("target", words.target_dead, record.target_server_uuid),
        ] {
            let Some(named) = named else { continue };
            if Some(named) != node {
                return Err(Refused::argument(&format!("{named} is not the {end}'s node")));
            }
            self.take_for_dead(named, words.really).await?;
        }
        Ok(())
    }

    /// Returns the signs of both nodes of a migration for people, and why each is not taken for dead.
    pub async fn signs_of(&self, record: &Record) -> Result<Value, Refused> {
        let (dead_after, now) = (self.settings.read().await?.dead_after, self.clock.now());
        let shown = async |cn: Uuid| {
            let signs = self.signs(cn).await?;
            let alive = signs.dead(dead_after, false, now).err().map(|why| why.to_string());
            let (answers, says) = (signs.answers, signs.told(now));
            Ok::<_, Refused>(json!({"cn": cn, "answers": answers, "says": says, "alive": alive}))
        };
        let target = match record.target_server_uuid {
            Some(cn) => shown(cn).await?,
            None => Value::Null,
        };
        Ok(json!({"source": shown(record.source_server_uuid).await?, "target": target}))
    }
}
