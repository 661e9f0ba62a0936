// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The changefeed: what was written is published to the registered listeners, every two seconds
//! (`docs/contract/vmapi.md` §4, `docs/contract/napi.md` §9).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use sdc_clients::http::Duplex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::differing::differing;
use super::record::Record;

/// How often the publisher looks for what was written.
const POLL: Duration = Duration::from_secs(2);
/// Items that are kept; a listener that misses some is cut off.
const MOST_ITEMS: usize = 4096;

/// The feed of one mock. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    start: Instant,
    /// Milliseconds since 1970 at the start.
    start_ms: i64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Value>,
    /// How many items were dropped before the first that is kept.
    dropped: usize,
    /// How often the publisher looks, if not as the real one.
    every: Option<Duration>,
    /// How many items there were at the last poll, and when that was.
    polled: (usize, u64),
    /// The registration of each instance: a later one takes the place of an earlier one, which then hears
    /// nothing.
    listeners: BTreeMap<String, Registered>,
    registered: u64,
}

#[derive(Debug)]
struct Registered {
    registration: Value,
    serial: u64,
    stop: CancellationToken,
}

impl State {
    fn count(&self) -> usize {
        self.dropped + self.items.len()
    }
}

impl Default for Feed {
    fn default() -> Self {
        let start_ms = jiff::Timestamp::now().as_millisecond();
        Self { start: Instant::now(), start_ms, state: Arc::default() }
    }
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks this often from now on.
    pub(super) fn publish_every(&self, every: Duration) {
        self.state().every = Some(every);
    }

    /// Notes a write.
    pub(super) fn wrote(&self, old: Option<&Record>, new: &Record) {
        let item = json!({
            "changeKind": { "resource": "vm", "subResources": differing(old, new) },
            "changedResourceId": new.get("uuid"),
            "published": "no",
            "resourceObject": new,
        });
        self.poll();
        let mut state = self.state();
        state.items.push_back(item);
        if state.items.len() > MOST_ITEMS {
            state.items.pop_front();
            state.dropped += 1;
        }
    }

    /// What was noted, oldest first.
    pub(super) fn items(&self) -> Vec<Value> {
        self.state().items.iter().cloned().collect()
    }

    /// Forgets what was noted.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.dropped += state.items.len();
        state.items.clear();
    }

    /// The listeners, as `/changefeeds/stats` shows them.
    pub(super) fn stats(&self) -> Value {
        let state = self.state();
        let shown = state.listeners.iter();
        let shown: serde_json::Map<_, _> =
            shown.map(|(name, it)| (name.clone(), it.registration.clone())).collect();
        json!({ "listeners": shown.len(), "registrations": shown })
    }

    /// Closes the connections of all listeners; they may come back.
    pub(super) fn cut(&self) {
        for it in std::mem::take(&mut self.state().listeners).into_values() {
            it.stop.cancel();
        }
    }

    /// Brings the last poll up to date: what was written before it is not sent to a later listener.
    fn poll(&self) -> u64 {
        let mut state = self.state();
        let every = state.every.unwrap_or(POLL);
        let now = (self.start.elapsed().as_millis() / every.as_millis()) as u64;
        if state.polled.1 < now {
            state.polled = (state.count(), now);
        }
        now
    }

    /// Serves a listener until it goes, or is cut off.
    pub(super) async fn serve(self, resource: Value, io: Box<dyn Duplex>) {
        let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        let Some(Ok(Message::Text(text))) = socket.next().await else { return };
        let Ok(registration) = serde_json::from_str::<Value>(&text) else { return };
        if registration["changeKind"]["resource"] != "vm" {
            // As the real one: a listener of something else waits for ever.
            while let Some(Ok(_)) = socket.next().await {}
            return;
        }
        let stop = CancellationToken::new();
        let instance = registration["instance"].as_str().unwrap_or_default().to_owned();
        let (serial, mut next) = self.register(&instance, &registration, &stop);
        if socket.send(Message::text(resource.to_string())).await.is_err() {
            return;
        }
        loop {
            let polls = u32::try_from(self.poll() + 1).unwrap_or(u32::MAX);
            let tick = self.start + self.state().every.unwrap_or(POLL) * polls;
            tokio::select! {
                () = stop.cancelled() => break,
                came = socket.next() => if !matches!(came, Some(Ok(_))) { break },
                () = sleep_until(tick) => {
                    let Some(items) = self.since(&mut next, &instance, serial) else { break };
                    let texts = items.into_iter().map(|item| Ok(Message::text(item.to_string())));
                    let mut texts = futures_util::stream::iter(texts);
                    if socket.send_all(&mut texts).await.is_err() {
                        break;
                    }
                }
            }
        }
        let mut state = self.state();
        if state.listeners.get(&instance).is_some_and(|it| it.serial == serial) {
            state.listeners.remove(&instance);
        }
    }

    /// Registers a listener; returns its number and the first item that it gets.
    fn register(
        &self,
        instance: &str,
        registration: &Value,
        stop: &CancellationToken,
    ) -> (u64, usize) {
        self.poll();
        let mut state = self.state();
        state.registered += 1;
        let serial = state.registered;
        let it = Registered { registration: registration.clone(), serial, stop: stop.clone() };
        state.listeners.insert(instance.to_owned(), it);
        (serial, state.polled.0)
    }

    /// The items from `next` on that a listener asked for; nothing if some are lost.
    fn since(&self, next: &mut usize, instance: &str, serial: u64) -> Option<Vec<Value>> {
        self.poll();
        let state = self.state();
        let own = state.listeners.get(instance).filter(|it| it.serial == serial);
        let wanted = own.and_then(|it| it.registration["changeKind"]["subResources"].as_array());
        let wants = |item: &&Value| {
            let mut parts = item["changeKind"]["subResources"].as_array().into_iter().flatten();
            parts.any(|part| wanted.is_some_and(|wanted| wanted.contains(part)))
        };
        let skip = next.checked_sub(state.dropped)?;
        let mut items: Vec<Value> = state.items.iter().skip(skip).filter(wants).cloned().collect();
        let elapsed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        let published = self.start_ms.saturating_add(elapsed).to_string();
        items.iter_mut().for_each(|item| item["published"] = json!(published));
        *next = state.count();
        Some(items)
    }
}
