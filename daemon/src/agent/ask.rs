// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the command line asks a running agent.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::control::{ControlError, ask};
use crate::cli::pages::{NoPage, page};
use crate::cli::{Progress, author};

use super::basics::Places;

/// The time between two looks at how far a fresh plan is.
const GLANCE: Duration = Duration::from_millis(300);

/// Why a running agent has no plan to show.
#[derive(Debug, thiserror::Error)]
pub enum NoPlan {
    /// The socket was there, and the exchange failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The port has no plan either.
    #[error(transparent)]
    Page(#[from] NoPage),
}

/// Returns the running agent's last plan; with its socket, a fresh one: the agent then reads what the
/// brake blocks and offers it for approval; meanwhile the terminal shows how far it is. For who may not open the
/// socket it is the last plan.
/// Fails if the agent does not answer.
pub async fn running_plan(
    program: &'static str,
    base: &str,
    socket: Option<&Path>,
) -> Result<Value, NoPlan> {
    let last = || page(program, base, "plan", "decisions");
    let Some(socket) = socket else { return Ok(last().await?) };
    let shown = Progress::begin("waiting for a fresh plan");
    let made = ask(socket, "POST", "/plan", None, "decisions");
    let watched = async {
        loop {
            tokio::time::sleep(GLANCE).await;
            let reading = last().await.map(|page| page["reading"].clone()).unwrap_or_default();
            if let (Some(done), Some(of)) = (reading["done"].as_u64(), reading["of"].as_u64()) {
                shown.say(&format!("reading the records that the brake blocks, {done} of {of}"));
            }
        }
    };
    // The request is polled until it has its answer; the other arm never ends.
    let made = tokio::select! {
        made = made => made,
        () = watched => return Ok(last().await?),
    };
    match made {
        Err(ControlError::Absent { .. }) => Ok(last().await?),
        made => Ok(made?),
    }
}

/// Approves the plan with this id; returns how many records of this kind (`nics`, `vms`) may go.
/// Fails if no agent answers, or it refuses.
pub(super) async fn approve_plan(
    places: &Places,
    id: &str,
    kind: &str,
) -> Result<u64, ControlError> {
    let (socket, body) = (&places.control_socket, json!({"id": id, "by": author()}));
    let done = ask(socket, "POST", "/approve", Some(&body), kind).await?;
    done[kind].as_u64().ok_or_else(|| ControlError::Another { path: socket.clone() })
}

/// Claims a node for this machine. Returns what follows, for people.
/// Fails if no agent answers, or it refuses.
pub(super) async fn claim_node(
    places: &Places,
    node: Option<&str>,
    really: bool,
) -> Result<String, ControlError> {
    let mut body = json!({"by": author(), "really": really});
    if let Some(node) = node {
        body["node"] = node.into();
    }
    let done = ask(&places.control_socket, "POST", "/claim", Some(&body), "node").await?;
    let claimed = done["node"].as_str().unwrap_or_default();
    Ok(match node {
        Some(_) => format!("claimed: this machine was node {claimed}\n"),
        None => format!("claimed: this machine is node {claimed}, and the other one is not\n"),
    })
}
