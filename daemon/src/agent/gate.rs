// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether an agent may write now. A [`Permit`] can be made only here, after the checks: the identity is known
//! and is the configured one, no second machine has it, the view is in sync, the mode is `on`.
//!
//! A permit is good for one request, at the moment of the checks: its lifetime ends with the closure that it is
//! handed to, and the request that the closure returns is sent before anything else runs in this task. So a permit
//! cannot be stored, cloned, or held over an await: a restart, a hold or a lost stream between plan and request is
//! always before the checks.

use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::basics::Mode;
use super::census::{Census, SecondMachine, Unanswered};
use super::identity::Identity;

/// Why an agent may not write now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Sysinfo was not read yet.
    #[error("waiting for vminfod's /sysinfo, which names this node")]
    IdentityUnknown,
    /// The configuration names another node.
    #[error(
        "the configuration names node {configured} but sysinfo says {sysinfo}: refusing to write"
    )]
    WrongIdentity {
        /// The node that the agent is for.
        configured: String,
        /// The node that it runs on.
        sysinfo: String,
    },
    /// Another machine has its uuid.
    #[error("{0}")]
    SecondMachine(SecondMachine),
    /// The stream's snapshot is not read, or the stream is lost.
    #[error("waiting for vminfod")]
    NotSynced,
    #[error("report mode")]
    ReportMode,
}

/// Why a VM that an agent never saw is not taken for one of this machine.
#[derive(Debug, thiserror::Error)]
pub enum Foreign {
    /// Nothing may be written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It is not known whether it is.
    #[error(transparent)]
    Unknown(#[from] Unanswered),
}

/// The right to send one request about this, now.
#[derive(Debug)]
pub struct Permit<'moment, S> {
    subject: S,
    /// Invariant, so that no other lifetime can stand in for the closure's.
    moment: PhantomData<fn(&'moment ()) -> &'moment ()>,
}

impl<S> Permit<'_, S> {
    /// Uses the permit up. Returns what may be written.
    pub fn spend(self) -> S {
        self.subject
    }
}

/// The checks, and what they read. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Gate {
    cn_uuid: String,
    mode: Mode,
    standing: Mutex<Standing>,
    /// Wakes tasks that wait until they may write.
    news: Notify,
}

/// Where the agent stands.
#[derive(Debug, Default)]
struct Standing {
    identity: Option<Identity>,
    /// True while the stream is connected and its snapshot is read.
    synced: bool,
    /// A second machine that was seen.
    second: Option<SecondMachine>,
    /// Whether it stays until an operator decides.
    is_certain: bool,
    /// The second machine of which an operator says that this one is the node.
    refuted: Option<SecondMachine>,
}

