// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The migrations that agents claim to have open and the store does not know, and which claims count.
//!
//! A node can claim what it likes. Its claim of a VM counts where another source places the VM there: VMAPI, a
//! record, the row of an end that was replaced, or the person who asks. The claim of any other node is shown, and
//! blocks nothing.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use migration_core::intent::End;
use migration_core::protocol::Open;
use migration_core::record::{Record, node_of};
use store::Error;
use uuid::Uuid;

use super::begin::Vm;
use super::records::Stored;
use super::refused::Refused;
use super::state::Service;
use super::strangers::Stranger;

/// How often records are read again that others change.
const TRIES: usize = 8;

/// What is open of a VM, by node, and the nodes whose claims count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    open: Vec<(Uuid, Open)>,
    counts: BTreeSet<Uuid>,
}

impl Claims {
    /// Returns the one migration that is open: that of the record where there is one, or else that of the nodes whose
    /// claim counts, or else those of all.
    /// Fails if there is none, or more than one.
    pub fn migration(&self, record: Option<&Record>) -> Result<Uuid, Refused> {
        if let Some(record) = record {
            return Ok(record.id);
        }
        let ids = |of: &dyn Fn(&Uuid) -> bool| -> BTreeSet<Uuid> {
            self.open.iter().filter(|(cn, _)| of(cn)).map(|(_, it)| it.migration).collect()
        };
        let counted = ids(&|cn| self.counts.contains(cn));
        let ids = if counted.is_empty() { ids(&|_| true) } else { counted };
        let mut ids = ids.into_iter();
        match (ids.next(), ids.next()) {
            (Some(id), None) => Ok(id),
            (None, _) => {
                let why = "no agent has a migration of the instance that the store does not know";
                Err(Refused::not_found(why))
            }
            (Some(one), Some(two)) => {
                let what = "The agents have several migrations of the instance";
                Err(Refused::precondition(&format!("{what}: {one}, {two}")))
            }
        }
    }

    /// Returns the node that has an end of a migration open, if any has.
    /// Fails if more than one node claims it, unless one of them alone counts.
    pub fn of(&self, migration: Uuid, end: End) -> Result<Option<(Uuid, &Open)>, Refused> {
        let all = self.open.iter().filter(|(_, it)| (it.migration, it.end) == (migration, end));
        let all: Vec<_> = all.map(|(cn, it)| (*cn, it)).collect();
        let counted: Vec<_> =
            all.iter().copied().filter(|(cn, _)| self.counts.contains(cn)).collect();
        match (&all[..], &counted[..]) {
            ([], _) => Ok(None),
            ([one], _) | (_, [one]) => Ok(Some(*one)),
            _ => {
                let nodes: Vec<String> = all.iter().map(|(cn, _)| cn.to_string()).collect();
                let what = format!("Several nodes report that they have the {end}'s copy");
                Err(Refused::precondition(&format!(
                    "{what}: {}; name it: sdc-migrate adopt --other CN VM",
                    nodes.join(", ")
                )))
            }
        }
    }
}

impl Service {
    /// Returns the nodes whose claim of a VM counts.
    async fn counted(&self, vm: Uuid, server: Option<Uuid>) -> Result<BTreeSet<Uuid>, Refused> {
        let ends = self.records.ends.of_vm(vm).await?;
        Ok(ends.iter().map(|it| it.row.cn_uuid).chain(server).collect())
    }

    /// Returns what the agents that may have a migration of the VM have open of it. `other` is named by the person.
    pub async fn claims(
        &self,
        vm: &Vm,
        record: Option<&Record>,
        other: Option<Uuid>,
    ) -> Result<Claims, Refused> {
        let mut counts = self.counted(vm.uuid, vm.server).await?;
        counts.extend(record.map(|record| record.source_server_uuid));
        counts.extend(record.and_then(|record| record.target_server_uuid));
        counts.extend(other);
        let strangers = self.records.strangers.of_vm(vm.uuid).await?;
        let mut nodes = counts.clone();
        nodes.extend(strangers.iter().map(|it| it.cn_uuid));
        let asked = nodes.into_iter().map(|cn| async move {
            if self.is_revoked(cn) {
                return Vec::new();
            }
            let open = self.agents.open(cn).await.unwrap_or_default();
            open.into_iter().filter(|it| it.vm == vm.uuid).map(|it| (cn, it)).collect::<Vec<_>>()
        });
        let open = join_all(asked).await.into_iter().flatten().collect();
        Ok(Claims { open, counts })
    }

    /// Returns true if this service has declared dead the node of an end, whose copy was replaced.
    pub async fn has_declared(&self, migration: Uuid, end: End, cn: Uuid) -> Result<bool, Error> {
        let record = self.records.get(migration).await?.map(|kept| kept.record);
        let is_dead = record.is_some_and(|record| {
            node_of(&record, end) == Some(cn) && record.intent.is_replaced(end)
        });
        Ok(is_dead || self.records.ends.has(migration, end, cn).await?)
    }

