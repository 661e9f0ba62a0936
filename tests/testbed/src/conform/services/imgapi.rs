// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The images of a recording of IMGAPI, and the server that it fetched others from.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mocks::imgapi::{Server, Store};
use mocks::workflow;
use serde_json::{Value, json};

use super::replay::World;
use crate::conform::transcript::{Group, UnknownStep};

pub(super) struct Images {
    server: Server,
    jobs: workflow::Store,
}

impl World for Images {
    const KIND: &'static str = "imgapi";

    async fn begin(group: &Group) -> anyhow::Result<Self> {
        let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let (store, jobs) = (server.store(), workflow::Store::default());
        store.keep_jobs(jobs.clone(), "http://127.0.0.1");
        let owners = group.world["owners"].as_object().into_iter().flatten();
        let known = owners.filter(|(name, _)| !name.starts_with("not "));
        known.filter_map(|(_, owner)| owner.as_str()).for_each(|owner| store.know_owner(owner));
        if group.has_base {
            base(store, &group.world);
        }
        remotes(store, group);
        Ok(Images { server, jobs })
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    async fn change(&mut self, change: &Value, group: &Group) -> anyhow::Result<()> {
        if change["do"] != "wait for the job" {
            return Err(UnknownStep(change.clone()).into());
        }
        self.server.store().advance(Duration::from_secs(2));
        // It works when it is asked the next time.
        let nothing = crate::conform::transcript::Asked {
            method: "GET".to_owned(),
            path: "/ping".to_owned(),
            ..Default::default()
        };
        crate::conform::wire::exchange(self.addr(), &nothing).await?;
        let job = self.jobs.newest().unwrap_or_default();
        let is_alike = job.get("execution") == Some(&change["execution"]);
        anyhow::ensure!(is_alike, "{}: the job ended as {job:?}", group.name);
        Ok(())
    }
}

fn base(store: &Store, world: &Value) {
    let images = world["images"].as_array().into_iter().flatten();
    for (at, image) in images.enumerate() {
        let Some(mut manifest) = image["manifest"].as_object().cloned() else { continue };
        let state = &image["state"];
        manifest.insert("state".to_owned(), state.clone());
        if state != "unactivated" {
            let published = format!("2026-11-25T00:00:00.{at:03}Z");
            manifest.insert("published_at".to_owned(), json!(published));
            let file = json!({ "sha1": "9e32fdfacf2faecd84dd128c05e5a4328e86cf09", "size": 204,
                "compression": world["file"]["compression"] });
            manifest.insert("files".to_owned(), json!([file]));
        }
        store.put(manifest);
    }
}

/// What the other server had shows in what was fetched from it; of the last one it stated a wrong checksum.
fn remotes(store: &Store, group: &Group) {
    let remote = &group.world["remote"];
    let has: Vec<&str> =
        remote["has"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let shown = group.exchanges().find_map(|one| {
        let body = one.response.body.as_ref()?.as_object()?;
        let uuid = body.get("uuid")?.as_str()?;
        has.contains(&uuid).then(|| body.clone())
    });
    let (Some(manifest), Some(source)) = (shown, remote["url"].as_str()) else { return };
    for (at, uuid) in has.iter().enumerate() {
        let mut manifest = manifest.clone();
        manifest.insert("uuid".to_owned(), json!(uuid));
        if at > 0 && at + 1 == has.len() {
            manifest.insert("files".to_owned(), json!([{ "sha1": "0".repeat(40) }]));
        }
        store.add_remote(source, manifest);
    }
}
