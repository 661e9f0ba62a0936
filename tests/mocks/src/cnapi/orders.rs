// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Orders for a node, which its agent carries out, and the tasks that tell how that went.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::refusal::{Kind, Params, Refusal, is_uuid, require, word};
use super::store::{DEFAULT, Order, Store, TaskError};
use crate::faults::Action;
use crate::restify::iso;

/// Status and body.
pub(super) type Done = Result<(u16, Option<Value>), Refusal>;

/// A wait without a time, or with one that is none, in seconds.
const USUAL_WAIT: i64 = 3600;
/// From here on a wait ends at once: its milliseconds are more than a timer holds.
const OVERFLOWS: i64 = 2_147_484;

/// What an address asks of a node's agent: its task, the verb, and the VM.
struct Asked<'a> {
    task: &'static str,
    verb: &'a str,
    vm: &'a str,
}

/// The tasks by the last part of the address.
const OF_VM: [(&str, &str); 7] = [
    ("start", "machine_boot"),
    ("stop", "machine_shutdown"),
    ("reboot", "machine_reboot"),
    ("kill", "machine_kill"),
    ("update", "machine_update"),
    ("reprovision", "machine_reprovision"),
    ("migrate", "machine_migrate"),
];

/// Returns true for what can be asked of a VM by its name in the path.
pub(super) fn is_verb(verb: &str) -> bool {
    OF_VM.iter().any(|(known, _)| *known == verb)
}

fn asked<'a>(method: &str, rest: &[&'a str], body: &'a Params) -> Asked<'a> {
    let (task, verb, vm) = match (method, rest) {
        (_, ["nop"]) => ("nop", "nop", ""),
        ("POST", ["vms"]) => ("machine_create", "create", word(body, "uuid")),
        ("DELETE", ["vms", vm]) => ("machine_destroy", "delete", *vm),
        ("GET", ["vms", vm]) => ("machine_load", "load", *vm),
        (_, ["vms", vm, "snapshots"]) => ("machine_create_snapshot", "create_snapshot", *vm),
        (_, ["vms", vm, "snapshots", _]) => ("machine_delete_snapshot", "delete_snapshot", *vm),
        (_, ["vms", vm, "snapshots", _, _]) => {
            ("machine_rollback_snapshot", "rollback_snapshot", *vm)
        }
        (_, ["vms", vm, verb]) => {
            let task = OF_VM.iter().find(|(known, _)| known == verb).map(|(_, task)| *task);
            (task.unwrap_or("nop"), *verb, *vm)
        }
        _ => ("nop", "nop", ""),
    };
    Asked { task, verb, vm }
}

impl Store {
    /// An order: read at once, or the work of a task.
    pub(super) async fn order(
        &self,
        method: &str,
        server: &str,
        rest: &[&str],
        (mut body, query): (Params, Params),
        actions: &[Action],
    ) -> Done {
        self.require(server)?;
        let all: Params = query.clone().into_iter().chain(body.clone()).collect();
        let asked = asked(method, rest, &all);
        if matches!(rest, ["vms", _, ..]) && !is_uuid(asked.vm) {
            return Err(Refusal::argument("Invalid vm_uuid"));
        }
        let is_running = {
            let (nodes, now) = (self.nodes(), self.now_ms());
            nodes.get(server).is_some_and(|node| node.status(now) == "running")
        };
        if server == DEFAULT || !is_running {
            let message = "Operation attempted on server which is not running".to_owned();
            return Err(Refusal::Coded(409, "ServerNotRunning", message));
        }
        check(asked.verb, &all, |uuid| self.has_image(uuid))?;
        if let ["vms", _, "snapshots", name, ..] = rest {
            body.insert("snapshot_name".to_owned(), json!(name));
        }
        let order = Order {
            server_uuid: server.to_owned(),
            verb: asked.verb.to_owned(),
            vm_uuid: asked.vm.to_owned(),
            body,
            params: query,
        };
        match asked.verb {
            "load" => self.load(order).await,
            _ => Ok((200, Some(json!({ "id": self.start(asked.task, order, actions) })))),
        }
    }

    /// Asks the node for a VM now.
    async fn load(&self, order: Order) -> Done {
        let missing = format!("VM {} not found", order.vm_uuid);
        match self.ask(order).await {
            Ok(Value::Null) => Ok((200, Some(json!({})))),
            Ok(vm) => Ok((200, Some(vm))),
            Err(TaskError { rest_code: Some(code), .. }) if code == "VmNotFound" => {
                Err(Refusal::not_found(missing))
            }
            Err(error) => Err(Refusal::internal(posting(&error))),
        }
    }

    /// Has a node's agent do something.
    pub(super) async fn ask(&self, order: Order) -> Result<Value, TaskError> {
        match self.hands() {
            Some(hands) => hands(order).await,
            None if order.verb == "load" => Err(TaskError::no_vm("no such zone configured")),
            None => Ok(json!({})),
        }
    }

