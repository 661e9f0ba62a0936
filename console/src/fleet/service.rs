// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connects to the feed, starts the tasks and serves the page.

use std::sync::Arc;

use daemon::command::Paths;
use daemon::{Shutdown, Tasks};
use sdc_clients::Jitter;
use sdc_clients::fleet::Fleet;

use super::board::Board;
use super::config::Config;
use super::feed;
use super::http::router;
use crate::config::services;
use crate::relay::Relay;
use crate::service::open;

/// Serves the page until the shutdown.
pub(crate) async fn serve(config: Config, shutdown: Shutdown) -> anyhow::Result<Tasks> {
    let fleet = Fleet::connect(&config.nats, "console", Jitter::from_entropy()).await?;
    let programs: Vec<_> = services(&config.migrations, &config.volumes).collect();
    let relay = Relay::new(&programs, Paths::default(), shutdown.clone())?;
    let board = Arc::new(Board::new(config.node_page));
    let tasks = Tasks::new(shutdown.clone());
    tasks.spawn_dropped("vms", feed::vms(fleet.clone(), Arc::clone(&board)));
    tasks.spawn_dropped("nodes", feed::nodes(fleet, Arc::clone(&board)));
    let routes = router(board, config.nats.servers, relay, shutdown.clone());
    open(config.listen, config.metrics, routes, &tasks, shutdown).await?;
    Ok(tasks)
}
