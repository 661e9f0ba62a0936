// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An order to an agent, and how a step can go.

use std::time::Duration;

use sdc_clients::Error;
use store::Fence;

use super::observe::{about, is_old};
use crate::records::Stored;
use crate::refused::Refused;
use crate::state::Service;
use migration_core::intent::End;
use migration_core::protocol::{Doing, Order, Progress, State, What};
use migration_core::record::{Record, node_of};

/// How long an order is waited for. A stream is polled once a second, for those who watch it.
const WAIT: Duration = Duration::from_secs(30);
const STREAM_WAIT: Duration = Duration::from_secs(1);
/// A program that has run for so many ms is told to people.
const LONG: i64 = 10_000;
/// So much of what was done without something is kept for people.
const MOST_DETAIL: usize = 4000;
/// How a step went.
#[derive(Clone, Debug, PartialEq)]
pub enum Reported {
    /// It was done.
    Done,
    /// The agent goes on with it.
    Running(Option<Progress>),
    /// It was done, and so many bytes were sent.
    Sent(u64),
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failed {
    /// It may be tried again.
    #[error("{0}")]
    Again(String),
    /// A stream was cut; carries its progress.
    #[error("{0}")]
    Cut(String, Progress),
    /// Permanent: a retry cannot succeed.
    #[error("{0}")]
    Fatal(String),
    /// The same: the node that receives has no room.
    #[error("{0}")]
    NoRoom(String),
    /// Another service has changed the record, or an agent received a later revision.
    #[error("the record was changed meanwhile, or an agent has a later revision of it")]
    Lost,
    /// This service does not hold the lease any more.
    #[error("this service does not hold the lease any more")]
    Fenced,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match error.code() {
            _ if is_old(&error) => Failed::Lost,
            // The same again is refused again.
            Some("InvalidParameters") => Failed::Fatal(error.in_words()),
            _ => Failed::Again(error.in_words()),
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

/// Gives an order to the agent of a copy.
pub async fn order(
    service: &Service,
    record: &Record,
    end: End,
    what: What,
) -> Result<Reported, Failed> {
    reported(order_doing(service, record, end, what).await?)
}

/// Gives an order to the agent of a copy, and keeps in the record what it is done without.
pub async fn order_and_note(
    service: &Service,
    kept: &mut Stored,
    end: End,
    what: What,
    fence: &Fence,
) -> Result<Reported, Failed> {
    let doing = order_doing(service, &kept.record, end, what).await?;
    let vm = kept.record.vm_uuid;
    let now = service.clock.now();
    let runs = doing.runs.clone().map(|runs| runs.on(end));
    let runs = runs.filter(|it| now.since(it.since) >= LONG && !is_stream(&doing.order));
    if runs != kept.record.intent.runs {
        kept.record.intent.runs = runs;
        service.records.write(kept, Some(fence)).await?;
    }
    if let Some(entry) = kept.record.progress_history.last_mut() {
        let mut detail = entry.error_detail.clone().unwrap_or_default();
        for text in &doing.warnings {
            if detail.len() < MOST_DETAIL && !detail.split("; ").any(|it| it == text) {
                detail += if detail.is_empty() { "" } else { "; " };
                detail += text;
                tracing::warn!(%vm, %end, text, "an order succeeded with a warning");
            }
        }
        if !detail.is_empty() && entry.error_detail.as_ref() != Some(&detail) {
            entry.error_detail = Some(detail);
            service.records.write(kept, Some(fence)).await?;
        }
    }
    reported(doing)
}

/// The same, with all that the agent answers.
pub async fn order_doing(
    service: &Service,
    record: &Record,
    end: End,
    what: What,
) -> Result<Doing, Failed> {
    let cn = node_of(record, end);
    let cn = cn.ok_or_else(|| Failed::Fatal(format!("the {end}'s node is not chosen")))?;
    let wait = if is_stream(&what) { STREAM_WAIT } else { WAIT };
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let other = end.other();
    let is_used = matches!(what, What::Show | What::Boot) && record.intent.is_replaced(other);
    let instead = node_of(record, other).filter(|_| is_used);
    let order = Order { about: about(record, end), wait_ms, order: what, instead };
    service.agents.order(cn, &order).await.map_err(|error| match error.into() {
        Failed::Again(why) => Failed::Again(format!("migration-agent on the {end}'s node: {why}")),
        failed => failed,
    })
}

fn is_stream(what: &What) -> bool {
    matches!(what, What::Send { .. } | What::SendImage { .. })
}

/// Returns how far an order is.
pub fn reported(doing: Doing) -> Result<Reported, Failed> {
    match (doing.state, doing.progress) {
        (State::Failed { error, .. }, _) if doing.no_room => Err(Failed::NoRoom(error)),
        (State::Done, progress) if is_stream(&doing.order) => {
            Ok(Reported::Sent(progress.unwrap_or_default().current))
        }
        (State::Done, _) => Ok(Reported::Done),
        (State::Running, progress) => Ok(Reported::Running(progress)),
        (State::Failed { error, fatal: true }, _) => Err(Failed::Fatal(error)),
        (State::Failed { error, .. }, Some(progress)) => Err(Failed::Cut(error, progress)),
        (State::Failed { error, .. }, None) => Err(Failed::Again(error)),
    }
}
