// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The nodes of a recording of CNAPI, and what their agents and VMAPI answered.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mocks::cnapi::{Order, Server, Store, TaskError};
use serde_json::{Map, Value, json};

use super::compare;
use crate::conform::reply::Response;
use crate::conform::services::replay::{Memory, World};
use crate::conform::transcript::{Asked, Exchange, Group, UnknownStep};
use crate::conform::wire::exchange;

/// What was recorded was recorded on this day.
const DAY: &str = "2026-11-25T20:00:00Z";
/// An order of the group of tasks takes so long, where its end is waited for.
const TAKES: Duration = Duration::from_millis(1200);
/// After this a node without heartbeats is not running.
const SILENT: Duration = Duration::from_secs(16);

/// By then what the nodes told at first is written.
const WRITTEN: Duration = Duration::from_secs(1);

/// What the agents will answer, in the order of the orders.
type Answers = Arc<Mutex<VecDeque<Result<Value, TaskError>>>>;

/// The mock with its nodes.
pub(super) struct Nodes {
    server: Server,
    has_vmapi: Arc<AtomicBool>,
    fails_overprovision: Arc<AtomicBool>,
    /// A race is just over: who won it is open.
    raced: bool,
    /// How many entries the last list had.
    listed: usize,
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn asked(method: &str, path: &str, body: Value) -> Asked {
    let json = ("content-type".to_owned(), "application/json".to_owned());
    Asked {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: [json].into(),
        body: Some(body),
        ..Asked::default()
    }
}

impl World for Nodes {
    const KIND: &'static str = "cnapi";

