// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a call is refused: the reason, and the reply that the deployed service was recorded with.

use crate::record::{Phase, State};
use crate::time::Time;

/// A reason. The sentences of the deployed service are the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("Invalid migration action")]
    UnknownAction,
    #[error("migration not found")]
    NoRecord,
    #[error("An active migration already exists for this instance")]
    Active,
    #[error(
        "A previous migration exists for this instance, use migration finalize to complete it."
    )]
    NotFinalized,
    #[error("Cannot sync in migration state: {}", .0.name())]
    SyncState(State),
    #[error("Cannot sync when in migration phase: {}", .0.name())]
    SyncPhase(Phase),
    #[error("Cannot switch in migration state: {}", .0.name())]
    SwitchState(State),
    #[error("Cannot switch in migration phase: {}", .0.name())]
    SwitchPhase(Phase),
    #[error("You must perform at least one \"migration sync\" operation before switching")]
    NeverSynced,
    #[error("Pause requires a running migration sync action")]
    NoRunningSync,
    #[error("Rollback only works on a successful migration")]
    NothingToRollBack,
    #[error("Finalize only works on a successful migration")]
    NothingToFinalize,
    #[error("Abort cannot work on a running migration")]
    AbortRunning,
    #[error("Abort cannot work on a successful migration")]
    AbortSuccessful,
    /// Ours, as are those that follow.
    #[error("The target has been shown: use migration rollback")]
    UseRollback,
    #[error("The source is being deleted: use migration finalize")]
    UseFinalize,
    /// What was written since the switch is on a node that is declared dead.
    #[error(
        "What the instance wrote on the target since the switch{} cannot be read, and is LOST: add --discard to go on \
         without it", .0.map(|at| format!(" ({at})")).unwrap_or_default()
    )]
    Unread(Option<Time>),
    #[error("A migration rollback is running already")]
    RollbackRunning,
    #[error("Rescue cannot work on a running migration")]
    RescueRunning,
    #[error("The migration has no copy to rescue")]
    NothingToRescue,
    #[error("Cannot schedule a migration in phase {}, state {}", .0.name(), .1.name())]
    Schedule(Phase, State),
    #[error("The migration is not scheduled")]
    NotScheduled,
}

impl Refusal {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::UnknownAction => 409,
            Refusal::NoRecord => 404,
            _ => 412,
        }
    }

    /// Returns the code of the body.
    pub fn code(&self) -> &'static str {
        match self.status() {
            409 => "InvalidArgument",
            404 => "ResourceNotFound",
            _ => "PreconditionFailed",
        }
    }
}
