// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The connection to the feed, and why there is none. The client tells its failures as texts alone: a server that
//! cannot be connected to is tried once more beside it, for a reason that can be named.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::rustls::{self, CertificateError};
use async_nats::{Client, ConnectError, ConnectOptions, Event, Server, ServerError};
use tokio::time::Instant;

use super::error::FleetError;

/// A request without an answer that was sent so long ago, at most, may be the one that the server forbade: a second
/// more than is waited for an answer.
const RECENT: Duration = Duration::from_secs(6);

/// A connection that is made anew for ever. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Link {
    client: Client,
    why: Why,
}

impl Deref for Link {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Link {
    pub(super) fn new(client: Client, why: Why) -> Link {
        Link { client, why }
    }

    /// Says instead of "no answer" why there is none: no connection, or the server's word that the key may not ask.
    pub(super) fn explain(&self, error: FleetError) -> FleetError {
        if !matches!(error, FleetError::Away(_)) {
            return error;
        }
        let why = self.why.lock();
        match &why.forbidden {
            _ if self.client.connection_state() != State::Connected => {
                why.reason.clone().unwrap_or(error)
            }
            Some((at, what)) if at.elapsed() <= RECENT => FleetError::Forbidden(what.clone()),
            _ => error,
        }
    }
}

/// Why the server that was tried last could not be connected to.
#[derive(Debug, Clone, Default)]
pub(super) struct Why(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    reason: Option<FleetError>,
    /// What the server forbade last.
    forbidden: Option<(Instant, String)>,
    /// What the client said of each server: what is new is examined.
    said: BTreeMap<String, String>,
}

impl Why {
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears what the client tells of a connection. A request that is not allowed gets no answer.
    pub(super) fn hear(&self, event: &Event) {
        tracing::info!("the connection to the feed: {event}");
        if let Event::ServerError(ServerError::Other(text)) = event
            && text.contains("ermissions Violation")
        {
            self.lock().forbidden = Some((Instant::now(), text.clone()));
        }
    }

    /// Examines what is new about the servers that could not be connected to; `options` are those of one attempt.
    pub(super) async fn examine(
        &self,
        servers: &[Server],
        options: impl Fn() -> Option<(ConnectOptions, String)>,
    ) {
        // A server that has not failed is connected to first: an attempt may take seconds. What was known of an
        // earlier outage is no reason of this one.
        if servers.iter().any(|server| server.last_error.is_none()) {
            *self.lock() = Known::default();
            return;
        }
        for server in servers {
            let Some(said) = &server.last_error else { continue };
            let before = self.lock().said.insert(server.to_string(), said.clone());
            if before.as_ref() == Some(said) {
                continue;
            }
            let Some((options, authorities)) = options() else { return };
            let Err(error) = options.connect(server.addr.clone()).await else { continue };
            let host = server.addr.host();
            let reason = reason(format!("{host}:{}", server.addr.port()), &authorities, &error);
            tracing::warn!("{reason}");
            self.lock().reason = Some(reason);
        }
    }
}

/// The client wants a future to which several threads may have references, which an attempt to connect is not.
pub(super) fn shared<T>(
    work: impl Future<Output = T> + Send,
) -> impl Future<Output = T> + Send + Sync {
    let mut work = Mutex::new(Box::pin(work));
    poll_fn(move |context| {
        work.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(context)
    })
}

fn reason(server: String, authorities: &str, error: &ConnectError) -> FleetError {
    let of_io = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    let of_tls =
        of_io.and_then(io::Error::get_ref).and_then(|it| it.downcast_ref::<rustls::Error>());
    match of_tls {
        Some(rustls::Error::InvalidCertificate(why)) => {
            FleetError::Untrusted { server, reason: distrust(why, authorities) }
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            FleetError::Unreachable { server, reason: "it does not speak TLS".to_owned() }
        }
        _ => FleetError::Unreachable { server, reason: error.to_string() },
    }
}

fn distrust(why: &CertificateError, authorities: &str) -> String {
    use CertificateError as Why;
    match why {
        Why::UnknownIssuer | Why::BadSignature => {
            format!("no authority of {authorities} issued it")
        }
        Why::Expired | Why::ExpiredContext { .. } => "it has expired".to_owned(),
        Why::NotValidYet | Why::NotValidYetContext { .. } => {
            "by the clock of this machine it is not valid yet".to_owned()
        }
        Why::NotValidForName => "it is for another name".to_owned(),
        Why::NotValidForNameContext { presented, .. } => {
            format!("it is for another name ({})", presented.join(", "))
        }
        Why::Revoked => "it was revoked".to_owned(),
        why => why.to_string(),
    }
}
