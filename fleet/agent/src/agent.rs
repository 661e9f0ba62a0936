// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One agent: makes its parts and runs its tasks (the table is in `lib.rs`).

use std::sync::Arc;
use std::time::Duration;

use daemon::{Shutdown, Tasks};
use sdc_clients::fleet::Fleet;

use crate::parts::Parts;
use crate::status::{Own, State, Task};
use crate::{beat, publish, streams};

pub struct Agent {
    pub parts: Arc<Parts>,
    /// The feed, where this agent makes its streams.
    pub makes: Option<Fleet>,
}

impl Agent {
    /// Runs until the shutdown signal.
    pub async fn run(&self, shutdown: Shutdown) {
        if !self.parts.config.basics.no_rabbit {
            self.parts.status.is(Task::Publisher, State::Off("the feed"));
            shutdown.wait().await;
            return;
        }
        let tasks = Tasks::new(shutdown.clone());
        let parts = || Arc::clone(&self.parts);
        // Dropping the work at any await is safe: what the feed has is read at the next start.
        tasks.spawn_dropped("heartbeat", beat::run(parts()));
        tasks.spawn_dropped("publisher", publish::run(parts()));
        tasks.spawn_dropped("identity", identity(parts()));
        if let (Some(fleet), Some(shape)) = (&self.makes, &self.parts.config.make) {
            tasks.spawn_dropped("streams", streams::run(parts(), fleet.clone(), shape.clone()));
        }
        shutdown.wait().await;
        tasks.drain(Duration::from_secs(5)).await;
    }
}

/// Reads who the node is, for ever. A node that has become another one is published no more.
async fn identity(parts: Arc<Parts>) {
    loop {
        match parts.vminfod.node_uuid().await {
            Ok(Some(sysinfo)) if sysinfo != parts.cn_uuid => {
                let configured = parts.cn_uuid.clone();
                parts
                    .status
                    .is(Task::Identity, State::Own(Own::WrongIdentity { configured, sysinfo }));
                tracing::error!(
                    "the node is another one: stopping, so that it is published under its own uuid"
                );
                return;
            }
            // vminfod's silence is told by the publisher.
            _ => parts.status.is(Task::Identity, State::Resting),
        }
        tokio::time::sleep(parts.random.around(parts.config.times.resync, 0.1)).await;
    }
}
