// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The work that this process does now, and one at a time for each owner and name: tickets of CNAPI's waitlist, as the
//! deployed service takes them. Work is written down before its ticket is asked for, so that a ticket is given back
//! also where the process dies in between.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdc_clients::Error;
use store::Expect;
use uuid::Uuid;

use super::state::Shared;
use crate::records::{Doing, Work, of_storage};
use volumes_core::refused::Refused;

/// A ticket whose turn has come, and the work for which it is held.
#[derive(Debug)]
pub(super) struct Held {
    key: String,
    ticket: String,
}

/// Why there is no ticket.
#[derive(Debug)]
pub(super) enum NoTicket {
    /// CNAPI's error.
    Error(Error),
    /// It is not active but this.
    Status(String),
    /// The work could not be written down.
    Storage(Refused),
}

/// The work of this process.
#[derive(Debug)]
pub(super) struct Works {
    shared: Arc<Shared>,
    /// The keys of the work that this process does now.
    doing: Mutex<BTreeSet<String>>,
}

/// Work that this process does now, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    works: &'a Works,
    key: String,
}

impl Busy<'_> {
    /// The key of the work.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.works.doing().remove(&self.key);
    }
}

impl Works {
    pub(super) fn new(shared: &Arc<Shared>) -> Works {
        Works { shared: Arc::clone(shared), doing: Mutex::default() }
    }

    fn doing(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks new work as done by this process now.
    pub(super) fn busy_with_new(&self) -> Busy<'_> {
        let key = Uuid::new_v4().to_string();
        self.doing().insert(key.clone());
        Busy { works: self, key }
    }

    /// Marks work as done by this process now; none if it is already.
    pub(super) fn busy_with(&self, key: &str) -> Option<Busy<'_>> {
        let is_new = self.doing().insert(key.to_owned());
        is_new.then(|| Busy { works: self, key: key.to_owned() })
    }

    /// Takes a ticket for this name and waits for its turn.
    pub(super) async fn hold(
        &self,
        doing: Doing,
        volume: &str,
        owner: &str,
        name: &str,
    ) -> Result<Held, NoTicket> {
        let life = i64::try_from(self.shared.settings.ticket_life.as_secs()).unwrap_or_default();
        let expires_at = daemon::wall::now().as_second() + life;
        let work = Work {
            instance: self.shared.settings.instance.clone(),
            ticket_id: format!("{owner}-{name}"),
            expires_at,
            doing,
            volume: volume.to_owned(),
        };
        let key = Uuid::new_v4().to_string();
        self.doing().insert(key.clone());
        let outcome = self.turn(&key, &work).await;
        if outcome.is_err() {
            self.doing().remove(&key);
        }
        outcome
    }

    async fn turn(&self, key: &str, work: &Work) -> Result<Held, NoTicket> {
        let put = self.shared.records.work.put(key, Expect::Absent, work).await;
        put.map_err(|error| NoTicket::Storage(of_storage(error)))?;
        let ticket = match self.shared.peers.ticket(&work.ticket_id, work.expires_at).await {
            Ok(ticket) => ticket,
            Err(error) => {
                // Where CNAPI may have made it, a later pass gives it back.
                if !error.may_have_applied() || error.status().is_some() {
                    self.forget(key).await;
                }
                return Err(NoTicket::Error(error));
            }
        };
        // The status counts, whatever became of the waiting.
        if let Err(error) = self.shared.peers.ticket_turn(&ticket).await {
            tracing::warn!(%error, ticket, "cannot wait for a CNAPI ticket; reading its status");
        }
        let held = Held { key: key.to_owned(), ticket };
        let fault = match self.shared.peers.get_ticket(&held.ticket).await {
            Ok(ticket) if ticket.is_active() => return Ok(held),
            Ok(ticket) => NoTicket::Status(ticket.status),
            Err(error) => NoTicket::Error(error),
        };
        self.let_go(held, true).await;
        Err(fault)
    }

    /// Gives a ticket back, and forgets the work if it `is_done`. What does not succeed is left to a later
    /// pass.
    pub(super) async fn let_go(&self, held: Held, is_done: bool) {
        let released = self.shared.peers.release_ticket(&held.ticket).await;
        if let Err(error) = &released {
            tracing::warn!(%error, ticket = held.ticket, "cannot release a CNAPI ticket; it is tried again");
        }
        if released.is_ok() && is_done {
            self.forget(&held.key).await;
        }
        self.doing().remove(&held.key);
    }

    pub(super) async fn forget(&self, key: &str) {
        if let Err(error) = self.shared.records.work.delete(key, Expect::Anything).await {
            tracing::warn!(%error, key, "cannot delete the record of work that is done; it is tried again");
        }
    }
}
