// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two listeners and their routes: a loopback port for every process of the node, and a unix socket for root. Both
//! only answer.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use daemon::agent;
use daemon::http::{Router, ok};
use daemon::metrics::answer;
use daemon::{Shutdown, Tasks};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::agent::Agent;
use crate::metrics;
use crate::parts::Parts;

type Routes = State<Arc<Parts>>;

fn pages(parts: &Arc<Parts>) -> Router {
    let status = async |State(parts): Routes| ok(&status(&parts));
    let metrics = async |State(parts): Routes| answer(&metrics::registry(&parts));
    agent::pages(get(status), get(metrics)).with_state(Arc::clone(parts))
}

/// Returns `/status`.
fn status(parts: &Parts) -> Value {
    let mut page = parts.status.to_json();
    let told = parts.told();
    for (key, value) in [
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cn_uuid", parts.cn_uuid.clone().into()),
        ("machine", parts.me.machine.clone().into()),
        ("mode", parts.config.basics.mode.name().into()),
        ("publishes", parts.holds.borrow().to_owned().into()),
        ("position", told.position.map(|at| at.to_string()).into()),
        ("vms", told.vms.into()),
        ("servers", parts.config.nats.servers.clone().into()),
        ("uptime_s", parts.clock.now().as_secs().into()),
    ] {
        page[key] = value;
    }
    page
}

impl Agent {
    /// Serves the pages until the shutdown.
    pub fn listen(&self, listener: TcpListener, tasks: &Tasks, shutdown: &Shutdown) {
        let places = &self.parts.config.basics.places;
        let (port, control) = (pages(&self.parts), pages(&self.parts));
        agent::listen(places, (listener, port), control, tasks, shutdown);
    }
}
