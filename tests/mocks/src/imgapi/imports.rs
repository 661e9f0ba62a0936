// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Images that other servers have, and the jobs that fetch them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::search::{failed, refused};
use crate::records::Record;
use crate::router::{Answer, Way};
use crate::workflow;

/// How long the job of an import takes.
const JOB_MS: i64 = 1000;
/// A file whose stated checksum is this one does not arrive.
const WRONG_SHA1: &str = "0000000000000000000000000000000000000000";

#[derive(Debug, Default)]
pub(super) struct Imports {
    /// By the address of their server.
    remotes: BTreeMap<String, Vec<Record>>,
    pub(super) owners: Vec<String>,
    pub(super) jobs: Option<(workflow::Store, String)>,
    running: Vec<Import>,
}

/// A job, and what comes of it.
#[derive(Debug)]
struct Import {
    job: String,
    ends: i64,
    /// The image; an error: the job fails with it.
    brings: Result<Record, Value>,
}

impl Imports {
    pub(super) fn add_remote(&mut self, source: &str, image: Record) {
        self.remotes.entry(source.trim_end_matches('/').to_owned()).or_default().push(image);
    }

    /// Answers an order to fetch an image.
    pub(super) fn order(&mut self, way: &Way, is_known: bool, now_ms: i64) -> Answer {
        let uuid = &way.id;
        let source = way.query.get("source").and_then(Value::as_str).unwrap_or_default();
        if source.is_empty() {
            let errors = json!([{ "field": "source", "code": "MissingParameter" }]);
            return failed("missing source parameter", errors);
        }
        if is_known {
            return refused(
                409,
                "ImageUuidAlreadyExists",
                format!("image uuid \"{uuid}\" already exists"),
            );
        }
        let at = source.trim_end_matches('/');
        let is_it = |image: &&Record| image.get("uuid").is_some_and(|own| own == uuid);
        let why = match self.remotes.get(at) {
            Some(has) => match has.iter().find(is_it) {
                Some(image) => return self.start(way, image.clone(), now_ms),
                None => format!("image {uuid} not found"),
            },
            None => format!("connect ECONNREFUSED {}", place(at)),
        };
        let message = format!("Unable to get manifest for image {uuid}. Error from remote: {why}");
        refused(503, "RemoteSourceError", message)
    }

    fn start(&mut self, way: &Way, mut image: Record, now_ms: i64) -> Answer {
        image.remove("source");
        let owner = image.get("owner").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_trusted = way.query.get("skip_owner_check").is_some_and(|it| it == "true");
        let files = image.get("files").and_then(Value::as_array).into_iter().flatten();
        let is_damaged = files.into_iter().any(|file| file["sha1"] == WRONG_SHA1);
        let brings = if !is_trusted && !self.owners.contains(&owner) {
            Err(json!({ "name": "OwnerDoesNotExistError", "restCode": "OwnerDoesNotExist",
                "message": format!("owner \"{owner}\" does not exist") }))
        } else if is_damaged {
            Err(json!({ "name": "DownloadError", "restCode": "Download",
                "message": format!("\"sha1\" file field, {WRONG_SHA1}, does not match the downloaded file") }))
        } else {
            Ok(image)
        };
        let params =
            json!({ "target": format!("/import-remote-image-{}", way.id), "image_uuid": way.id });
        let (job, url) = match &self.jobs {
            Some((jobs, url)) => {
                let params = params.as_object().cloned().unwrap_or_else(Map::new);
                let job = jobs.add("import-remote-image", &params);
                let uuid = job.get("uuid").and_then(Value::as_str).unwrap_or_default();
                (uuid.to_owned(), url.clone())
            }
            None => (uuid::Uuid::new_v4().to_string(), String::new()),
        };
        self.running.push(Import { job: job.clone(), ends: now_ms + JOB_MS, brings });
        Answer::ok(json!({ "image_uuid": way.id, "job_uuid": job })).with("workflow-api", url)
    }

    /// Ends the jobs whose time has come; returns the images that they brought.
    pub(super) fn arrived(&mut self, now_ms: i64) -> Vec<Record> {
        let (over, running) = self.running.drain(..).partition(|it: &Import| it.ends <= now_ms);
        self.running = running;
        let over: Vec<Import> = over;
        let ended = over.into_iter().filter_map(|import| {
            let (execution, result) = match &import.brings {
                Ok(_) => (
                    "succeeded",
                    json!({ "name": "import_image", "result": "created", "error": "" }),
                ),
                Err(error) => {
                    ("failed", json!({ "name": "import_image", "result": "", "error": error }))
                }
            };
            if let Some((jobs, _)) = &self.jobs {
                jobs.go_on(&import.job, execution, &[result]);
            }
            import.brings.ok()
        });
        ended.collect()
    }
}

/// The address in a URL; nonsense is this host.
fn place(source: &str) -> String {
    let url = url::Url::parse(source).ok();
    let host = url.as_ref().and_then(url::Url::host_str).unwrap_or("127.0.0.1");
    let port = url.as_ref().and_then(url::Url::port_or_known_default).unwrap_or(80);
    format!("{host}:{port}")
}
