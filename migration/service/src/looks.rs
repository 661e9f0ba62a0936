// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What nodes are, for estimates: those that come together share one look at a node. Orders rest on fresh answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use migration_core::protocol::Node;
use sdc_clients::Error;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// How long an agent may take to report its node.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a look counts, also at an agent that does not answer.
const FRESH: Duration = Duration::from_secs(10);

/// What came of a look at a node.
#[derive(Clone, Debug)]
pub enum Look {
    /// What the node is.
    Seen(Box<Node>),
    /// The agent does not answer, or the peer is not authenticated as it.
    Silent {
        /// Somebody does.
        is_unproved: bool,
    },
}

impl Look {
    /// Returns the content of an answer.
    pub fn of(answer: Result<Node, Error>) -> Look {
        match answer {
            Ok(node) => Look::Seen(Box::new(node)),
            Err(error) => Look::Silent { is_unproved: trust::has_answered(&error) },
        }
    }

    /// Returns what the node is, if that is known.
    pub fn node(&self) -> Option<&Node> {
        match self {
            Look::Seen(node) => Some(node),
            Look::Silent { .. } => None,
        }
    }
}

type Place = Arc<tokio::sync::Mutex<Option<(Instant, Look)>>>;

/// The last reports; there are none of nodes that were not asked for.
#[derive(Debug, Default)]
pub struct Looks(Mutex<BTreeMap<Uuid, Place>>);

impl Looks {
    /// Returns a look that is fresh; `ask` is polled where there is none. Who comes meanwhile waits for the same
    /// answer.
    pub async fn at(&self, cn: Uuid, ask: impl Future<Output = Result<Node, Error>>) -> Look {
        let is_fresh = |last: &Option<(Instant, Look)>| {
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
        if let Some((_, look)) = last.as_ref().filter(|_| is_fresh(&last)) {
            return look.clone();
        }
        let answer = timeout(PATIENCE, ask).await;
        let look = answer.map_or(Look::Silent { is_unproved: false }, Look::of);
        *last = Some((Instant::now(), look.clone()));
        look
    }
}
