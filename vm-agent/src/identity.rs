// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The identity task: reads sysinfo until it names this node, then at each interval, in case it changes.

use daemon::Window;
use daemon::timing::Retry;
use sdc_clients::vminfod::Vminfod;
use std::sync::Arc;
use tokio::time::Duration;

use crate::parts::Parts;
use crate::plan::Reason;
use crate::status::{State, Task};

/// The waits while sysinfo does not name this node.
const RETRY: Window = Window { min: Duration::from_secs(1), max: Duration::from_secs(10) };

/// Reads sysinfo, for ever.
pub(crate) async fn watch(parts: Arc<Parts>) {
    let parts = &*parts;
    let mut retry = Retry::new(RETRY, RETRY.max, parts.random.fork());
    // One log line for each change of state, not for each reading.
    let mut said = None;
    loop {
        let state = match parts.clients.vminfod.node_uuid().await {
            Ok(Some(uuid)) => {
                let is_this = uuid == parts.cn_uuid;
                parts.node.change(|known| known.identity = Some(uuid.clone()));
                let configured = parts.cn_uuid.clone();
                match is_this {
                    true => State::Resting,
                    false => State::Refused(Reason::WrongIdentity { configured, sysinfo: uuid }),
                }
            }
            // The node has not become another one.
            _ if parts.node.look(|known| known.identity.is_some()) => State::Resting,
            Ok(None) => State::NoAnswer("sysinfo has no UUID".to_owned()),
            Err(error) => State::NoAnswer(daemon::log::chain(&error)),
        };
        if state != State::Resting && said.as_ref() != Some(&state) {
            tracing::warn!("{state}");
        }
        parts.status.is(Task::Identity, state.clone());
        let wait = match state {
            State::Resting => {
                retry.reset();
                parts.config.times.resync
            }
            _ => retry.next_delay(),
        };
        said = Some(state);
        tokio::time::sleep(wait).await;
    }
}

/// Waits until vminfod says who the node is.
pub(crate) async fn find(vminfod: &Vminfod, mut retry: Retry) -> String {
    let mut said = false;
    loop {
        let why = match vminfod.node_uuid().await {
            Ok(Some(uuid)) => return uuid,
            Ok(None) => "sysinfo has no UUID".to_owned(),
            Err(error) => daemon::log::chain(&error),
        };
        if !std::mem::replace(&mut said, true) {
            tracing::warn!(reason = why, "waiting for vminfod to say who the node is");
        }
        tokio::time::sleep(retry.next_delay()).await;
    }
}