    /// Keeps what an agent says of another node: that its own copy is used instead of that one's. Without a declaration
    /// of this service nothing follows from that, but a person has to know: both copies may run.
    pub async fn claimed(&self, cn: Uuid, open: &Open) -> Result<(), Error> {
        let Open { migration, vm, end, instead: Some(other), .. } = *open else { return Ok(()) };
        if self.has_declared(migration, end.other(), other).await? {
            return Ok(());
        }
        tracing::error!(
            %cn,
            %vm,
            %other,
            "an agent says that its copy is used instead of the other node's, which was never declared dead here: both \
             may run"
        );
        let (vm_uuid, cn_uuid, heard) = (vm, cn, self.clock.now());
        let instead = Some(other);
        let stranger = Stranger { migration, end, vm_uuid, cn_uuid, heard, instead };
        self.records.strangers.keep(&stranger).await
    }

    /// Drops what rests on the word of a node: its claims, and that the store is older than what it has received.
    pub async fn disbelieve(&self, cn: Uuid) -> Result<(), Error> {
        self.records.strangers.forget_of(cn).await?;
        let rests = |kept: &Stored| kept.record.intent.older_by == Some(cn);
        // One that was changed meanwhile is read again.
        for _ in 0..TRIES {
            let mut is_done = true;
            for mut kept in self.records.open_ones().await?.into_iter().filter(rests) {
                (kept.record.intent.older, kept.record.intent.older_by) = (None, None);
                match self.records.write(&mut kept, None).await {
                    Err(Error::EtagConflict { .. }) => is_done = false,
                    done => done?,
                }
            }
            if is_done {
                break;
            }
        }
        Ok(())
    }

    /// Refuses a command on a VM of which an agent whose claim counts has a migration that the store does not know.
    pub async fn is_no_stranger(&self, vm: &Vm) -> Result<(), Refused> {
        let strangers = self.records.strangers.of_vm(vm.uuid).await?;
        if strangers.is_empty() {
            return Ok(());
        }
        let counts = self.counted(vm.uuid, vm.server).await?;
        match strangers.iter().find(|it| counts.contains(&it.cn_uuid)) {
            None => Ok(()),
            Some(stranger) => {
                let what = "has a migration of the instance that the store does not know";
                let why = format!("{} {what}: sdc-migrate adopt {}", stranger.cn_uuid, vm.uuid);
                Err(Refused::precondition(&why))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    const LIAR: Uuid = Uuid::from_u128(9);

    fn claims(open: &[(u128, u128, End)], counts: &[u128]) -> Claims {
        let open = open.iter().map(|(cn, migration, end)| {
            let migration = Uuid::from_u128(*migration);
            let open =
                json!({"migration": migration, "vm": Uuid::nil(), "end": end, "revision": 1});
            (Uuid::from_u128(*cn), serde_json::from_value(open).unwrap())
        });
        let counts = counts.iter().map(|cn| Uuid::from_u128(*cn)).collect();
        Claims { open: open.collect(), counts }
    }

    #[test] // M123 M125
    fn a_node_that_no_peer_names_for_the_vm_hides_no_migration_of_others() {
        let (one, two) = (End::Source, End::Target);
        let liar = LIAR.as_u128();
        let id = |claims: &Claims| claims.migration(None).map(|id| id.as_u128()).ok();
        for (open, counts, want) in [
            (vec![(1, 5, one), (2, 5, two)], vec![1], Some(5)),
            (vec![(1, 5, one), (liar, 6, two)], vec![1], Some(5)),
            (vec![(1, 5, one), (liar, 6, two)], vec![1, liar], None),
            // Where there is no other claim, this one counts.
            (vec![(liar, 6, two)], vec![1], Some(6)),
            (vec![(2, 5, two), (liar, 6, two)], vec![1], None),
            (vec![], vec![1], None),
        ] {
            assert_eq!(id(&claims(&open, &counts)), want, "{open:?} {counts:?}");
        }
    }

    #[test] // M125
    fn of_two_nodes_that_claim_one_end_the_one_that_counts_has_it() {
        let (one, two) = (End::Source, End::Target);
        let all = vec![(1, 5, one), (2, 5, two), (9, 5, two), (9, 5, one)];
        for (counts, source, target) in [
            (vec![1], Some(1), None),
            (vec![1, 2], Some(1), Some(2)),
            (vec![1, 2, 9], None, None),
            (vec![], None, None),
        ] {
            let claims = claims(&all, &counts);
            for (end, want) in [(one, source), (two, target)] {
                let found = claims.of(Uuid::from_u128(5), end);
                let found = found.map(|it| it.map(|(cn, _)| cn.as_u128())).ok();
                assert_eq!(found, want.map(Some), "{counts:?} {end}");
            }
        }
        assert!(claims(&all, &[1]).of(Uuid::from_u128(6), one).unwrap().is_none());
    }
}
