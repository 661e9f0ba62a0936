// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How orders ended since the start, and the requests that were refused.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use migration_core::protocol::What;

/// How an order ended, or that it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not.
    Failed,
    /// Another one came.
    Cancelled,
}

impl Outcome {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// Orders by kind and outcome.
pub type Orders = BTreeMap<(&'static str, Outcome), u64>;

/// What is counted.
#[derive(Debug, Default)]
pub struct Counts {
    orders: Mutex<Orders>,
    refused: AtomicU64,
}

impl Counts {
    /// Counts an order.
    pub fn order(&self, what: &What, outcome: Outcome) {
        let mut counts = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((what.name(), outcome)).or_default() += 1;
    }

    /// Counts a request whose sender may not make it.
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the requests that were refused, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [("not_allowed", self.refused.load(Ordering::Relaxed))].into_iter()
    }

    /// Returns the orders by kind and outcome.
    pub fn orders(&self) -> Orders {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
