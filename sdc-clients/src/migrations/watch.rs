// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Watches one migration until it ends, over restarts of the service.
//!
//! A new connection repeats the entry that runs, and does not report what ended meanwhile: a program that shows the
//! history reads the record again after each [`News::Opened`].

use std::time::Duration;

use ::http::Method;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::client::Migrations;
use super::types::Event;
use crate::error::{Error, Phase};
use crate::http::{Call, StreamResponse};
use crate::jitter::Jitter;
use crate::retry::{Backoff, Policy};
use crate::vminfod::Lines;

/// The service says once a minute that it lives. The deployed one sends no status before the first line.
const SILENCE: Duration = Duration::from_secs(150);
/// People wait for it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The longest line.
const LINE_CAP: usize = 1 << 20;

/// What a watcher returns.
#[derive(Debug, Clone)]
pub enum News {
    /// The stream is open; what happened before is in the record.
    Opened,
    /// A line of it.
    Event(Event),
    /// The stream is lost, and opened again after a wait.
    Lost(Error),
}

enum Step {
    Wait(Instant),
    Open(BoxFuture<'static, Result<StreamResponse, Error>>),
    Follow(BoxStream<'static, Result<Bytes, Error>>, Lines),
    Over,
}

/// Follows one migration. Made by [`watch`].
pub struct Watcher {
    client: Migrations,
    vm: String,
    backoff: Backoff,
    step: Step,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("vm", &self.vm).finish_non_exhaustive()
    }
}

/// Watches the migration of a VM; `jitter` spreads the reconnects.
pub fn watch(client: &Migrations, vm: &str, jitter: Jitter) -> Watcher {
    let policy = Policy { max: LONGEST_WAIT, ..Policy::probe() };
    Watcher {
        client: client.clone(),
        vm: vm.to_owned(),
        backoff: Backoff::new(&policy, jitter),
        step: Step::Wait(Instant::now()),
    }
}

impl Watcher {
    /// Returns what comes next; none after the end. Cancel-safe.
    ///
    /// # Errors
    /// What another try would not change, such as that there is no migration; none follows.
    pub async fn next(&mut self) -> Result<Option<News>, Error> {
        loop {
            match self.advance().await {
                Ok(Some(News::Event(event @ Event::End { .. }))) => {
                    self.step = Step::Over;
                    return Ok(Some(News::Event(event)));
                }
                Ok(Some(news)) => return Ok(Some(news)),
                Ok(None) if matches!(self.step, Step::Over) => return Ok(None),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {
                    let delay = self.backoff.next_growing_delay().unwrap_or(LONGEST_WAIT);
                    self.step = Step::Wait(Instant::now() + delay);
                    return Ok(Some(News::Lost(error)));
                }
                Err(error) => {
                    self.step = Step::Over;
                    return Err(error);
                }
            }
        }
    }

    /// One step. The state changes only after the last await of each arm.
    async fn advance(&mut self) -> Result<Option<News>, Error> {
        match &mut self.step {
            Step::Over => Ok(None),
            Step::Wait(until) => {
                sleep_until(*until).await;
                let (http, vm) = (self.client.http().clone(), self.vm.clone());
                let call = move || Call::get(&["migrations", &vm, "watch"]).timeout(SILENCE);
                self.step = Step::Open(Box::pin(async move { http.open(call()).await }));
                Ok(None)
            }
            Step::Open(opening) => {
                let opened = opening.await;
                // A future that has ended is not asked again.
                self.step = Step::Wait(Instant::now());
                self.step = Step::Follow(opened?.body, Lines::new(LINE_CAP));
                Ok(Some(News::Opened))
            }
            Step::Follow(body, lines) => {
                let line = next_line(body, lines, &self.vm).await?;
                let event = Event::read(&line).map_err(|error| {
                    let path = path(&self.vm);
                    Error::protocol(&Method::GET, path, None, "an event", &line).with_source(error)
                })?;
                self.backoff.reset();
                Ok(Some(News::Event(event)))
            }
        }
    }
}

fn path(vm: &str) -> String {
    format!("/migrations/{vm}/watch")
}

/// Cancel-safe: each piece is kept in `lines` before the next await.
async fn next_line(
    body: &mut BoxStream<'static, Result<Bytes, Error>>,
    lines: &mut Lines,
    vm: &str,
) -> Result<Bytes, Error> {
    let path = || path(vm);
    loop {
        let line = lines.next_line().map_err(|error| {
            let what = "a shorter line";
            Error::protocol(&Method::GET, path(), None, what, b"").with_source(error)
        })?;
        match line {
            Some(line) if line.is_empty() => continue,
            Some(line) => return Ok(line),
            None => {}
        }
        match timeout(SILENCE, body.next()).await {
            Ok(Some(piece)) => lines.push(&piece?),
            Ok(None) => return Err(Error::broken(&Method::GET, path(), "the stream ended")),
            Err(_) => return Err(Error::timed_out(Phase::Body, &Method::GET, path(), SILENCE)),
        }
    }
}
