// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The gate between one agent and the world. It counts all that passes, and decides where the agent
//! dies, what it reads stale and what it does not see. The requests of a dead agent are held for
//! ever, as those of a killed process. It also checks that the agent writes to no host but its own
//! (I8) and claims no event that it did not receive (V9).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, StatusCode};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::vminfod::Lines;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bugs::Bug;
use super::centre::Centre;
use super::truth::Truth;
use crate::faults::{self, Fault, Moment, Plan};
use mocks::napi::Store;
use mocks::transport::InProcess;
use mocks::vmapi;

/// NAPI's name here.
pub(super) const NAPI: &str = "napi.sim";
pub(super) const VMAPI: &str = "vmapi.sim";

/// What passes between the agent and the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A request, by number.
    Request(usize),
    /// An event, by number.
    Event(usize),
}

/// An agent of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    NetAgent,
    VmAgent,
}

/// A fault at a point, once in a run.
pub type Planned = faults::Planned<Point, Fault<Who>>;

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Node,
    Outside,
}

/// What a replica that lags would answer from.
struct Past {
    napi: Store,
    vmapi: vmapi::Store,
    vms: Bytes,
}

#[derive(Default)]
struct State {
    /// The agent that lives; 0: none.
    living: u64,
    born: u64,
    plan: Plan<Point, Fault<Who>>,
    /// One line for each request so far.
    requests: Vec<String>,
    events: usize,
    /// Requests that are being answered, and when the last one was.
    busy: usize,
    answered: Option<Instant>,
    past: Option<Past>,
    /// The node is not to be seen; and since before the step that was made last.
    blind: (bool, bool),
    /// The stream cannot be resumed.
    forget: bool,
    /// The last event that an agent was given, by epoch.
    given: HashMap<String, u64>,
    memory: PathBuf,
    /// What the memory file held, oldest first.
    memories: Vec<Vec<u8>>,
}

/// The gate of one node's agent, over all its lives.
#[derive(Clone)]
pub struct Gate {
    state: Arc<Mutex<State>>,
    died: Arc<Notify>,
    /// The only host that the agent may write to.
    writes_to: &'static str,
    napi: Store,
    vmapi: vmapi::Store,
    truth: Truth,
    bug: Option<Bug>,
}

/// A request that is being answered.
pub(super) struct Busy(Arc<Mutex<State>>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.busy, state.answered) = (state.busy - 1, Some(Instant::now()));
    }
}

impl Gate {
    /// A gate at which nothing happens, of an agent that writes to this host alone.
    pub(super) fn new(centre: &Centre, writes_to: &'static str) -> Self {
        Self {
            state: Arc::default(),
            died: Arc::default(),
            writes_to,
            napi: centre.napi.clone(),
            vmapi: centre.vmapi.clone(),
            truth: centre.truth.clone(),
            bug: centre.bug,
        }
    }

