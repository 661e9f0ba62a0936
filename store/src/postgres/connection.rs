// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A connection, and which errors on it pass.

use deadpool_postgres::{ClientWrapper, Object};
use tokio_postgres::error::SqlState;

use crate::error::Error;

/// A connection. One that is dropped is closed, as the call on it did not end well.
#[derive(Debug)]
pub(super) struct Connection(Option<Object>);

impl Connection {
    pub(super) fn new(object: Object) -> Connection {
        Connection(Some(object))
    }

    pub(super) fn client(&mut self) -> &mut ClientWrapper {
        self.0.as_mut().expect("invariant: only the end of its life takes it")
    }

    /// Gives the connection back to the pool.
    pub(super) fn release(mut self) {
        self.0.take();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

/// Why a call was given up.
#[derive(Debug)]
pub(super) enum Failure {
    /// The call is refused: it would be again.
    Refused(Error),
    /// The server was away, or two calls got in each other's way: nothing was done, and it may be tried
    /// again.
    Passing(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        let why = match error.as_db_error() {
            Some(told) => format!("{} ({})", told.message(), told.code().code()),
            None => with_sources(&error),
        };
        match error.code() {
            Some(code) if !passes(code) => Failure::Refused(Error::Unavailable { why }),
            _ => Failure::Passing(why),
        }
    }
}

/// Whether an error of the server may go away: lost connections, shutdowns and starts, lack of
/// connections, deadlocks, statements that took too long, and a server that takes no writes, as another one does.
fn passes(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "08" | "40" | "57")
        || [
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::READ_ONLY_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// An error with all that caused it.
pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        text = format!("{text}: {next}");
        source = next.source();
    }
    text
}
