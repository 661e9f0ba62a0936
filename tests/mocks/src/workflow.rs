// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock workflow API: its workflows, and the jobs of them as somebody else sets how far they are. Nobody
//! runs them here.

mod search; // the parameters of GET /jobs

mod jobs; // what a job looks like, and how it goes on

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::faults::{self, Listed};
use crate::records::{Keeper, Records};
use crate::restify::{self, Endpoint};
use crate::router::{Answer, Router, Way};

/// The jobs and workflows of a mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Store {
    jobs: Records,
    workflows: Records,
}

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
        self.jobs.put(job);
    }

    /// Adds a workflow, or changes the fields of the one that has its uuid. A new one gets what each has.
    pub fn put_workflow(&self, mut workflow: Map<String, Value>) {
        for (name, value) in
            [("chain", json!([])), ("max_attempts", json!(10)), ("timeout", json!(3600))]
        {
            workflow.entry(name).or_insert(value);
        }
        for list in ["chain", "onerror"] {
            let tasks = workflow.get_mut(list).and_then(Value::as_array_mut);
            for task in tasks.into_iter().flatten().filter_map(Value::as_object_mut) {
                task.entry("uuid").or_insert_with(|| json!(uuid::Uuid::new_v4().to_string()));
            }
        }
        self.workflows.put(workflow);
    }

    /// Adds a queued job of the workflow of this name, which is made if need be; returns its record.
    pub fn add(&self, workflow: &str, params: &Map<String, Value>) -> Map<String, Value> {
        let named = |it: &Map<String, Value>| it.get("name").is_some_and(|name| name == workflow);
        let known = self.workflows.all().into_iter().find(named).unwrap_or_else(|| {
            let uuid = uuid::Uuid::new_v4().to_string();
            let made = json!({ "uuid": uuid, "name": workflow });
            self.put_workflow(made.as_object().cloned().unwrap_or_default());
            self.workflows.get(&uuid).unwrap_or_default()
        });
        let job = jobs::queued(&known, params, self.jobs.now_ms());
        self.put(job.clone());
        job
    }

    /// Sets how far a job is: `queued`, `running`, `succeeded`, `failed`, ….
    pub fn set_execution(&self, uuid: &str, execution: &str) {
        self.go_on(uuid, execution, &[]);
    }

    /// Sets how far a job is, with the results of the tasks of its chain: each a `name` with a `result` and an
    /// `error`.
    pub fn go_on(&self, uuid: &str, execution: &str, results: &[Value]) {
        let Some(mut job) = self.jobs.get(uuid) else { return };
        jobs::go_on(&mut job, execution, results, self.jobs.now_ms());
        self.jobs.replace(job);
    }

    /// A job.
    pub fn get(&self, uuid: &str) -> Option<Map<String, Value>> {
        self.jobs.get(uuid)
    }

    /// All jobs, in the order in which they were ordered.
    pub fn all(&self) -> Vec<Map<String, Value>> {
        self.jobs.all()
    }

    /// The job that was ordered last.
    pub fn newest(&self) -> Option<Map<String, Value>> {
        self.jobs.all().pop()
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.jobs.advance(by);
    }

    /// Drops all jobs.
    pub fn reset(&self) {
        self.jobs.clear();
    }

    fn order(&self, given: &Map<String, Value>) -> Answer {
        let text = |name: &str| given.get(name).and_then(Value::as_str);
        let Some(wanted) = text("workflow").filter(|it| !it.is_empty()) else {
            return Answer::error(409, "ConflictError", "\"j.workflow\" is required");
        };
        if !restify::is_uuid(wanted) {
            return Answer::storage(
                "getObject expects \"options\" (args[2]) to be a valid options object: \
                 options.req_id should match format \"uuid\"",
            );
        }
        let Some(workflow) = self.workflows.get(wanted) else {
            return Answer::not_found(format!("Workflow with uuid '{wanted}' does not exist"));
        };
        if text("uuid").is_some_and(|uuid| self.jobs.get(uuid).is_some()) {
            let message = "Job has been locked by another runner";
            return Answer::error(412, "PreconditionFailed", message);
        }
        let job = jobs::queued(&workflow, given, self.jobs.now_ms());
        let is_same = |other: &Map<String, Value>| {
            other.get("execution").is_some_and(|it| it == "queued")
                && ["target", "params"].iter().all(|name| other.get(*name) == job.get(*name))
        };
        if job.contains_key("target") && self.jobs.all().iter().any(is_same) {
            let message = "Another job with the same target and params is already queued";
            return Answer::error(409, "InvalidArgument", message);
        }
        self.put(job.clone());
        let uuid = job.get("uuid").and_then(Value::as_str).unwrap_or_default();
        let location = format!("/jobs/{uuid}");
        Answer { status: 201, ..Answer::ok(Value::Object(job)) }.with("location", location)
    }

    /// Answers a request for one job.
    fn of_job(&self, way: &Way, mut job: Map<String, Value>) -> Answer {
        let execution = job.get("execution").and_then(Value::as_str).unwrap_or_default();
        let conflict = |message: &str| Answer::error(409, "ConflictError", message);
        match (way.route, way.method.as_str()) {
            ("/jobs/{uuid?}", _) => {
                job.remove("info");
                return Answer::ok(Value::Object(job));
            }
            ("/jobs/{uuid?}/info", "GET" | "HEAD") => {
                return Answer::ok(job.remove("info").unwrap_or_else(|| json!([])));
            }
            ("/jobs/{uuid?}/info", _) => {
                let said = json!(way.given);
                match job.get_mut("info") {
                    Some(Value::Array(all)) => all.push(said),
                    _ => drop(job.insert("info".to_owned(), json!([said]))),
                }
                self.put(job);
                return Answer::empty(200);
            }
            ("/jobs/{uuid?}/cancel", _) => match execution {
                "succeeded" | "failed" => return conflict("Finished jobs cannot be canceled"),
                _ => drop(job.insert("execution".to_owned(), json!("canceled"))),
            },
            _ if execution != "waiting" => return conflict("Only waiting jobs can be resumed"),
            _ => jobs::resume(&mut job, way.given.get("result"), self.jobs.now_ms()),
        }
        self.put(job.clone());
        job.remove("info");
        Answer::ok(Value::Object(job))
    }
}

