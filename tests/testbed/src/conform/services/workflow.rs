// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The workflows of a recording, and what its runner did: nobody runs the jobs of the mock, so that how far one
//! is when the recording shows it is set from there.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mocks::workflow::Server;
use serde_json::{Map, Value, json};

use super::replay::{Memory, World};
use crate::conform::transcript::{Asked, Exchange, Group, UnknownStep};
use crate::conform::wire::exchange;

pub(super) struct Jobs(Server);

impl World for Jobs {
    const KIND: &'static str = "workflow";

    async fn begin(_: &Group) -> anyhow::Result<Self> {
        Ok(Jobs(Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?))
    }

    fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    async fn change(&mut self, change: &Value, group: &Group) -> anyhow::Result<()> {
        match (change["do"].as_str(), change["workflows"].as_object()) {
            (None, Some(named)) => self.workflows(named, group),
            // The exchange after it shows what was reached.
            (Some("wait"), _) => {}
            (Some("POST /jobs"), _) => self.order(change, group).await?,
            _ => return Err(UnknownStep(change.clone()).into()),
        }
        Ok(())
    }

    fn before(&mut self, one: &Exchange, memory: &Memory) {
        let path = memory.ours(&one.request.path);
        let mut parts = path.trim_start_matches('/').split('/');
        let (Some("jobs"), Some(uuid), step) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        let Some(shown) = one.response.body.as_ref().filter(|it| it["chain_results"].is_array())
        else {
            return;
        };
        let Some(job) = self.0.store().get(uuid) else { return };
        let reached = match step {
            Some("cancel") if job["execution"] != "canceled" => &json!("running"),
            Some(_) => return,
            None => &shown["execution"],
        };
        let count = |job: Option<&Value>| job.and_then(Value::as_array).map(Vec::len);
        if job.get("execution") != Some(reached)
            || count(job.get("chain_results")) != count(shown.get("chain_results"))
        {
            self.go_on(uuid, reached, shown);
        }
    }
}

impl Jobs {
    fn go_on(&self, uuid: &str, reached: &Value, shown: &Value) {
        let results = shown["chain_results"].as_array().map(Vec::as_slice).unwrap_or_default();
        self.0.store().go_on(uuid, reached.as_str().unwrap_or_default(), results);
    }

    /// The workflows that were posted before, under the uuids that they got.
    fn workflows(&self, named: &Map<String, Value>, group: &Group) {
        let posted = group.world["base"]["requests"].as_array().into_iter().flatten();
        for workflow in posted.filter_map(|asked| asked["body"].as_object()) {
            let mut workflow = workflow.clone();
            let name = workflow.get("name").and_then(Value::as_str).unwrap_or_default();
            if let Some(uuid) = named.get(name) {
                workflow.insert("uuid".to_owned(), uuid.clone());
                self.0.store().put_workflow(workflow);
            }
        }
    }

    /// A job that the recorder ordered, of which the lists after it show the rest.
    async fn order(&self, change: &Value, group: &Group) -> anyhow::Result<()> {
        let lists = group.exchanges().filter_map(|one| one.response.body.as_ref()?.as_array());
        let shown = lists.flatten().find(|job| job["uuid"] == change["uuid"]);
        let Some(shown) = shown else { return Err(UnknownStep(change.clone()).into()) };
        let mut body = change["more"].as_object().cloned().unwrap_or_default();
        for name in ["uuid", "workflow", "target", "vm_uuid"] {
            body.insert(name.to_owned(), shown[name].clone());
        }
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let asked = Asked {
            method: "POST".to_owned(),
            path: "/jobs".to_owned(),
            headers: headers.into_iter().collect(),
            body: Some(Value::Object(body)),
            ..Asked::default()
        };
        let done = exchange(self.addr(), &asked).await?;
        anyhow::ensure!(done.is_some_and(|done| done.status == 201), "{change} was refused");
        if shown["execution"] != "queued" {
            self.go_on(shown["uuid"].as_str().unwrap_or_default(), &shown["execution"], shown);
        }
        self.0.store().advance(Duration::from_secs(1));
        Ok(())
    }
}
