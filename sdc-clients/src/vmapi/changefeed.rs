// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's changefeed: which VMs' records changed, as one endless stream that begins with a full listing.
//!
//! ```text
//!            ┌────────────── wait (back-off from 1 s) ◄───────────┐
//!            ▼                                                    │ Lost
//!  start ─► WebSocket /changefeeds ─► register ─► bootstrap ─► list ─► Listed ─► Changed ...
//! ```
//!
//! VMAPI publishes what it wrote every two seconds, to the listeners that are registered then, and repeats nothing. So
//! what came between a `Lost` and the next `Listed` is in that listing only, which begins once the
//! registration was accepted: no write falls between them.
//!
//! There is no task behind it: [`Changefeed::next`] drives the machine and is cancel-safe. A silent feed
//! is a quiet data centre, not a loss.
//!
//! Source: contract/napi.md §9 (the protocol, version 1, which VMAPI speaks), contract/vmapi.md §4.

use std::time::Duration;

use ::http::header::{self, HeaderValue};
use ::http::{HeaderMap, Method};
use futures_util::future::BoxFuture;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::records;
use super::types::VmQuery;
use crate::error::{Error, Phase};
use crate::http::{Call, Duplex, Http, TOTAL_TIMEOUT};
use crate::jitter::Jitter;
use crate::retry::{Backoff, Policy};
use crate::uuids::uuid_value;

/// A VM with much metadata.
const LONGEST_MESSAGE: usize = 64 << 20;
/// As upstream's listeners do, so that both ends notice a dead connection.
const HEARTBEAT: Duration = Duration::from_secs(28);
/// The longest wait between two tries: what depends on VMs is right soon after VMAPI's return.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// A connection that lived this long after its listing ends a run of failures.
const CALM: Duration = Duration::from_secs(30);
const PATH: &str = "/changefeeds";

/// What a listener asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subscription {
    /// The name of the service that listens.
    pub service: String,
    /// The listener: a uuid of its own, since a second one of the same instance takes the first one's place.
    pub instance: String,
    /// The fields whose changes it wants to hear of. VMAPI publishes `destroyed` without `state`, or the
    /// reverse: a listener that wants to know of the end of a VM names both.
    pub sub_resources: Vec<String>,
    /// What each listing asks for.
    pub listing: VmQuery,
}

/// A record was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The VM.
    pub uuid: String,
    /// What differs, a field once for each difference in it; what was new is named with all its fields.
    pub sub_resources: Vec<String>,
    /// The record as it was written. It may be older than the last listing: publishing takes two seconds.
    pub vm: Map<String, Value>,
}

/// What a changefeed tells.
#[derive(Debug, Clone)]
pub enum FeedEvent {
    /// The feed is up, and these are all VMs that the subscription lists.
    Listed(Vec<Map<String, Value>>),
    /// A record was written.
    Changed(Change),
    /// The feed is down. What comes now is in the next listing only.
    Lost(Error),
}

type Socket = WebSocketStream<Box<dyn Duplex>>;
type Begun = (Socket, Vec<Map<String, Value>>);

enum Step {
    Wait(Instant),
    Begin(BoxFuture<'static, Result<Begun, Error>>),
    Follow { socket: Box<Socket>, since: Instant, heartbeat: Instant },
}

/// Follows the records of one VMAPI.
pub struct Changefeed {
    http: Http,
    wanted: Subscription,
    backoff: Backoff,
    step: Step,
}

impl std::fmt::Debug for Changefeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = match self.step {
            Step::Wait(_) => "wait",
            Step::Begin(_) => "begin",
            Step::Follow { .. } => "follow",
        };
        f.debug_struct("Changefeed").field("step", &step).finish_non_exhaustive()
    }
}

impl Changefeed {
    pub(super) fn new(http: Http, wanted: Subscription, jitter: Jitter) -> Changefeed {
        let policy = Policy { max: LONGEST_WAIT, ..Policy::probe() };
        Changefeed {
            http,
            wanted,
            backoff: Backoff::new(&policy, jitter),
            step: Step::Wait(Instant::now()),
        }
    }

