// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The tasks of the reconciler, their purposes and results.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use vm_model::datasets::SnapshotTable;
use vm_model::origin::{Origin, ParseError};
use vm_model::parse::sysinfo::Sysinfo;
use vm_model::parse::zfs_list::Row;

use super::listing;
use super::reading::{Loaded, ReadFault};
use super::sweep::Seen;
use crate::node::LoadError;
use crate::node::load::Node;

/// The result of a task.
pub enum Done {
    Vm(Arc<str>, Result<Loaded, ReadFault>),
    /// The listing of one dataset; no rows if it does not exist.
    Dataset(String, Result<Vec<Row>, LoadError>),
    /// The filesystems and volumes of the node, and when their listing began.
    Datasets(Instant, Result<Vec<Row>, LoadError>),
    /// The listing of the node's snapshots.
    Snapshots(Result<SnapshotTable, LoadError>),
    Sysinfo(Result<Sysinfo, LoadError>),
    /// The whole node; `None` if the reading panicked.
    Node(Option<Box<Result<Node, LoadError>>>),
    /// A sweep; `None` if it panicked.
    Sweep(Option<Box<Seen>>),
    /// The zones.
    Zones(Result<Box<listing::Seen>, LoadError>),
    /// The zones that differed are read.
    ZonesRead(Box<listing::Differing>),
    Nothing,
}

/// The purpose of a task, in case it panics.
#[derive(Clone)]
pub enum Purpose {
    Vm(Arc<str>),
    Dataset(String),
    /// The filesystems and volumes of the node, and when their listing began.
    Datasets(Instant),
    /// The listing of the node's snapshots.
    Snapshots,
    Sysinfo,
    Node,
    /// A sweep.
    Sweep,
    Zones,
    /// Waits for several readings on behalf of requests.
    Confirm,
}

/// The tasks under way.
#[derive(Default)]
pub struct Tasks {
    set: JoinSet<Done>,
    purposes: HashMap<Id, Purpose>,
}

impl Tasks {
    pub fn spawn(&mut self, purpose: Purpose, work: impl Future<Output = Done> + Send + 'static) {
        let handle = self.set.spawn(work);
        self.purposes.insert(handle.id(), purpose);
    }

    /// Waits for the next task to end, without end if there is none. Cancel-safe.
    pub async fn next(&mut self) -> Done {
        match self.set.join_next_with_id().await {
            Some(done) => self.done(done),
            None => std::future::pending().await,
        }
    }

    /// Returns true if no task is under way.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    fn done(&mut self, done: Result<(Id, Done), JoinError>) -> Done {
        let error = match done {
            Ok((id, done)) => {
                self.purposes.remove(&id);
                return done;
            }
            Err(error) => error,
        };
        let panicked = |origin| {
            let what = "the reading panicked".to_owned();
            LoadError::from(ParseError::content(origin, what))
        };
        match self.purposes.remove(&error.id()) {
            Some(Purpose::Vm(name)) => Done::Vm(name, Err(ReadFault::Panic)),
            Some(Purpose::Dataset(name)) => Done::Dataset(name, Err(panicked(Origin::Datasets))),
            Some(Purpose::Datasets(began)) => {
                Done::Datasets(began, Err(panicked(Origin::Datasets)))
            }
            Some(Purpose::Snapshots) => Done::Snapshots(Err(panicked(Origin::Datasets))),
            Some(Purpose::Sysinfo) => Done::Sysinfo(Err(panicked(Origin::Sysinfo))),
            Some(Purpose::Node) => Done::Node(None),
            Some(Purpose::Sweep) => Done::Sweep(None),
            Some(Purpose::Zones) => Done::Zones(Err(panicked(Origin::Zoneadm))),
            Some(Purpose::Confirm) | None => Done::Nothing,
        }
    }
}
