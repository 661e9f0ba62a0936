// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The workflow API: the jobs that services of the data centre run. Reads only.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     axum::Json(serde_json::json!({ "uuid": "j", "execution": "succeeded" }))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let workflow = sdc_clients::workflow::Workflow::new(sdc_clients::Http::new(&url, "my-service/1.0")?);
//! assert!(workflow.get_job("j").await?.is_over());
//! # Ok(()) }
//! ```

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http};

/// A job: the fields this project reads, and all others as they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The job.
    pub uuid: String,
    /// `queued`, `running`, `executing`, `succeeded`, `failed`, `canceled` or `retried`; an open set of words.
    pub execution: String,
    /// When it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// What it acts on, as `/migrate-<uuid of the VM>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Job {
    /// Returns when it was ordered, if that is a time.
    pub fn ordered_at(&self) -> Option<Timestamp> {
        self.created_at.as_ref()?.parse().ok()
    }

    /// Returns what its last task said of its failure, if it failed and that is known.
    pub fn error(&self) -> Option<String> {
        let last = self.other.get("chain_results")?.as_array()?.last()?.get("error")?;
        let text = last.as_str().or_else(|| last.get("message")?.as_str())?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns true once it has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(&*self.execution, "succeeded" | "failed" | "canceled" | "retried")
    }
}

/// A client of the workflow API.
#[derive(Debug, Clone)]
pub struct Workflow {
    http: Http,
}

impl Workflow {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Workflow {
        Workflow { http }
    }

    /// One job.
    pub async fn get_job(&self, uuid: &str) -> Result<Job, Error> {
        let reply = self.http.execute(Call::get(&["jobs", uuid])).await?;
        let job: Job = reply.json("a job")?;
        if job.uuid != uuid {
            return Err(reply.unexpected(&format!("the job {uuid}")));
        }
        Ok(job)
    }
}
