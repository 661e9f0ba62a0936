// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What nodes are, for estimates: those that come together share one report of a node. Orders
//! rest on fresh answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use migration_core::protocol::Node;
use sdc_clients::{Class, Error};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// How long an agent may take to report its node.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a report is used, also that an agent does not answer.
const FRESH: Duration = Duration::from_secs(10);

/// What the agent of a node has reported.
#[derive(Clone, Debug)]
pub enum NodeReport {
    /// What the node is.
    Report(Box<Node>),
    /// The agent does not answer.
    Silent,
    /// A peer answers at its address and does not prove that it is the agent.
    Unproved,
    /// No address is known at which it could be asked.
    NoAddress,
}

impl NodeReport {
    /// Returns the content of an answer.
    pub fn of(answer: Result<Node, Error>) -> NodeReport {
        match answer {
            Ok(node) => NodeReport::Report(Box::new(node)),
            Err(error) if error.class() == Class::NoAddress => NodeReport::NoAddress,
            Err(error) if trust::has_answered(&error) => NodeReport::Unproved,
            Err(_) => NodeReport::Silent,
        }
    }

    /// Returns what the node is, if that is known.
    pub fn node(&self) -> Option<&Node> {
        match self {
            NodeReport::Report(node) => Some(node),
            _ => None,
        }
    }
}

type Place = Arc<tokio::sync::Mutex<Option<(Instant, NodeReport)>>>;

/// The last reports; there are none of nodes that were not asked for.
#[derive(Debug, Default)]
pub struct NodeReports(Mutex<BTreeMap<Uuid, Place>>);

impl NodeReports {
    /// Returns a fresh report; `ask` is polled where there is none. Concurrent callers wait for the same answer.
    pub async fn at(&self, cn: Uuid, ask: impl Future<Output = Result<Node, Error>>) -> NodeReport {
        let is_fresh = |last: &Option<(Instant, NodeReport)>| {
            last.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH)
        };
        let place = {
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // One that is locked is being asked.
            places.retain(|_, place| {
                place.try_lock().is_ok_and(|last| is_fresh(&last)) || Arc::strong_count(place) > 1
            });
            Arc::clone(places.entry(cn).or_default())
        };
        let mut last = place.lock().await;
        if let Some((_, report)) = last.as_ref().filter(|_| is_fresh(&last)) {
            return report.clone();
        }
        let answer = timeout(PATIENCE, ask).await;
        let report = answer.map_or(NodeReport::Silent, NodeReport::of);
        *last = Some((Instant::now(), report.clone()));
        report
    }
}
