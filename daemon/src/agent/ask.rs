// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the command line asks a running agent.

use serde_json::{Value, json};

use crate::cli::control::{ControlError, ask};
use crate::cli::pages::{NoPage, page};

use super::basics::Places;

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

/// Returns the running agent's plan: from its socket if this user may open it, else from its port. Asked by
/// its socket, the agent offers what the brake blocks for approval.
///
/// # Errors
/// If neither answers.
pub async fn running_plan(program: &'static str, places: &Places) -> Result<Value, NoPlan> {
    match ask(&places.control_socket, "POST", "/plan", None).await {
        Err(ControlError::Absent { .. }) => Ok(page(program, places.status_listen, "plan").await?),
        answer => Ok(answer?),
    }
}

/// Approves the plan with this id; returns the agent's answer.
///
/// # Errors
/// If no agent answers, or it refuses.
pub async fn approve_plan(places: &Places, id: &str) -> Result<Value, ControlError> {
    ask(&places.control_socket, "POST", "/approve", Some(&json!({ "id": id }))).await
}
