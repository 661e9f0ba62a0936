// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Listeners and readers of a node's vminfod over all its starts. They check the promises of the
//! stream (V1–V4, V8, V12) at each line and those of a barrier (V5) at each barrier.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::Request;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::vminfod::{Lines, VmObject};
use serde_json::Value;
use tokio::time::Instant;
use vminfod::http::Api;

use super::bugs::Bug;
use super::changes::Objects;
use super::node::Cn;
use super::truth::{Life, Truth};
use super::wire::NodeWire;
use crate::changes::history::{History, Listener, State};
use crate::changes::same_vms;
use simnode::Node;

/// What was told under each epoch.
pub type Histories = Arc<Mutex<HashMap<String, History>>>;

/// Where the listener that never stalls is, and whether the other stalls.
#[derive(Debug, Default)]
pub struct Place {
    epoch: String,
    seq: u64,
    listens: bool,
    stalled: bool,
}

/// Shared by the two listeners of a node.
pub type Places = Arc<Mutex<Place>>;

fn place(places: &Places) -> MutexGuard<'_, Place> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener for ever; `lazy` ones stall and leave.
pub struct Watching {
    /// The node it hears of.
    pub node: Node,
    /// Where it listens.
    pub wire: NodeWire,
    /// What all listeners of the node were told.
    pub histories: Histories,
    /// Where the two listeners are.
    pub places: Places,
    /// Where broken promises go.
    pub truth: Truth,
    pub seed: u64,
    /// It stalls, then leaves.
    pub lazy: bool,
    /// A deliberate bug of the stream.
    pub bug: Option<Bug>,
}

/// `GET` in process: the status and the body as it comes.
async fn get(api: &Api, target: &str) -> (u16, BoxStream<'static, Bytes>) {
    let mut request = Request::new(String::new());
    *request.uri_mut() = target.parse().unwrap_or_default();
    let (parts, body) = api.clone().answer(request).await.into_parts();
    let body = body.into_data_stream().filter_map(|piece| async { piece.ok() });
    (parts.status.as_u16(), body.boxed())
}

impl Watching {
    /// Listens until the world ends.
    pub async fn run(self) {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut listener = Listener::default();
        let mut objects = Objects::default();
        loop {
            let Some(api) = self.wire.api() else {
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            };
            let resume = !listener.epoch.is_empty();
            let target = match resume {
                true => format!("/events?epoch={}&since={}", listener.epoch, listener.seq),
                false => "/events".to_owned(),
            };
            match get(&api, &target).await {
                (200, body) => {
                    listener.connect(resume);
                    self.follow((&mut listener, &mut objects), body, &mut rng).await;
                    if !self.lazy {
                        place(&self.places).listens = false;
                    }
                }
                // It is told: a fresh snapshot is due.
                (410, _) if resume => listener = Listener::default(),
                (status, _) => {
                    self.truth.fault("V1", format!("{target} is answered with {status}"));
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(1..2000))).await;
        }
    }

    async fn follow(
        &self,
        (listener, objects): (&mut Listener, &mut Objects),
        mut body: BoxStream<'static, Bytes>,
        rng: &mut StdRng,
    ) {
        let mut lines = Lines::new(64 << 20);
        let mut patience: u32 = rng.random_range(5..60);
        while let Some(piece) = body.next().await {
            lines.push(&piece);
            while let Ok(Some(line)) = lines.next_line() {
                self.judge(listener, objects, &line, rng);
                patience = patience.saturating_sub(1);
            }
            if !self.lazy {
                self.arrive(listener).await;
            }
            if self.lazy && lines.pending() == 0 {
                if patience == 0 {
                    return;
                }
                if rng.random_range(0..4_u8) == 0 {
                    place(&self.places).stalled = true;
                    tokio::time::sleep(Duration::from_millis(rng.random_range(1..30_000))).await;
                    place(&self.places).stalled = false;
                }
            }
        }
        if lines.pending() > 0 {
            self.truth.fault("V1", "a stream ended inside a line");
        }
    }

