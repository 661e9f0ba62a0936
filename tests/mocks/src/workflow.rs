// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock workflow API: the jobs, as somebody else sets their state. Nobody runs them here.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Map, Value, json};

use crate::faults::{self, Listed};
use crate::records::{Keeper, Records, not_found};
use crate::restify;

/// The jobs of a mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Store(Records);

/// A mock workflow API on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without jobs. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}

impl Store {
    /// Adds a job, or changes the fields of the one that has its uuid, as `execution`.
    pub fn put(&self, job: Map<String, Value>) {
        self.0.put(job);
    }

    /// Adds a queued job for these parameters; returns its record.
    pub fn add(&self, params: &Map<String, Value>) -> Map<String, Value> {
        let workflow = uuid::Uuid::new_v4().to_string();
        let job = json!({
            "uuid": uuid::Uuid::new_v4().to_string(),
            "execution": "queued",
            "name": workflow,
            "workflow": workflow,
            "target": params.get("target"),
            "created_at": restify::iso(self.0.now_ms()),
            "params": params,
        });
        let job = job.as_object().cloned().unwrap_or_default();
        self.put(job.clone());
        job
    }

    /// Sets how far a job is: `queued`, `running`, `succeeded`, `failed`, ….
    pub fn set_execution(&self, uuid: &str, execution: &str) {
        let fields = json!({ "uuid": uuid, "execution": execution });
        self.put(fields.as_object().cloned().unwrap_or_default());
    }

    /// A job.
    pub fn get(&self, uuid: &str) -> Option<Map<String, Value>> {
        self.0.get(uuid)
    }

    /// Drops all jobs.
    pub fn reset(&self) {
        self.0.clear();
    }
}

impl Keeper for Store {
    const SERVER: &'static str = "workflow API";

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds jobs: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the jobs"),
        ("POST", "reset", "drops the jobs; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.0
    }

    fn operate(&self, request: &Request<Bytes>) -> (u16, Value) {
        let path = request.uri().path();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["ping"]) => (200, json!({ "pid": 1 })),
            (&Method::GET, ["jobs"]) => (200, json!(self.0.all())),
            (&Method::POST, ["jobs"]) => match serde_json::from_slice(request.body()) {
                Ok(params) => (201, json!(self.add(&params))),
                Err(why) => {
                    let message = format!("Invalid JSON: {why}");
                    (400, json!({ "code": "InvalidContent", "message": message }))
                }
            },
            (&Method::GET, ["jobs", uuid]) => match self.0.get(uuid) {
                Some(job) => (200, json!(job)),
                None => not_found("Job does not exist"),
            },
            _ => not_found(&format!("{path} does not exist")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdc_clients::Http;
    use sdc_clients::workflow::Workflow;

    use super::*;
    use crate::transport::InProcess;

    #[tokio::test]
    async fn a_job_is_as_somebody_sets_it() {
        let store = Store::default();
        let transport = Arc::new(InProcess::new(store.clone()));
        let http = Http::with_transport("http://workflow.sim", "t/1", transport).unwrap();
        let workflow = Workflow::new(http);
        let added = store.add(&Map::from_iter([("target".to_owned(), json!("/provision-x"))]));
        let uuid = added["uuid"].as_str().unwrap();
        let job = workflow.get_job(uuid).await.unwrap();
        assert_eq!((&*job.execution, job.target.as_deref()), ("queued", Some("/provision-x")));
        store.set_execution(uuid, "failed");
        assert!(workflow.get_job(uuid).await.unwrap().is_over());
        assert!(workflow.get_job("nope").await.unwrap_err().is_not_found_resource());
    }
}
