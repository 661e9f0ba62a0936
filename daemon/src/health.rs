// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether a service answers, seen from each of its answers: what the operator is shown and what is
//! logged from the first failure on, and the time that the service says it is. It decides nothing
//! about requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use sdc_clients::http::{Permit, Request, Response, Switched, Transport};
use sdc_clients::{Class, Error, Phase};
use tokio::time::Instant;

use crate::metrics::Durations;

/// A service that has answered nothing for this long, with a request under way, is silent.
const SILENT: Duration = Duration::from_secs(5);
/// A 500 may be about one record: it is logged again only after this long without any.
const QUIET: Duration = Duration::from_secs(600);

/// How a service fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It does not answer in time.
    Silent,
    /// No connection, or one that broke.
    Lost(Class),
    /// It answers with this status.
    Status(u16),
}

/// A failure that lasts.
#[derive(Clone, Debug)]
pub struct Trouble {
    kind: Kind,
    since: Instant,
    /// When it was last seen, for people.
    pub at: Timestamp,
    /// The same on the monotonic clock.
    pub seen: Instant,
    pub text: String,
}

#[derive(Debug, Default)]
struct State {
    trouble: Option<Trouble>,
    /// The start of the current trouble is in the log.
    is_logged: bool,
    /// When the last trouble began and ended.
    ended: Option<(Instant, Instant)>,
    answered: Option<Instant>,
    last_500: Option<Instant>,
    date: Option<(Timestamp, Instant)>,
}

/// The health of one service. The lock is held for a few instructions and never over an await.
#[derive(Debug)]
pub struct Health {
    service: &'static str,
    /// How long its requests took, until the answer or the failure.
    pub took: Durations,
    state: Mutex<State>,
}

impl Health {
    /// Nothing is known of the service yet.
    pub fn new(service: &'static str) -> Arc<Self> {
        Arc::new(Self { service, took: Durations::default(), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what fails now.
    pub fn trouble(&self) -> Option<Trouble> {
        self.state().trouble.clone()
    }

    /// Returns what fails now, for people.
    pub fn sentence(&self) -> Option<String> {
        self.trouble().map(|trouble| {
            let seconds = trouble.since.elapsed().as_secs();
            format!("waiting for {}, for {seconds} s: {}", self.service, trouble.text)
        })
    }

    /// Returns true if the service failed at this time and has answered since.
    pub fn has_recovered_from(&self, time: Instant) -> bool {
        self.state().ended.is_some_and(|(began, end)| began <= time && time <= end)
    }

    /// Returns the earlier time of the service's clock and this machine's, so that one clock that is ahead ages
    /// nothing; the epoch before the service's first answer.
    pub fn time(&self) -> Timestamp {
        let Some((date, heard)) = self.state().date else { return Timestamp::UNIX_EPOCH };
        let passed = SignedDuration::try_from(heard.elapsed()).unwrap_or(SignedDuration::MAX);
        date.checked_add(passed).unwrap_or(Timestamp::MAX).min(crate::wall::now())
    }

    /// A request has been under way for [`SILENT`].
    fn silent(&self, target: &str) {
        let is_alive = self.state().answered.is_some_and(|at| at.elapsed() < SILENT);
        if !is_alive {
            let text = format!("no answer to {target} within {} s", SILENT.as_secs());
            self.fails(Kind::Silent, text);
        }
    }

    fn observe(&self, request: &Sent, outcome: &Result<Response, Error>) {
        let Some(error) = request.failure(outcome) else { return self.answers(outcome) };
        let kind = match (error.class(), error.status()) {
            (_, Some(status)) => Kind::Status(status),
            (Class::Timeout(_), _) => Kind::Silent,
            _ if error.phase().is_some_and(|phase| phase != Phase::Connect) => Kind::Silent,
            (class, None) => Kind::Lost(class),
        };
        self.fails(kind, error.to_string());
    }

    fn fails(&self, kind: Kind, text: String) {
        let mut state = self.state();
        let now = Instant::now();
        let before = state.trouble.as_ref();
        let is_new = before.is_none_or(|trouble| trouble.kind != kind);
        let since = before.map_or(now, |trouble| trouble.since);
        let mut is_quiet = false;
        if kind == Kind::Status(500) {
            is_quiet = state.last_500.is_some_and(|at| now - at < QUIET);
            state.last_500 = Some(now);
        }
        if is_new && !is_quiet {
            state.is_logged = true;
            tracing::warn!(
                service = self.service,
                reason = text,
                "a service that this program needs fails; trying again"
            );
        }
        state.trouble = Some(Trouble { kind, since, at: crate::wall::now(), seen: now, text });
    }

    fn answers(&self, outcome: &Result<Response, Error>) {
        let mut state = self.state();
        let now = Instant::now();
        if let Ok(answer) = outcome {
            state.answered = Some(now);
            let date = answer.headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
            let parser = jiff::fmt::rfc2822::DateTimeParser::new();
            if let Some(date) = date.and_then(|text| parser.parse_timestamp(text).ok()) {
                state.date = Some((date, now));
            }
        }
        let Some(trouble) = state.trouble.take() else { return };
        state.ended = Some((trouble.since, now));
        if std::mem::take(&mut state.is_logged) {
            let seconds = trouble.since.elapsed().as_secs();
            tracing::info!(
                service = self.service,
                seconds,
                "a service that this program needs answers again"
            );
        }
    }
}

/// The request that an outcome belongs to.
struct Sent {
    method: http::Method,
    target: String,
}

impl Sent {
    /// Returns the failure of the service, not of the request alone.
    fn failure(&self, outcome: &Result<Response, Error>) -> Option<Error> {
        match outcome {
            Ok(answer) if answer.status.is_success() => None,
            Ok(Response { status, headers, body }) => {
                let error = Error::from_answer(&self.method, &self.target, *status, headers, body);
                matches!(error.class(), Class::Unavailable | Class::Server).then_some(error)
            }
            Err(error) => Some(error.clone())
                .filter(|error| !matches!(error.class(), Class::Protocol | Class::Request)),
        }
    }
}

/// A transport that tells the health of its service.
pub struct Observed {
    inner: Arc<dyn Transport>,
    health: Arc<Health>,
}

impl Observed {
    /// Watches the requests that go through `inner`.
    pub fn new(inner: Arc<dyn Transport>, health: Arc<Health>) -> Self {
        Self { inner, health }
    }
}

impl Transport for Observed {
    fn admit(&self) -> BoxFuture<'_, Permit> {
        self.inner.admit()
    }

    fn patience(&self, usual: Duration) -> Duration {
        self.inner.patience(usual)
    }

    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let asked = Sent { method: request.method.clone(), target: request.target() };
            let began = Instant::now();
            let mut sending = self.inner.send(request);
            let outcome = tokio::select! {
                biased;
                outcome = &mut sending => outcome,
                () = tokio::time::sleep(SILENT) => {
                    self.health.silent(&format!("{} {}", asked.method, asked.target));
                    sending.await
                }
            };
            self.health.took.took(began.elapsed());
            self.health.observe(&asked, &outcome);
            outcome
        })
    }

    fn upgrade(&self, request: Request) -> BoxFuture<'_, Result<Switched, Error>> {
        self.inner.upgrade(request)
    }
}