    /// The listener that never stalls has taken all that came.
    async fn arrive(&self, listener: &Listener) {
        while self.bug == Some(Bug::StallEverybody) && place(&self.places).stalled {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let mut here = place(&self.places);
        here.epoch.clone_from(&listener.epoch);
        (here.seq, here.listens) = (listener.seq, true);
    }

    fn judge(&self, listener: &mut Listener, objects: &mut Objects, line: &[u8], rng: &mut StdRng) {
        let mut kind = serde_json::from_slice::<Value>(line).unwrap_or(Value::Null);
        let named = kind["zonename"].as_str().unwrap_or_default().to_owned();
        let named = named.as_str();
        let unlucky = rng.random_range(0..8_u8) == 0 && kind["type"] == "modify";
        if unlucky && self.bug == Some(Bug::SkipEvent) {
            return;
        }
        if unlucky && self.bug == Some(Bug::RepeatEvent) {
            self.take(listener, line);
        }
        if unlucky && self.bug == Some(Bug::FalseDelete) {
            self.judge_delete(named);
        }
        if kind["type"] == "delete" {
            self.judge_delete(named);
        }
        self.judge_removals(named, &kind["changes"]);
        self.take(listener, line);
        if !self.lazy {
            let changes = kind["changes"].as_array().into_iter().flatten();
            let paths: Vec<_> =
                changes.filter_map(|change| change["prettyPath"].as_str()).collect();
            let kind = kind["type"].as_str().unwrap_or_default();
            self.truth.note(format!("event {} {kind} {named} {}", listener.seq, paths.join(" ")));
        }
        if let (true, Some(changes)) = (unlucky, kind["changes"].as_array_mut())
            && self.bug == Some(Bug::DropAChange)
        {
            changes.pop();
        }
        if let Err(what) = objects.take(&kind) {
            self.truth.fault("V3", what);
        }
        if let Some(api) = self.wire.api() {
            let shown = api.published.snapshot().seq;
            let told = listener.seq + u64::from(unlucky && self.bug == Some(Bug::TellBeforeCommit));
            if *api.published.epoch == *listener.epoch && shown < told {
                self.truth.fault("V2", format!("event {told} is told, event {shown} is shown"));
            }
        }
    }

    fn take(&self, listener: &mut Listener, line: &[u8]) {
        let told = listener.take(line).and_then(|digest| {
            let mut all = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(listener.epoch.clone()).or_default().told(listener.seq, digest)
        });
        if let Err(what) = told {
            self.truth.fault("V1", what);
        }
    }

    /// A VM loses its dataset only when the dataset is gone: half a listing is no listing (#21).
    fn judge_removals(&self, name: &str, changes: &Value) {
        let removed = |change: &Value| {
            change["prettyPath"] == "zfs_filesystem" && change["action"] == "removed"
        };
        if changes.as_array().into_iter().flatten().any(removed)
            && self.node.datasets().is_ok_and(|all| all.get(&format!("zones/{name}")).is_some())
        {
            self.truth.fault("V6", format!("{name} loses its dataset, which is there"));
        }
    }

    /// Only a VM that went may be told as deleted.
    fn judge_delete(&self, name: &str) {
        let is_here = self.truth.life(name) == Some(Life::On(self.node.cn_uuid().to_owned()));
        if is_here && !self.truth.has_vanished(name) {
            self.truth.fault("V8", format!("a delete of {name}, which is there"));
        }
    }
}

/// V12: whatever the other listener does, one that reads has heard of everything that was shown a
/// moment ago.
pub async fn keeps_up(wire: &NodeWire, places: &Places, truth: &Truth) {
    let Some(api) = wire.api() else { return };
    let shown = api.published.snapshot().seq;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let here = place(places);
    if here.listens && here.epoch == *api.published.epoch && here.seq < shown {
        truth.fault("V12", format!("event {} is the last one heard, {shown} is shown", here.seq));
    }
}

/// V5: what `sync=true` answers is what is there, and what every later read has.
pub async fn barrier(cn: &Cn, name: &str, truth: &Truth, bug: Option<Bug>) {
    let Some(api) = cn.wire.api() else { return };
    let sync = if bug == Some(Bug::StaleBarrier) { "" } else { "?sync=true" };
    let read = async |target: String| {
        let (status, body) = get(&api, &target).await;
        let text = body.collect::<Vec<Bytes>>().await.concat();
        (status, serde_json::from_slice::<VmObject>(&text).unwrap_or_default())
    };
    let (status, told) = read(format!("/vms/{name}{sync}")).await;
    if status == 503 || cn.wire.api().is_none() {
        return;
    }
    let Ok(fresh) = cn.load().await else { return };
    let there = fresh.iter().find(|vm| vm.get("zonename").is_some_and(|zone| zone == name));
    let broken = |what: String| truth.fault("V5", what);
    let Some(there) = there else {
        return broken(format!("{name} is answered with {status}, a load finds nothing"));
    };
    if let Err(what) = same_vms(std::slice::from_ref(&told), std::slice::from_ref(there)) {
        return broken(format!("after the barrier ({status}): {what}"));
    }
    let (_, later) = read(format!("/vms/{name}")).await;
    if later != told {
        broken(format!("{name} is another than the barrier answered"));
    }
}

/// What a reader of `/vms` sees is what listeners were told, at once and whatever hangs.
pub async fn read(wire: &NodeWire, histories: &Histories, truth: &Truth, bug: Option<Bug>) {
    let Some(api) = wire.api() else { return };
    let began = Instant::now();
    if bug == Some(Bug::LeakATask) {
        tokio::spawn(std::future::pending::<()>());
    }
    if bug == Some(Bug::ReadersWait) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let seq = api.published.snapshot().seq;
    let (status, body) = get(&api, "/vms").await;
    let text: Vec<u8> = body.collect::<Vec<Bytes>>().await.concat();
    if began.elapsed() > Duration::ZERO {
        truth.fault("V11", format!("a reader waited {:?}", began.elapsed()));
    }
    let state = State::of_list(&String::from_utf8_lossy(&text));
    match state {
        Ok(state) if status == 200 => {
            if api.published.snapshot().seq != seq {
                return;
            }
            let mut all = histories.lock().unwrap_or_else(PoisonError::into_inner);
            let history = all.entry(api.published.epoch.to_string()).or_default();
            if let Err(what) = history.told(seq, state.digest()) {
                truth.fault("V2", format!("/vms: {what}"));
            }
        }
        Ok(_) => truth.fault("V2", format!("/vms is answered with {status}")),
        Err(what) => truth.fault("V2", format!("/vms: {what}")),
    }
}
