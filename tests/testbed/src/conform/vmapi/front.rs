// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! migration-service in front of the mock VMAPI. Nobody does its rounds: what the recorded jobs stored is put into its
//! records.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use daemon::Shutdown;
use daemon::http::{Limits, Server};
use migration_service::clock::Clock;
use migration_service::front::{Upstream, router};
use migration_service::{Addresses, Agents, Known, Service};
use sdc_clients::http::Transport;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::jobs::{self, Jobs};
use super::peers::{Calls, Peers};
use crate::conform::transcript::{Asked, UnknownStep};
use crate::conform::wire::exchange;

/// A running service.
pub(super) struct Front {
    pub(super) addr: SocketAddr,
    pub(super) peers: Arc<Peers>,
    pub(super) service: Service,
    shutdown: Shutdown,
    served: JoinHandle<()>,
}

impl Front {
    /// Starts one in front of the VMAPI at this address.
    pub(super) async fn start(vmapi: SocketAddr, calls: &Calls) -> anyhow::Result<Front> {
        let base = format!("http://{vmapi}");
        let peers = Peers::new(calls, base.parse()?)?;
        let transport: Arc<dyn Transport> = peers.clone();
        let at = |peer: &str| format!("http://{peer}.sim");
        let addresses = Addresses {
            vmapi: base.clone(),
            cnapi: at("cnapi"),
            napi: at("napi"),
            imgapi: at("imgapi"),
            papi: at("papi"),
        };
        let clients = migration_service::Peers::new(&addresses, &transport)?;
        let known = Known { port: 0, urls: BTreeMap::new() };
        let agents = Agents::new(known, clients.cnapi.clone(), Arc::clone(&transport));
        let store = store::Store::in_memory()?;
        let (listener, addr) = daemon::http::listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let url = format!("http://{addr}");
        let service = Service::open(&store, clients, agents, Clock::System, &url).await?;
        let routes = router(service.clone(), Upstream::new(&base, transport)?);
        let shutdown = Shutdown::new();
        let server = Server::new(Limits::default(), shutdown.clone());
        let served = tokio::spawn(server.serve(listener, routes));
        Ok(Front { addr, peers, service, shutdown, served })
    }

    pub(super) async fn stop(self) {
        self.shutdown.trigger();
        let _joined = self.served.await;
    }
}

/// Makes a change of the recorder to the service's own surroundings. Returns false if it is not about them. `next` is
/// the id of the exchange that follows.
pub(super) async fn change(
    front: &Front,
    change: &Value,
    next: &str,
    vm: &str,
    jobs: &Jobs,
) -> anyhow::Result<bool> {
    match change["do"].as_str().unwrap_or_default() {
        "record" => {
            let record = match (&change["record"], jobs.record(next)) {
                (Value::Object(record), _) => Value::Object(record.clone()),
                (_, Some(record)) => record,
                _ => jobs.like(change, vm).ok_or_else(|| UnknownStep(change.clone()))?,
            };
            jobs::store(&front.service, &record).await?;
        }
        "service configuration" => {
            let set = &change["set"];
            let settings = json!({
                "allow_user_migrations": set["user_migration_allowed"],
                "zfs_send_mbps_limit": set["migration_send_mbps_limit"],
            });
            let asked = Asked {
                method: "PUT".to_owned(),
                path: "/settings".to_owned(),
                headers: [("content-type".to_owned(), "application/json".to_owned())].into(),
                body: Some(settings),
                ..Asked::default()
            };
            let done = exchange(front.addr, &asked).await?;
            let status = done.as_ref().map(|done| done.status);
            anyhow::ensure!(status == Some(200), "{change}: the answer was {done:?}");
        }
        _ => return Ok(false),
    }
    Ok(true)
}