impl Keeper for Store {
    const SERVER: &'static str = "SmartDataCenter Workflow API";

    const ROUTER: Router = Router {
        endpoints: &[
            Endpoint::new("/ping", "GET", ()),
            Endpoint::new("/stats", "GET, HEAD", ()),
            Endpoint::new("/workflows", "GET, HEAD, POST", ()),
            Endpoint::new("/workflows/{uuid?}", "GET, HEAD, PUT, DELETE", ()),
            Endpoint::new("/jobs", "GET, HEAD, POST", ()),
            Endpoint::new("/jobs/{uuid?}", "GET, HEAD", ()),
            Endpoint::new("/jobs/{uuid?}/info", "GET, HEAD, POST", ()),
            Endpoint::new("/jobs/{uuid?}/cancel", "POST", ()),
            Endpoint::new("/jobs/{uuid?}/resume", "POST", ()),
        ],
        versions: &[[0, 1, 0]],
        not_acceptable: Some(restify::SERVES),
        names_query: false,
    };

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds jobs: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the jobs"),
        ("POST", "reset", "drops the jobs; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.jobs
    }

    fn operate(&self, way: &Way) -> Option<Answer> {
        Some(match (way.route, way.method.as_str()) {
            ("/ping", _) => Answer::ok(json!({ "pid": std::process::id(), "backend": "up" })),
            ("/workflows", "GET" | "HEAD") => {
                let mut all = self.workflows.all();
                all.retain(|it| {
                    way.query.get("name").is_none_or(|name| it.get("name") == Some(name))
                });
                Answer::ok(json!(all))
            }
            ("/workflows/{uuid?}", "GET" | "HEAD") => match self.workflows.get(&way.id) {
                Some(workflow) => Answer::ok(Value::Object(workflow)),
                None => {
                    Answer::not_found(format!("Workflow with uuid '{}' does not exist", way.id))
                }
            },
            ("/jobs", "POST") => self.order(&way.given),
            ("/jobs", _) => search::found(self.jobs.all(), &way.query).unwrap_or_else(|why| why),
            ("/jobs/{uuid?}", _) if way.id.is_empty() => Answer::storage(
                "getObject expects \"key\" (args[1]) to be a nonempty string: key should NOT be \
                 shorter than 1 characters",
            ),
            (route, _) if route.starts_with("/jobs/") => match self.jobs.get(&way.id) {
                Some(job) => self.of_job(way, job),
                None => Answer::not_found(format!("Job with uuid '{}' does not exist", way.id)),
            },
            _ => Answer::not_kept("workflows are seeded, and nobody counts jobs"),
        })
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
        let params = Map::from_iter([("target".to_owned(), json!("/provision-x"))]);
        let added = store.add("provision", &params);
        let uuid = added["uuid"].as_str().unwrap();
        let job = workflow.get_job(uuid).await.unwrap();
        assert_eq!((&*job.execution, job.target.as_deref()), ("queued", Some("/provision-x")));
        assert_eq!(job.other["name"], "provision");
        let same = store.add("provision", &params);
        assert_eq!(job.other["workflow"], same["workflow"], "one workflow of a name");
        store.set_execution(uuid, "failed");
        assert!(workflow.get_job(uuid).await.unwrap().is_over());
        assert!(workflow.get_job("nope").await.unwrap_err().is_not_found_resource());
    }
}
