// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! migration-service in front of the mock VMAPI, with the steps done by jobs elsewhere: the recorder plays
//! them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use daemon::Shutdown;
use daemon::http::{Limits, Server};
use migration_service::clock::Clock;
use migration_service::front::{Upstream, router};
use migration_service::{Addresses, Agents, Known, Service, Steps};
use sdc_clients::http::Transport;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::peers::{Calls, Peers};
use crate::conform::transcript::{Asked, UnknownStep};

/// A running service.
pub(super) struct Front {
    pub(super) addr: SocketAddr,
    pub(super) peers: Arc<Peers>,
    shutdown: Shutdown,
    served: JoinHandle<()>,
}

impl Front {
    /// Starts one in front of the VMAPI at this address.
    pub(super) async fn start(vmapi: SocketAddr, calls: &Calls) -> anyhow::Result<Front> {
        let peers = Peers::new(calls)?;
        let transport: Arc<dyn Transport> = peers.clone();
        let base = format!("http://{vmapi}");
        let at = |peer: &str| format!("http://{peer}.sim");
        let addresses = Addresses {
            vmapi: base.clone(),
            cnapi: at("cnapi"),
            napi: at("napi"),
            imgapi: at("imgapi"),
            papi: at("papi"),
        };
        let clients = migration_service::Peers::new(&addresses, &transport)?;
        // The jobs do the steps: no agent is asked.
        let known = Known { port: 0, urls: BTreeMap::new() };
        let agents = Agents::new(known, clients.cnapi.clone(), Arc::clone(&transport));
        let store = store::Store::in_memory()?;
        let (listener, addr) = daemon::http::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let url = format!("http://{addr}");
        let service =
            Service::open(&store, clients, agents, Steps::External, Clock::System, &url).await?;
        let routes = router(service, Upstream::new(&base, transport)?);
        let shutdown = Shutdown::new();
        let server = Server::new(Limits::default(), shutdown.clone());
        let served = tokio::spawn(server.serve(listener, routes));
        Ok(Front { addr, peers, shutdown, served })
    }

    pub(super) async fn stop(self) {
        self.shutdown.trigger();
        let _joined = self.served.await;
    }
}

/// Returns the requests by which the recorder changed the service's own surroundings; none if a change is not
/// about it. `next` is the id of the exchange that follows.
pub(super) fn change(
    change: &Value,
    next: &str,
    vm: &str,
    jobs: &Jobs,
) -> anyhow::Result<Option<Asked>> {
    let ask = |method: &str, path: String, body: Value| Asked {
        method: method.to_owned(),
        path,
        headers: [("content-type".to_owned(), "application/json".to_owned())].into_iter().collect(),
        body: Some(body),
        ..Asked::default()
    };
    let asked = match change["do"].as_str().unwrap_or_default() {
        "record" => {
            let record = match (&change["record"], jobs.record(next)) {
                (Value::Object(record), _) => Value::Object(record.clone()),
                (_, Some(record)) => record,
                _ => jobs.like(change, vm).ok_or_else(|| UnknownStep(change.clone()))?,
            };
            ask("POST", format!("/migrations/{vm}/store"), record)
        }
        "service configuration" => {
            let set = &change["set"];
            let settings = json!({
                "allow_user_migrations": set["user_migration_allowed"],
                "zfs_send_mbps_limit": set["migration_send_mbps_limit"],
            });
            ask("PUT", "/settings".to_owned(), settings)
        }
        _ => return Ok(None),
    };
    Ok(Some(asked))
}

/// The jobs that VMAPI posted.
pub(super) struct Jobs(Vec<Value>);

impl Jobs {
    /// Reads the recording in the directory of the exchanges.
    pub(super) fn read(transcript: &Path) -> anyhow::Result<Jobs> {
        let path = transcript.with_file_name("migrate-jobs.jsonl");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Jobs(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?))
    }

    /// The record that the job of an exchange had.
    fn record(&self, exchange: &str) -> Option<Value> {
        let job = self.0.iter().find(|job| job["id"] == exchange)?;
        let mut record = job["job"]["migrationTask"]["record"].clone();
        // What was computed for the job, not stored.
        for entry in record["progress_history"].as_array_mut()? {
            entry.as_object_mut()?.shift_remove("duration_ms");
        }
        record.as_object_mut()?.shift_remove("data_version");
        Some(record)
    }

    /// The record of any job on the VM, with this phase and state.
    fn like(&self, change: &Value, vm: &str) -> Option<Value> {
        let job = self.0.iter().find(|job| job["job"]["vm_uuid"] == vm)?;
        let mut record = self.record(job["id"].as_str()?)?;
        for field in ["phase", "state"] {
            record[field] = change[field].clone();
            record["progress_history"][0][field] = change[field].clone();
        }
        record["num_sync_phases"] = change["num_sync_phases"].clone();
        Some(record)
    }
}