    /// The next event. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> FeedEvent {
        loop {
            match self.advance().await {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(error) => return self.lose(error),
            }
        }
    }

    /// Whether the feed is up.
    pub fn is_following(&self) -> bool {
        matches!(self.step, Step::Follow { .. })
    }

    /// One step of the machine. State changes only after the last await of each arm.
    async fn advance(&mut self) -> Result<Option<FeedEvent>, Error> {
        match &mut self.step {
            Step::Wait(until) => {
                sleep_until(*until).await;
                self.step = Step::Begin(Box::pin(begin(self.http.clone(), self.wanted.clone())));
                Ok(None)
            }
            Step::Begin(beginning) => {
                let (socket, vms) = beginning.await?;
                let (socket, since) = (Box::new(socket), Instant::now());
                self.step = Step::Follow { socket, since, heartbeat: since + HEARTBEAT };
                Ok(Some(FeedEvent::Listed(vms)))
            }
            Step::Follow { socket, heartbeat, .. } => {
                let text = tokio::select! {
                    text = next_text(socket) => text?,
                    () = sleep_until(*heartbeat) => {
                        // Sent twice where the caller drops this future: it means nothing.
                        socket.send(Message::text("heartbeat")).await.map_err(cut)?;
                        *heartbeat = Instant::now() + HEARTBEAT;
                        return Ok(None);
                    }
                };
                Ok(Some(FeedEvent::Changed(read(&text)?)))
            }
        }
    }

    fn lose(&mut self, error: Error) -> FeedEvent {
        if let Step::Follow { since, .. } = &self.step
            && since.elapsed() >= CALM
        {
            self.backoff.reset();
        }
        let delay = self.backoff.next_delay().unwrap_or(CALM);
        tracing::info!(error = %error, delay_ms = delay.as_millis() as u64, "lost VMAPI's changefeed");
        self.step = Step::Wait(Instant::now() + delay);
        FeedEvent::Lost(error)
    }
}

/// Registers and lists.
async fn begin(http: Http, wanted: Subscription) -> Result<Begun, Error> {
    let registered = tokio::time::timeout(TOTAL_TIMEOUT, register(&http, &wanted)).await;
    let late = |_| Error::timed_out(Phase::Answer, &Method::GET, PATH, TOTAL_TIMEOUT);
    let socket = registered.map_err(late)??;
    // What is published meanwhile waits in the connection.
    Ok((socket, records::list(&http, &wanted.listing).await?))
}

async fn register(http: &Http, wanted: &Subscription) -> Result<Socket, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    if let Ok(key) = HeaderValue::from_str(&generate_key()) {
        headers.insert(header::SEC_WEBSOCKET_KEY, key);
    }
    let io = http.upgrade(Call::get(&["changefeeds"]), headers).await?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, Some(config)).await;
    let registration = serde_json::json!({
        "instance": wanted.instance,
        "service": wanted.service,
        "changeKind": { "resource": "vm", "subResources": wanted.sub_resources },
    });
    socket.send(Message::text(registration.to_string())).await.map_err(cut)?;
    let text = next_text(&mut socket).await?;
    match serde_json::from_str::<Value>(&text) {
        Ok(answer) if answer.get("bootstrapRoute").is_some() => Ok(socket),
        _ => Err(unexpected("the answer to a registration", &text)),
    }
}

/// Cancel-safe: what came of a message stays in the socket.
async fn next_text(socket: &mut Socket) -> Result<String, Error> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(cut(error)),
            None => return Err(Error::broken(&Method::GET, PATH, "the feed ended")),
        }
    }
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "changeKind")]
    kind: Kind,
    #[serde(rename = "changedResourceId")]
    id: String,
    #[serde(rename = "resourceObject", default)]
    object: Map<String, Value>,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "subResources")]
    sub_resources: Vec<String>,
}

fn read(text: &str) -> Result<Change, Error> {
    let item: Item =
        serde_json::from_str(text).map_err(|e| unexpected("a change", text).with_source(e))?;
    Ok(Change {
        uuid: uuid_value(&item.id),
        sub_resources: item.kind.sub_resources,
        vm: item.object,
    })
}

fn cut(error: tokio_tungstenite::tungstenite::Error) -> Error {
    Error::broken(&Method::GET, PATH, error.to_string()).with_source(error)
}

fn unexpected(what: &str, text: &str) -> Error {
    Error::protocol(&Method::GET, PATH, None, what, text.as_bytes())
}