impl Gate {
    /// Nothing is known yet of the node that the agent is for.
    pub fn new(cn_uuid: &str, mode: Mode) -> Self {
        let cn_uuid = cn_uuid.to_owned();
        Self { cn_uuid, mode, standing: Mutex::default(), news: Notify::new() }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Standing) -> T) -> T {
        let changed = change(&mut self.standing());
        self.news.notify_waiters();
        changed
    }

    /// Returns the node that the agent is for.
    pub fn cn_uuid(&self) -> &str {
        &self.cn_uuid
    }

    /// Returns who the node is, once sysinfo was read.
    pub fn identity(&self) -> Option<Identity> {
        self.standing().identity.clone()
    }

    /// Stores who the node is.
    pub fn identify(&self, identity: Identity) {
        self.change(|standing| standing.identity = Some(identity));
    }

    /// Returns true if this is the node that the agent is for.
    pub fn is_ours(&self, identity: &Identity) -> bool {
        identity.uuid == self.cn_uuid
    }

    /// Stores what a search for a second machine has found. What was seen for certain, or by two searches running, stays
    /// until an operator decides. Returns true if a further search is due soon.
    pub fn note_second(&self, found: Option<SecondMachine>) -> bool {
        self.change(|standing| {
            let Standing { second, is_certain, refuted, .. } = standing;
            if *is_certain {
                return false;
            }
            let is_refuted =
                |it: &SecondMachine| refuted.as_ref().is_some_and(|old| old.is(it) || old.has(it));
            let found = found.filter(|it| !is_refuted(it));
            let is_again = |(old, new): (&SecondMachine, &SecondMachine)| {
                old.is(new) && !old.is_suspected() && !new.is_suspected()
            };
            let again = second.as_ref().zip(found.as_ref()).is_some_and(is_again);
            *is_certain = again || found.as_ref().is_some_and(SecondMachine::is_certain);
            *second = found;
            second.is_some() && !*is_certain
        })
    }

    /// A service has a VM, or a NIC of one, on the node, and this agent never saw that VM here: checks that it is not
    /// another machine's with this uuid.
    /// Fails if it is, or if that is not known.
    pub async fn is_of_this_machine(
        &self,
        vm: &str,
        census: Option<&Census>,
    ) -> Result<(), Foreign> {
        let Some((census, identity)) = census.zip(self.identity()) else { return Ok(()) };
        match census.second_machine_with(vm, &identity).await? {
            None => Ok(()),
            Some(second) => {
                self.note_second(Some(second));
                Ok(self.writable()?)
            }
        }
    }

    /// An operator says that this machine is the node. Returns the other one, which is from now on refuted.
    pub fn refute(&self) -> Option<SecondMachine> {
        self.change(|standing| {
            let other = standing.second.take()?;
            standing.is_certain = false;
            standing.refuted = Some(other.clone());
            Some(other)
        })
    }

    /// Takes over which second machine an operator has to decide about, and which one is refuted.
    pub(super) fn restore(&self, second: Option<SecondMachine>, refuted: Option<SecondMachine>) {
        self.change(|standing| {
            *standing = Standing {
                is_certain: second.is_some(),
                second,
                refuted,
                ..std::mem::take(standing)
            };
        });
    }

    /// Returns the second machine that an operator has to decide about.
    pub(super) fn undecided(&self) -> Option<SecondMachine> {
        let standing = self.standing();
        standing.second.clone().filter(|_| standing.is_certain)
    }

    /// Returns true while the stream is connected and its snapshot is read.
    pub fn is_synced(&self) -> bool {
        self.standing().synced
    }

    /// Stores whether the stream is in sync. Returns whether it was.
    pub fn sync(&self, is_synced: bool) -> bool {
        self.change(|standing| std::mem::replace(&mut standing.synced, is_synced))
    }

    /// Checks whether anything may be written now. For pages and for tasks that wait; a request needs a [`Permit`].
    pub fn writable(&self) -> Result<(), Refusal> {
        let Standing { identity, synced, second, .. } = &*self.standing();
        let identity = identity.as_ref().ok_or(Refusal::IdentityUnknown)?;
        if !self.is_ours(identity) {
            let (configured, sysinfo) = (self.cn_uuid.clone(), identity.uuid.clone());
            return Err(Refusal::WrongIdentity { configured, sysinfo });
        }
        if let Some(second) = second {
            return Err(Refusal::SecondMachine(second.clone()));
        }
        if !synced {
            return Err(Refusal::NotSynced);
        }
        match self.mode {
            Mode::On => Ok(()),
            Mode::Report => Err(Refusal::ReportMode),
        }
    }

    /// Waits until something may be written, or until only the report mode forbids it. Calls `waiting` with each
    /// reason to wait.
    pub async fn until_writable(&self, waiting: impl Fn(Refusal)) {
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            // Before the check, so that news right after it is not missed.
            news.as_mut().enable();
            match self.writable() {
                Ok(()) | Err(Refusal::ReportMode) => return,
                Err(refusal) => waiting(refusal),
            }
            news.await;
        }
    }

    /// Makes a permit for this and hands it to `decide`, which judges a last time and returns the request, or why
    /// there is none. The request is then sent at once.
    pub async fn write<S, F, T>(
        &self,
        subject: S,
        decide: impl for<'moment> FnOnce(Permit<'moment, S>) -> Result<F, T>,
    ) -> Result<Result<F::Output, T>, Refusal>
    where
        F: Future,
    {
        // No await from here to the first poll of the request.
        self.writable()?;
        match decide(Permit { subject, moment: PhantomData }) {
            Ok(request) => Ok(Ok(request.await)),
            Err(why) => Ok(Err(why)),
        }
    }
}