    /// Starts a task; returns its id.
    fn start(&self, name: &str, order: Order, actions: &[Action]) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        let request = json!(uuid::Uuid::new_v4());
        let active = json!({
            "req_id": request, "task": name, "server_uuid": order.server_uuid,
            "status": "active", "timestamp": iso(self.now_ms()),
        });
        self.set_task(&id, fields(&active));
        let failure = actions.iter().find_map(|action| match action {
            Action::FailTask { message } => Some(message.clone()),
            _ => None,
        });
        if !actions.iter().any(|action| matches!(action, Action::HangTask)) {
            let (store, task) = (self.clone(), id.clone());
            tokio::spawn(async move { store.carry_out((&task, &request), order, failure).await });
        }
        id
    }

    async fn carry_out(&self, task: (&str, &Value), order: Order, failure: Option<String>) {
        let before = self.deaths();
        let done = match failure {
            Some(message) => Err(message.into()),
            None => self.ask(order).await,
        };
        if self.deaths() > before {
            // The agent's answer came to a process that is gone: nobody writes it down.
            return;
        }
        let at = iso(self.now_ms());
        let entry =
            |name: &str, event: Value| json!({ "name": name, "timestamp": at, "event": event });
        let (status, history) = match done {
            Ok(event) => ("complete", vec![entry("finish", event)]),
            Err(error) => {
                let event = json!({ "error": { "message": error.text } });
                ("failure", vec![entry("error", event), entry("finish", json!({}))])
            }
        };
        let ended = fields(&json!({ "status": status, "history": history }));
        self.end_task(task.0, task.1, ended);
    }

    /// A task as it is.
    pub(super) fn told(&self, id: &str) -> Done {
        let none = || Refusal::not_found("no such task found");
        let mut task = self.task(id).ok_or_else(none)?;
        let status = task.get("http").and_then(Value::as_u64);
        let status = status.and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
        if task.contains_key("req_id") {
            // It is the one of this request.
            task.insert("req_id".to_owned(), json!(uuid::Uuid::new_v4()));
        }
        Ok((status, Some(Value::Object(task))))
    }

    /// A task once it has ended, or after so many seconds.
    pub(super) async fn told_once_ended(&self, id: &str, query: &Params) -> Done {
        let asked = query.get("timeout").and_then(Value::as_str).and_then(|it| it.parse().ok());
        let seconds = asked.filter(|seconds| *seconds != 0).unwrap_or(USUAL_WAIT);
        let wait = match u64::try_from(seconds) {
            Ok(secs) if seconds < OVERFLOWS => Duration::from_secs(secs),
            _ => Duration::ZERO,
        };
        drop(tokio::time::timeout(wait, self.ended(id)).await);
        self.told(id)
    }
}

/// What CNAPI says where the agent says no.
pub(super) fn posting(error: &TaskError) -> String {
    match error.text.as_str() {
        text if ["socket hang up", "{}"].contains(&text) || text.starts_with("connect ") => {
            format!("posting task to cn-agent: {text}")
        }
        text => format!("posting task to cn-agent: {{\"error\": {}}}", json!(text)),
    }
}

/// Checks the parameters of an order.
fn check(verb: &str, all: &Params, has_image: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    const JOB: (&str, Kind, bool) = ("jobid", Kind::Text, false);
    match verb {
        "load" => Ok(()),
        "create" => {
            require(all, &[("uuid", Kind::Text, true), JOB])?;
            let is_hvm = matches!(word(all, "brand"), "kvm" | "bhyve");
            let disk = all.get("disks").map(|disks| &disks[0]["image_uuid"]);
            let image = if is_hvm { disk } else { all.get("image_uuid") };
            let files = all.get("image").and_then(|image| image["files"].as_array());
            if !image.is_some_and(Value::is_string) || files.is_none_or(Vec::is_empty) {
                return Err(Refusal::Dies);
            }
            let origin = all.get("image").and_then(|image| image["origin"].as_str());
            match origin.filter(|origin| !has_image(origin)) {
                Some(_) => {
                    Err(Refusal::internal("failed to fetch origin manifest: image not found"))
                }
                None => Ok(()),
            }
        }
        "start" | "reboot" => {
            require(all, &[JOB])?;
            let update = all.get("update").and_then(Value::as_object).into_iter().flatten();
            let odd: Vec<&str> = update
                .map(|(name, _)| name.as_str())
                .filter(|it| *it != "set_internal_metadata")
                .collect();
            if odd.is_empty() {
                return Ok(());
            }
            let message = format!(
                "Vm.{verb} update param only allows set_internal_metadata, received: [{}]",
                odd.join(",")
            );
            Err(Refusal::Coded(500, "InvalidArgument", message))
        }
        "reprovision" => require(all, &[("image_uuid", Kind::Text, true), JOB]),
        "migrate" => {
            let task = all.get("migrationTask");
            let of = |name: &str| task.and_then(|task| task.get(name));
            let checks = [
                ("migrationTask", Kind::Object, task),
                ("migrationTask.action", Kind::Text, of("action")),
                ("migrationTask.record", Kind::Object, of("record")),
            ];
            let faults = checks
                .into_iter()
                .filter_map(|(name, kind, value)| Some((name.to_owned(), kind.fault(value)?)));
            let faults: Vec<(String, String)> = faults.collect();
            match faults.is_empty() {
                true => require(all, &[JOB]),
                false => Err(Refusal::Parameters(500, faults)),
            }
        }
        _ => require(all, &[JOB]),
    }
}

fn fields(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
