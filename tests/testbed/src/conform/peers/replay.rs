// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recorded calls in their order, each against our mock of its peer.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use mocks::faults::{Reply, glob};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::calls::{Call, Calls};
use super::compare::Memory;
use super::world::World;
use crate::conform::services::replay::leave_out;
use crate::conform::tally::Tally;
use crate::conform::transcript::{Group, Step, Transcript};
use crate::volapi::services::Asked;

/// How long a wait for a ticket may be behind the calls that end it.
const LATE: Duration = Duration::from_secs(60);
/// So long before a ticket would have expired its group was recorded.
const BEFORE_MS: i64 = 60_000;
const ROWS: &str = include_str!("../../../fixtures/peers-deviations.jsonl");

/// A wait for a ticket that is under way: what is wrong with its answer.
type Wait = JoinHandle<Result<(), String>>;

/// Where ours differs on purpose: for which calls, and why. A row has an id where one call alone is meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Exchange and number of the call.
    id: Option<String>,
    peer: String,
    method: String,
    /// A `*` stands for any text.
    url: String,
    /// The member of the body that differs, or `status`.
    differs: String,
    reason: String,
    #[serde(skip)]
    used: usize,
}

impl Row {
    fn covers(&self, id: &str, call: &Call, error: &str) -> bool {
        self.id.as_ref().is_none_or(|own| own == id)
            && (&self.peer, &self.method) == (&call.peer, &call.method)
            && glob(&self.url, &call.url)
            && error
                .strip_prefix("body.")
                .or_else(|| error.strip_prefix("status").map(|_| error))
                .and_then(|rest| rest.strip_prefix(&self.differs))
                .is_some_and(|rest| rest.starts_with([':', '.', '[']))
    }
}

/// Replays all of them, group by group.
pub(super) async fn replay(transcript: &Transcript, calls: &Calls) -> anyhow::Result<Tally> {
    let rows = ROWS.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    let rows = rows.collect::<anyhow::Result<Vec<Row>>>()?;
    let mut ledger = Ledger { rows, tally: Tally::default(), of_cnapi: 0 };
    let groups = transcript.groups.iter();
    let whole = groups.clone().filter_map(|group| expiry(group, calls)).min();
    for group in groups {
        ledger.tally.begins(group);
        let played = play(group, calls, whole, &mut ledger).await;
        leave_out(&group.name, played, &mut ledger.tally)?;
    }
    Ok(ledger.done())
}

/// What came of the calls so far.
struct Ledger {
    rows: Vec<Row>,
    tally: Tally,
    of_cnapi: usize,
}

impl Ledger {
    fn enter(&mut self, id: &str, call: &Call, result: Result<(), String>) {
        if call.peer == "cnapi" {
            // The services' stand-in was kinder than CNAPI, whose own recording is the judge.
            self.of_cnapi += 1;
            return;
        }
        let place = format!("{id} {} {} {}", call.peer, call.method, call.url);
        let error = result.err();
        let covering =
            |error: &String| self.rows.iter().position(|row| row.covers(id, call, error));
        match error.as_ref().and_then(covering) {
            Some(at) => {
                self.rows[at].used += 1;
                self.tally.passed += 1;
            }
            None => self.tally.case(&place, error.as_slice()),
        }
    }

    fn done(mut self) -> Tally {
        for row in self.rows.iter().filter(|row| row.used > 0) {
            let said =
                format!("{} calls are answered otherwise on purpose: {}", row.used, row.reason);
            self.tally.notes.push(said);
        }
        let of_cnapi = self.of_cnapi;
        self.tally.notes.push(format!("{of_cnapi} calls of CNAPI are judged by conform cnapi"));
        self.tally
    }
}

/// When the first ticket of a group would have expired.
fn expiry(group: &Group, calls: &Calls) -> Option<jiff::Timestamp> {
    let all = group.exchanges().flat_map(|one| {
        let of = [calls.before.get(&one.id), calls.of.get(&one.id)];
        of.into_iter().flatten().flatten()
    });
    all.filter_map(|call| call.body["expires_at"].as_str().and_then(time)).min()
}

