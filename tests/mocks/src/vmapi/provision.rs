// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What comes of a job.

use serde_json::{Map, Value, json};

use super::jobs::Order;
use super::record::kept;
use super::store::Store;
use crate::restify::Params;

impl Store {
    /// Returns true if somebody carries out the orders of jobs.
    pub(super) fn runs_jobs(&self) -> bool {
        let work = self.work();
        work.jobs.is_some() && work.hands.is_some()
    }

    /// The jobs of a VM, or of all, that a list is asked for, the newest first.
    pub(super) fn jobs(&self, vm: Option<&str>, query: &Params) -> Value {
        let text = |name: &str| query.get(name).and_then(Value::as_str);
        let is = |job: &Map<String, Value>, name: &str, wanted: Option<&str>| {
            let has = match name {
                "execution" => job.get(name),
                param => job.get("params").and_then(|params| params.get(param)),
            };
            wanted.is_none_or(|wanted| has.is_some_and(|has| has == wanted))
        };
        let mut all = self.work().jobs.as_ref().map(|jobs| jobs.all()).unwrap_or_default();
        all.retain(|job| {
            is(job, "vm_uuid", vm.or(text("vm_uuid")))
                && is(job, "task", text("task"))
                && is(job, "execution", text("execution"))
        });
        all.into_iter().rev().collect()
    }

    /// Starts a job for a VM, if there are jobs and somebody who runs them; returns its uuid in any case.
    pub(super) fn start_job(
        &self,
        verb: &'static str,
        vm_uuid: &str,
        vm: Map<String, Value>,
    ) -> String {
        let (jobs, hands) = {
            let work = self.work();
            (work.jobs.clone(), work.hands.clone())
        };
        let Some(jobs) = jobs else { return uuid::Uuid::new_v4().to_string() };
        let task = match verb {
            "create" => "provision".to_owned(),
            "delete" => "destroy".to_owned(),
            action => action.replace('_', "-"),
        };
        let params =
            json!({ "task": task, "target": format!("/{task}-{vm_uuid}"), "vm_uuid": vm_uuid });
        let job = jobs.add(&task, params.as_object().unwrap_or(&Map::new()));
        let job = job.get("uuid").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(hands) = hands else { return job };
        let stored = self.get(vm_uuid).unwrap_or_default();
        let server = stored.get("server_uuid").and_then(Value::as_str).unwrap_or_default();
        let order = Order { verb, vm_uuid: vm_uuid.to_owned(), server_uuid: server.to_owned(), vm };
        let (store, own) = (self.clone(), job.clone());
        tokio::spawn(async move {
            jobs.set_execution(&own, "running");
            let vm = order.vm_uuid.clone();
            let done = hands(order).await;
            if done.is_err() && verb == "create" {
                store.fail(&vm);
            }
            let (execution, result, error) = match &done {
                Ok(()) => ("succeeded", "OK", ""),
                Err(why) => ("failed", "", why.as_str()),
            };
            let result =
                json!({ "name": format!("cnapi.{verb}"), "result": result, "error": error });
            jobs.go_on(&own, execution, &[result]);
        });
        job
    }

    /// A VM that could not be made.
    fn fail(&self, uuid: &str) {
        let Some(old) = self.get(uuid) else { return };
        let mut vm = old.clone();
        self.end(&mut vm, "failed");
        // Without its storage it stays what it is, as the real one's job would leave it.
        drop(self.write(uuid, Some(&old), kept(&vm)));
    }
}