    /// The only host that the agent may write to.
    pub(super) fn writes_to(&self) -> &'static str {
        self.writes_to
    }

    /// A request is being answered until this is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.state().busy += 1;
        Busy(Arc::clone(&self.state))
    }

    /// How long no request has been under way.
    pub(super) fn idle(&self) -> Duration {
        let state = self.state();
        match state.busy {
            0 => state.answered.map_or(Duration::MAX, |at| at.elapsed()),
            _ => Duration::ZERO,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is to happen.
    pub fn plan(&self, planned: Option<Planned>) {
        self.state().plan = Plan::new(planned.into_iter().collect());
    }

    /// Returns true if the point was reached.
    pub fn happened(&self) -> bool {
        self.state().plan.happened() > 0
    }

    /// The requests so far, one line each, and the number of events.
    pub fn counted(&self) -> (Vec<String>, usize) {
        let state = self.state();
        (state.requests.clone(), state.events)
    }

    /// A new agent lives, and only it: the number of its life.
    pub(super) fn begin(&self, memory: &Path) -> u64 {
        let mut state = self.state();
        state.born += 1;
        state.living = state.born;
        state.memory = memory.to_path_buf();
        state.memories.clear();
        state.living
    }

    /// The deliberate bug of this world.
    pub(super) fn bug(&self) -> Option<Bug> {
        self.bug
    }

    /// The agent is dead from now on.
    pub fn kill(&self) {
        self.state().living = 0;
    }

    /// Waits until an agent has died here. Cancel-safe.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    /// What its memory file held when it died, or, `back`, one write before. The file is looked at with each request:
    /// where several writes were made before the first look, all of them stay, since more than one would be lost.
    pub fn memory(&self, back: bool) -> Option<Vec<u8>> {
        let mut state = self.state();
        state.look_at_memory();
        let newest = state.memories.len().checked_sub(1)?;
        state.memories.get(newest.saturating_sub(usize::from(back))).cloned()
    }

    /// A step is about to be made: this is the past from now on.
    pub fn remember(&self, vms: Bytes) {
        let mut state = self.state();
        state.past = Some(Past { napi: self.napi.fork(), vmapi: self.lagging(), vms });
        state.blind.1 = state.blind.0;
    }

    /// What VMAPI has, for later.
    fn lagging(&self) -> vmapi::Store {
        let lagging = vmapi::Store::default();
        self.vmapi.all().into_iter().for_each(|vm| lagging.put(vm));
        lagging
    }

    /// The agent is about to write: what the service has is the past from now on.
    pub(super) fn remember_writes(&self) {
        let mut state = self.state();
        match &mut state.past {
            Some(past) if self.writes_to == NAPI => past.napi = self.napi.fork(),
            Some(past) => past.vmapi = self.lagging(),
            None => {}
        }
    }

    /// The step is made: what was hidden before it may be looked at now.
    pub fn see(&self) {
        let mut state = self.state();
        if state.blind.1 {
            (state.blind, state.forget) = ((false, false), true);
        }
    }

    /// Whatever is hidden may be looked at.
    pub fn see_all(&self) {
        let mut state = self.state();
        state.blind.1 = state.blind.0;
        drop(state);
        self.see();
    }

    /// A request comes: its number, or none when it is a dead agent's.
    pub(super) fn enter(&self, life: u64, to: To, request: &Request) -> Option<usize> {
        let mut state = self.state();
        if state.living != life {
            return None;
        }
        state.look_at_memory();
        let nth = state.requests.len();
        state.requests.push(format!("{} {}", request.method, request.url));
        let is_stale = state.plan.has(|it| it.fault == Fault::Stale);
        if !is_stale && !state.plan.meet(&Point::Request(nth), Moment::Before).is_empty() {
            drop(state);
            self.die();
            return None;
        }
        drop(state);
        let reads = request.method == Method::GET;
        if !reads && (to == To::Node || request.url.host_str() != Some(self.writes_to)) {
            let what = format!("the agent sends {} {}", request.method, request.url);
            self.truth.fault("I8", what);
        }
        Some(nth)
    }

    fn die(&self) {
        let mut state = self.state();
        state.living = 0;
        drop(state);
        self.died.notify_one();
    }

    /// Returns true if the agent may have the answer that comes back.
    pub(super) fn leave(&self, life: u64, nth: usize) -> bool {
        let mut state = self.state();
        let lives = state.living == life;
        let dies = lives && !state.plan.meet(&Point::Request(nth), Moment::After).is_empty();
        let hears = lives && !dies;
        drop(state);
        if dies {
            self.die();
        }
        hears
    }

    /// What the past answers, if this request is to hear it.
    pub(super) async fn past(
        &self,
        nth: usize,
        to: To,
        request: &Request,
    ) -> Option<Result<Response, Error>> {
        let path = request.url.path().to_owned();
        let service = {
            let mut state = self.state();
            let is_it = |it: &Planned| (it.at, it.fault) == (Point::Request(nth), Fault::Stale);
            if !state.plan.has(is_it) || request.method != Method::GET {
                return None;
            }
            let past = state.past.as_ref()?;
            let found = match (to, request.url.host_str()) {
                (To::Node, _) => Err(past_vms(&past.vms, &path)?),
                (To::Outside, Some(VMAPI)) => Ok(InProcess::new(past.vmapi.clone())),
                (To::Outside, _) => Ok(InProcess::new(past.napi.clone())),
            };
            state.plan.meet(&Point::Request(nth), Moment::Before);
            found
        };
        tokio::time::sleep(Duration::from_millis(5)).await;
        Some(match service {
            Ok(service) => service.send(request.clone()).await,
            Err(answer) => Ok(answer),
        })
    }

    /// Fails where the node is hidden from the agent, or the stream may not be resumed (410).
    pub(super) fn sight(&self, request: &Request) -> Result<(), Option<StreamResponse>> {
        let mut state = self.state();
        if state.blind.0 {
            return Err(None);
        }
        let asked = |key: &str| request.url.query_pairs().find(|(k, _)| k == key).map(|(_, v)| v);
        let (Some(epoch), Some(since)) = (asked("epoch"), asked("since")) else { return Ok(()) };
        if std::mem::take(&mut state.forget) {
            let gone = json!({"code": "Gone", "message": "simulated", "epoch": epoch});
            let body = stream::once(async move { Ok(Bytes::from(gone.to_string())) }).boxed();
            let (status, headers) = (StatusCode::GONE, HeaderMap::new());
            return Err(Some(StreamResponse { status, headers, body }));
        }
        let given = state.given.get(&*epoch).copied().unwrap_or_default();
        let claimed: u64 = since.parse().unwrap_or(u64::MAX);
        let claimed = claimed + u64::from(self.bug == Some(Bug::AdvanceBeforeDelivery));
        if claimed > given {
            self.truth
                .fault("V9", format!("event {claimed} is claimed, {given} was the last given"));
        }
        Ok(())
    }

    /// Returns true if the agent may have this piece of the stream.
    pub(super) fn give(
        &self,
        life: u64,
        lines: &mut Lines,
        epoch: &mut String,
        piece: &Bytes,
    ) -> bool {
        lines.push(piece);
        let mut state = self.state();
        if state.living != life {
            return false;
        }
        while let Ok(Some(line)) = lines.next_line() {
            let Ok(line) = serde_json::from_slice::<Line>(&line) else { continue };
            if let Some(named) = line.epoch {
                *epoch = named;
            }
            if !matches!(line.kind.as_str(), "ready" | "resume") {
                let nth = state.events;
                state.events += 1;
                if !state.plan.meet(&Point::Event(nth), Moment::After).is_empty() {
                    state.blind.0 = true;
                }
            }
            if state.blind.0 {
                return false;
            }
            let given = state.given.entry(epoch.clone()).or_default();
            *given = (*given).max(line.seq.unwrap_or_default());
        }
        true
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    seq: Option<u64>,
    epoch: Option<String>,
}

impl State {
    fn look_at_memory(&mut self) {
        let Ok(now) = std::fs::read(&self.memory) else { return };
        if self.memories.last() != Some(&now) {
            self.memories.push(now);
        }
    }
}

/// vminfod's answer of the past: to `/vms` and `/vms/NAME`.
fn past_vms(vms: &Bytes, path: &str) -> Option<Response> {
    let answer = |status, body: Bytes| Response { status, headers: HeaderMap::new(), body };
    let name = match path.strip_prefix("/vms")? {
        "" | "/" => return Some(answer(StatusCode::OK, vms.clone())),
        rest => rest.strip_prefix('/')?,
    };
    let all: Value = serde_json::from_slice(vms).ok()?;
    let mut all = all.as_array()?.iter();
    Some(match all.find(|vm| vm["uuid"] == name || vm["zonename"] == name) {
        Some(vm) => answer(StatusCode::OK, Bytes::from(vm.to_string())),
        None => {
            let what = json!({"code": "ResourceNotFound", "message": format!("no VM {name}")});
            answer(StatusCode::NOT_FOUND, Bytes::from(what.to_string()))
        }
    })
}
