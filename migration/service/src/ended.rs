// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A record of a migration that had ended, in a store that was restored as it was before: its agents know the end.

use migration_core::intent::End;
use migration_core::protocol::{About, Observe, Observed};
use migration_core::record::{Phase, Record, State};
use store::Error;
use uuid::Uuid;

use super::action_params::ActionParams;
use super::history;
use super::records::{Rest, Stored};
use super::state::Service;

/// What a person has to know.
const HAD_ENDED: &str =
    "the migration had ended before the store was restored: its record has gone";

/// Returns true if an agent knows that the migration is over, and what is on the nodes agrees: at most one copy, which
/// is shown, where VMAPI has the VM. A node that lies ends no migration whose other copy is there.
fn agrees(seen: &[(End, Option<Observed>); 2], vmapi: Option<End>) -> bool {
    let answers = || seen.iter().filter_map(|(end, it)| Some((*end, it.as_ref()?)));
    let copies: Vec<_> =
        answers().filter_map(|(end, it)| Some((end, it.node.copy.as_ref()?))).collect();
    let is_in_place = match copies[..] {
        [] => answers().count() == seen.len(),
        [(end, copy)] => !copy.hidden && vmapi == Some(end),
        _ => false,
    };
    is_in_place && answers().any(|(_, it)| it.over)
}

impl Service {
    /// Returns true if the agents know that the migration of a record is over. `seen` is the highest revision
    /// that each has received, where it is open.
    pub async fn has_ended(&self, record: &Record, server: Option<Uuid>, seen: [u64; 2]) -> bool {
        let (from, to) = (Some(record.source_server_uuid), record.target_server_uuid);
        let nodes = [(End::Source, from), (End::Target, to)];
        let (migration, vm) = (record.id, record.vm_uuid);
        let ask = async |nth: usize| {
            let (end, cn) = nodes[nth];
            let revision = record.intent.revision.max(seen[nth]);
            let asked =
                Observe { about: About { migration, revision, nonce: None, vm, end }, brief: true };
            let observed = self.agents.observe(cn?, &asked).await;
            observed.ok()
        };
        let (source, target) = tokio::join!(ask(0), ask(1));
        let at = |(_, cn): &(End, Option<Uuid>)| cn.is_some() && *cn == server;
        let vmapi = nodes.iter().find(|it| at(it)).map(|(end, _)| *end);
        agrees(&[(End::Source, source), (End::Target, target)], vmapi)
    }

    /// Removes the record of a migration that had ended. Returns it as it may have ended.
    pub async fn forget(
        &self,
        mut kept: Stored,
        server: Option<Uuid>,
        asked: &ActionParams,
    ) -> Result<Record, Error> {
        let now = self.clock.now();
        kept.record.intent.asker = Some(asked.asker(now));
        kept.ended = Some(history::of(&mut kept.record, ("remove", history::SUCCESSFUL), now));
        self.records.remove(&kept, None, Rest::Stays).await?;
        let mut record = kept.record;
        let (vm, migration) = (record.vm_uuid, record.id);
        tracing::warn!(%vm, %migration, "removed the record of a migration that had ended");
        let has_moved = server.is_some() && record.target_server_uuid == server;
        (record.phase, record.state) = match has_moved {
            true => (Phase::Switch, State::Successful),
            false => (Phase::Abort, State::Aborted),
        };
        record.error = Some(HAD_ENDED.to_owned());
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use migration_core::machine::{Copy, Node};

    use super::*;

    #[test] // M125
    fn a_migration_has_ended_where_an_agent_says_so_and_the_nodes_agree() {
        let answer = |text: &str| {
            let copy = Copy { hidden: text.contains("hidden"), ..Copy::default() };
            let copy = text.contains("copy").then_some(copy);
            let node = Node { copy, ..Node::default() };
            let over = text.contains("over");
            (text != "silent").then_some(Observed { node, object: None, doing: None, over })
        };
        let (source, target) = (Some(End::Source), Some(End::Target));
        for (from, to, vmapi, want) in [
            ("over", "copy, over", target, true),
            ("over", "copy", target, true),
            ("copy, over", "over", source, true),
            ("silent", "copy, over", target, true),
            ("over", "over", None, true), // the VM was deleted since
            ("none", "copy", target, false),
            ("over", "silent", target, false),
            ("over", "copy, over", source, false),
            ("copy, hidden", "copy, over", target, false),
            ("over", "copy, hidden", target, false),
            ("copy, over", "copy, over", target, false),
        ] {
            let seen = [(End::Source, answer(from)), (End::Target, answer(to))];
            assert_eq!(agrees(&seen, vmapi), want, "{from}; {to}; {vmapi:?}");
        }
    }
}