    async fn begin(group: &Group) -> anyhow::Result<Self> {
        let now = DAY.parse::<jiff::Timestamp>()?.as_millisecond();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::with_store(here, Store::at(now)).await?;
        let answers: Answers = Arc::new(Mutex::new(answers(group)));
        let (has_vmapi, fails) =
            (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let base = &group.world["base"];
        let store = server.store();
        let takes = if group.name == "tasks" { TAKES } else { Duration::ZERO };
        store.set_hands(hands(&answers, &fails, takes));
        let vms: Vec<Map<String, Value>> =
            base["peer_vms"].as_array().into_iter().flatten().map(object).collect();
        let (vms, is_there) =
            (if group.has_base { vms } else { Vec::new() }, Arc::clone(&has_vmapi));
        store.set_vms(Arc::new(move || is_there.load(Ordering::SeqCst).then(|| vms.clone())));
        let unknown = group.world["unknown"].as_str().unwrap_or_default().to_owned();
        store.set_images(Arc::new(move |image| image != unknown));
        let nodes =
            Nodes { server, has_vmapi, fails_overprovision: fails, raced: false, listed: 0 };
        let known = known_at_first(group);
        if group.has_base || !known.is_empty() {
            for request in base["requests"].as_array().into_iter().flatten() {
                let path = request["path"].as_str().unwrap_or_default();
                if !group.has_base && !known.iter().any(|uuid| path.contains(uuid.as_str())) {
                    continue;
                }
                nodes.done(&asked("POST", path, request["body"].clone())).await?;
            }
        }
        if group.has_base {
            // One that is not set up is not running about 90 s after the start either.
            let silent = base["one_heartbeat_then_none"].as_array().into_iter().flatten();
            let silent = silent.chain(not_set_up(base));
            for server in silent.filter_map(Value::as_str) {
                nodes
                    .done(&asked("POST", &format!("/servers/{server}/events/heartbeat"), json!({})))
                    .await?;
            }
            nodes.server.store().advance(SILENT);
        }
        nodes.server.store().advance(WRITTEN);
        Ok(nodes)
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    async fn change(&mut self, change: &Value, group: &Group) -> anyhow::Result<()> {
        let unknown = || Err(UnknownStep(change.clone()).into());
        let letter =
            |name: &Value| group.world["servers"][name.as_str().unwrap_or_default()].clone();
        match change["do"].as_str().unwrap_or_default() {
            "heartbeats" => {
                let server = letter(&change["server"]);
                let path =
                    format!("/servers/{}/events/heartbeat", server.as_str().unwrap_or_default());
                self.done(&asked("POST", &path, json!({}))).await
            }
            "heartbeats stop" | "wait until running" => Ok(()),
            "wait until not running" => {
                self.server.store().advance(SILENT);
                Ok(())
            }
            "peer" => match (
                change["conf"]["vmapi"].as_str(),
                &change["conf"]["server_overprovision_ratio"],
            ) {
                (Some(how), _) => {
                    self.has_vmapi.store(how == "normal", Ordering::SeqCst);
                    Ok(())
                }
                (None, Value::String(_)) => {
                    self.fails_overprovision.store(true, Ordering::SeqCst);
                    Ok(())
                }
                _ => unknown(),
            },
            "POST" => {
                let path = change["path"].as_str().unwrap_or_default();
                let body = match change["body"].as_str() {
                    Some("provision ticket of 60000 MiB") => json!({
                        "scope": "vm", "id": group.world["vms"]["new"], "action": "provision",
                        "expires_at": "2099-01-01T00:00:00.000Z",
                        "extra": { "max_physical_memory": 60000, "cpu_cap": 100, "quota": 25 },
                    }),
                    Some(_) => return unknown(),
                    None => change["body"].clone(),
                };
                self.done(&asked("POST", path, body)).await
            }
            "tickets" => self.many(change["made"].as_u64().unwrap_or_default()).await,
            "count of the list before" => {
                let count = change["count"].as_u64().and_then(|it| usize::try_from(it).ok());
                anyhow::ensure!(count == Some(self.listed), "the list had {} entries", self.listed);
                Ok(())
            }
            _ => unknown(),
        }
    }

    fn before(&mut self, one: &Exchange, _memory: &Memory) {
        let store = self.server.store();
        if store.deaths() > 0 {
            store.restart();
        }
        // A ticket was made when the recording says so.
        let queue = one.response.body.as_ref().and_then(|body| body["queue"].as_array()?.last());
        let made =
            queue.and_then(|ticket| ticket["created_at"].as_str()?.parse::<jiff::Timestamp>().ok());
        if let Some(made) = made {
            self.reach(made.as_millisecond());
        }
        let shown = one
            .response
            .body
            .as_ref()
            .and_then(|body| body["updated_at"].as_str()?.parse::<jiff::Timestamp>().ok());
        if let Some(shown) = shown {
            self.reach(shown.as_millisecond() + 500);
        }
    }

    fn compare(
        &mut self,
        one: &Exchange,
        got: Option<&Response>,
        memory: &mut Memory,
    ) -> Result<(), String> {
        if let Some(Value::Array(all)) = got.and_then(Response::json) {
            self.listed = all.len();
        }
        let is_free = std::mem::take(&mut self.raced) && one.request.method == "GET";
        let (want, got) = compare::masked(&one.response, got, is_free)?;
        memory.answer(&want, got.as_ref())
    }

    fn raced(&mut self) {
        self.raced = true;
    }
}

impl Nodes {
    /// The clock shows at least this time.
    fn reach(&self, at_ms: i64) {
        let store = self.server.store();
        let ahead = at_ms.saturating_sub(store.shown_ms());
        if let Ok(ahead @ 1..) = u64::try_from(ahead) {
            store.advance(Duration::from_millis(ahead));
        }
    }

    async fn done(&self, asked: &Asked) -> anyhow::Result<()> {
        let answer = exchange(self.addr(), asked).await?;
        let is_done = answer.as_ref().is_some_and(|answer| answer.status < 300);
        anyhow::ensure!(is_done, "{} {}: {answer:?}", asked.method, asked.path);
        Ok(())
    }

    /// Tickets on the default server, of which the last five are kept.
    async fn many(&self, count: u64) -> anyhow::Result<()> {
        let mut uuids = Vec::new();
        for at in 0..count {
            let body = json!({ "scope": "nfs_volume", "id": format!("many-{at:04}"),
                "expires_at": "2099-01-01T00:00:00.000Z" });
            let made =
                exchange(self.addr(), &asked("POST", "/servers/default/tickets", body)).await?;
            let made = made.and_then(|made| made.json()).unwrap_or_default();
            uuids.extend(made["uuid"].as_str().map(str::to_owned));
        }
        let released = uuids.len().saturating_sub(5);
        for uuid in &uuids[..released] {
            self.done(&asked("PUT", &format!("/tickets/{uuid}/release"), json!({}))).await?;
        }
        Ok(())
    }
}

/// The nodes that a group without the base knows nevertheless: its first list shows them.
fn known_at_first(group: &Group) -> Vec<String> {
    let first = group.exchanges().next().and_then(|one| one.response.body.as_ref()?.as_array());
    let uuids = first.into_iter().flatten().filter_map(|server| server["uuid"].as_str());
    if group.has_base { Vec::new() } else { uuids.map(str::to_owned).collect() }
}

fn not_set_up(base: &Value) -> impl Iterator<Item = &Value> {
    let told = base["requests"].as_array().into_iter().flatten();
    let told = told.map(|asked| &asked["body"]["sysinfo"]).filter(|sysinfo| sysinfo.is_object());
    told.filter(|sysinfo| sysinfo.get("Setup").is_none()).map(|sysinfo| &sysinfo["UUID"])
}

fn hands(answers: &Answers, fails: &Arc<AtomicBool>, takes: Duration) -> mocks::cnapi::Hands {
    let (answers, fails) = (Arc::clone(answers), Arc::clone(fails));
    Arc::new(move |order: Order| {
        let answer = match order.verb.as_str() {
            "overprovision" if fails.load(Ordering::SeqCst) => Err("no disk".into()),
            "overprovision" => Ok(json!({})),
            _ => {
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                answers.pop_front().unwrap_or_else(|| Ok(json!({})))
            }
        };
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            answer
        })
    })
}

/// What the agents answered in a group: a task's end, or the VM that was asked for.
fn answers(group: &Group) -> VecDeque<Result<Value, TaskError>> {
    let exchanges: Vec<&Exchange> = group.exchanges().collect();
    let end = |task: &str| {
        let told = |one: &&&Exchange| {
            let body = one.response.body.as_ref();
            body.is_some_and(|body| body["id"] == task && body["history"].is_array())
        };
        let history = exchanges
            .iter()
            .find(told)
            .and_then(|one| one.response.body.as_ref()?["history"].as_array());
        let event = |name: &str| {
            history
                .into_iter()
                .flatten()
                .find(|it| it["name"] == name)
                .map(|it| it["event"].clone())
        };
        match event("error") {
            Some(error) => Err(error["error"]["message"].as_str().unwrap_or_default().into()),
            None => Ok(event("finish").unwrap_or_else(|| json!({}))),
        }
    };
    let mut answers = VecDeque::new();
    for one in &exchanges {
        let body = one.response.body.clone().unwrap_or_default();
        let is_asked = !one.request.path.contains("/vms/nics/");
        let is_order = is_asked
            && one.request.path.starts_with("/servers/")
            && body.as_object().is_some_and(|it| it.len() == 1);
        if let Some(task) = body["id"].as_str().filter(|_| is_order) {
            answers.push_back(end(task));
        } else if is_load(&one.request) {
            answers.extend(loaded(one, &body));
        }
    }
    answers
}

fn is_load(asked: &Asked) -> bool {
    let parts: Vec<&str> = asked.path.trim_start_matches('/').split('/').collect();
    asked.method == "GET" && matches!(parts.as_slice(), ["servers", _, "vms", _])
}

fn loaded(one: &Exchange, body: &Value) -> Option<Result<Value, TaskError>> {
    let message = body["message"].as_str().unwrap_or_default();
    match one.response.status {
        Some(200) => Some(Ok(body.clone())),
        Some(404) if message.starts_with("VM ") => {
            Some(Err(TaskError::no_vm("no such zone configured")))
        }
        Some(500) => {
            let text = message.strip_prefix("posting task to cn-agent: ")?;
            let error = serde_json::from_str::<Value>(text).unwrap_or_default();
            Some(Err(error["error"].as_str().unwrap_or(text).into()))
        }
        _ => None,
    }
}
