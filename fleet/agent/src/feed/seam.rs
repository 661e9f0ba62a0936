// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an agent asks of the feed, and the real one.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sdc_clients::fleet::{FleetError, Labels, Stored, Wire};

/// The answer to a request.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, FleetError>>;

/// What an agent asks of the feed. That no answer came does not mean that nothing was stored.
pub trait Feed: Send + Sync {
    /// Returns the largest message that it takes.
    fn largest(&self) -> usize;

    /// Returns the last message of a subject, which may end with `>`; possibly one that was the last shortly before.
    fn last<'a>(&'a self, stream: &'a str, subject: &'a str) -> Answer<'a, Option<Stored>>;

    /// Publishes a message behind `last`, the last one of its subject (0: there is none); returns its number. That
    /// another one is the last is not refused.
    fn publish<'a>(
        &'a self,
        subject: &'a str,
        labels: &'a Labels,
        body: Bytes,
        last: u64,
    ) -> Answer<'a, u64>;

    /// Replaces the node's entry if its revision is `expected`; returns the new one.
    fn beat<'a>(&'a self, cn: &'a str, body: Bytes, expected: u64) -> Answer<'a, u64>;

    /// Lists the subjects of a stream that pass the filter.
    fn subjects<'a>(&'a self, stream: &'a str, filter: &'a str) -> Answer<'a, Vec<String>>;
}

impl Feed for Wire {
    fn largest(&self) -> usize {
        Wire::largest(self)
    }

    fn last<'a>(&'a self, stream: &'a str, subject: &'a str) -> Answer<'a, Option<Stored>> {
        Box::pin(Wire::last(self, stream, subject))
    }

    fn publish<'a>(
        &'a self,
        subject: &'a str,
        labels: &'a Labels,
        body: Bytes,
        last: u64,
    ) -> Answer<'a, u64> {
        Box::pin(Wire::publish(self, subject, labels, body, last))
    }

    fn beat<'a>(&'a self, cn: &'a str, body: Bytes, expected: u64) -> Answer<'a, u64> {
        Box::pin(Wire::beat(self, cn, body, expected))
    }

    fn subjects<'a>(&'a self, stream: &'a str, filter: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(Wire::subjects(self, stream, filter))
    }
}