/// A time in ISO, or as a JavaScript date shows itself.
fn time(text: &str) -> Option<jiff::Timestamp> {
    let date = text.split(" GMT").next().unwrap_or_default();
    let shown = || {
        let at = jiff::civil::DateTime::strptime("%a %b %d %Y %H:%M:%S", date).ok()?;
        Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    };
    text.parse().ok().or_else(shown)
}

/// The time is the recording's: before the first ticket of the group would have expired, as none had; of a group
/// without tickets, that of the whole recording.
async fn play(
    group: &Group,
    calls: &Calls,
    whole: Option<jiff::Timestamp>,
    ledger: &mut Ledger,
) -> anyhow::Result<()> {
    let first = expiry(group, calls).or(whole).unwrap_or_default();
    let world = World::begin(&group.world, first.as_millisecond() - BEFORE_MS)?;
    let mut memory = Memory::default();
    for step in &group.steps {
        match step {
            Step::World(change) => world.change(change).await?,
            Step::Published(_) => {}
            Step::Exchange(one) => {
                for (kind, recorded) in [("before ", &calls.before), ("", &calls.of)] {
                    let recorded = recorded.get(&one.id).map(Vec::as_slice).unwrap_or_default();
                    let name = format!("{kind}{}", one.id);
                    exchange(&world, &mut memory, &name, recorded, ledger).await;
                }
            }
        }
    }
    Ok(())
}

/// Replays the calls of one exchange. A wait for a ticket may be answered after later calls, as it was.
async fn exchange(
    world: &World,
    memory: &mut Memory,
    name: &str,
    recorded: &[Call],
    ledger: &mut Ledger,
) {
    let mut waits: Vec<(String, &Call, Wait)> = Vec::new();
    for (at, call) in recorded.iter().enumerate() {
        let id = format!("{name}/{}", at + 1);
        let Some(status) = call.status else { continue };
        let url = memory.ours(&call.url);
        let asked = Asked { peer: &call.peer, method: &call.method, url: &url, body: &call.body };
        world.services.prepare(asked);
        let (mock, request) = (world.services.mock(&call.peer), request(call, &url));
        if call.peer == "cnapi" && call.url.ends_with("/wait") {
            let wait = async move {
                let (got, body) = answer(mock.handle(request).await)?;
                head(status, got, &body)
            };
            waits.push((id, call, tokio::spawn(wait)));
            tokio::task::yield_now().await;
            continue;
        }
        let result = match answer(mock.handle(request).await) {
            Ok((got, body)) => {
                let want = call.response.clone().unwrap_or_default();
                memory.learn(&want, &body);
                world.services.settle(asked, &body);
                world.name(call, &body);
                head(status, got, &body).and_then(|()| match call.response {
                    Some(_) => memory.body(&call.peer, &want, &body),
                    None => Ok(()),
                })
            }
            Err(error) => Err(error),
        };
        ledger.enter(&id, call, result);
    }
    for (id, call, wait) in waits {
        let result = match tokio::time::timeout(LATE, wait).await {
            Ok(done) => done.unwrap_or_else(|error| Err(error.to_string())),
            Err(_) => Err("it still waits after all calls".to_owned()),
        };
        ledger.enter(&id, call, result);
    }
}

fn request(call: &Call, url: &str) -> http::Request<Bytes> {
    let builder = http::Request::builder().method(call.method.as_str()).uri(url);
    let builder = builder.header("content-type", "application/json");
    let body = if call.body.is_null() { Bytes::new() } else { Bytes::from(call.body.to_string()) };
    // A recorded method and address are valid ones; a mock refuses the empty request.
    builder.body(body).unwrap_or_default()
}

fn answer(reply: Reply) -> Result<(u16, Value), String> {
    match reply {
        Reply::Full(response) => {
            let body = serde_json::from_slice(response.body()).unwrap_or_default();
            Ok((response.status().as_u16(), body))
        }
        _ => Err("the connection closed".to_owned()),
    }
}

fn head(want: u16, got: u16, body: &Value) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("status: expected {want}, got {got} {body}")) }
}
