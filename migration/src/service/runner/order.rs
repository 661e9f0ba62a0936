// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An order to an agent, and how a step can go.

use std::time::Duration;

use sdc_clients::Error;

use super::observe::{about, is_old, node_of};
use crate::journal::End;
use crate::protocol::{Order, Progress, State, What};
use crate::record::Record;
use crate::service::refused::Refused;
use crate::service::state::Service;

/// How long an order is waited for. A stream is looked at once a second, for those who watch it.
const WAIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);
/// How a step went.
#[derive(Clone, Debug, PartialEq)]
pub enum Carried {
    /// It was done.
    Done,
    /// The agent goes on with it.
    Running(Option<Progress>),
    /// It was done, and so many bytes were sent.
    Sent(u64),
}

/// Why a step was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Failed {
    /// It may be tried again.
    Again(String),
    /// The same of a stream, with how far it came.
    Cut(String, Progress),
    /// It is of no use to try it again.
    Fatal(String),
    /// Another service has changed the record, or an agent has heard of it.
    Lost,
    /// This service does not hold the lease any more.
    Fenced,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match error.code() {
            _ if is_old(&error) => Failed::Lost,
            // The same again is refused again.
            Some("InvalidParameters") => Failed::Fatal(error.to_string()),
            _ => Failed::Again(error.to_string()),
        }
    }
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Again(refused.message().to_owned())
    }
}

impl From<store::Error> for Failed {
    fn from(error: store::Error) -> Failed {
        match error {
            store::Error::EtagConflict { .. } | store::Error::NotFound { .. } => Failed::Lost,
            store::Error::Fenced { .. } => Failed::Fenced,
            error => Failed::Again(error.to_string()),
        }
    }
}

/// Refuses what would be done after the lease may have gone to another service.
///
/// # Errors
/// [`Failed::Fenced`].
pub fn require_lease(service: &Service) -> Result<(), Failed> {
    if service.held.is_over() { Err(Failed::Fenced) } else { Ok(()) }
}

/// Gives an order to the agent of a copy.
///
/// # Errors
/// If it was not done, or nobody knows.
pub async fn order(
    service: &Service,
    record: &Record,
    end: End,
    what: What,
) -> Result<Carried, Failed> {
    let cn = node_of(record, end);
    let cn = cn.ok_or_else(|| Failed::Fatal(format!("the {end}'s node is not chosen")))?;
    let is_stream = matches!(what, What::Send { .. } | What::SendImage { .. });
    let wait = if is_stream { LOOK } else { WAIT };
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let order = Order { about: about(record, end), wait_ms, order: what };
    let doing = service.agents.order(cn, &order).await?;
    match (doing.state, doing.progress) {
        (State::Done, progress) if is_stream => {
            Ok(Carried::Sent(progress.unwrap_or_default().current))
        }
        (State::Done, _) => Ok(Carried::Done),
        (State::Running, progress) => Ok(Carried::Running(progress)),
        (State::Failed { error, fatal: true }, _) => Err(Failed::Fatal(error)),
        (State::Failed { error, .. }, Some(progress)) => Err(Failed::Cut(error, progress)),
        (State::Failed { error, .. }, None) => Err(Failed::Again(error)),
    }
}
