// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The actions that a call may ask for.

/// What `migration_action` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Begin,
    Sync,
    Switch,
    Pause,
    Abort,
    Rollback,
    Finalize,
    Estimate,
    /// Make the VM of the only copy that is left.
    Rescue,
    /// Do the rest at a given time (RFD 34).
    Schedule,
    /// Forget that time.
    Unschedule,
}

impl Action {
    pub const ALL: [Action; 11] = [
        Action::Begin,
        Action::Sync,
        Action::Switch,
        Action::Pause,
        Action::Abort,
        Action::Rollback,
        Action::Finalize,
        Action::Estimate,
        Action::Rescue,
        Action::Schedule,
        Action::Unschedule,
    ];

    /// Returns the action of this name, in exactly this spelling.
    pub fn parse(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Action::Begin => "begin",
            Action::Sync => "sync",
            Action::Switch => "switch",
            Action::Pause => "pause",
            Action::Abort => "abort",
            Action::Rollback => "rollback",
            Action::Finalize => "finalize",
            Action::Estimate => "estimate",
            Action::Rescue => "rescue",
            Action::Schedule => "schedule",
            Action::Unschedule => "unschedule",
        }
    }
}

/// A call: the action and what changes whether it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub action: Action,
    /// `is_migration_subtask`: the running operation itself calls.
    pub is_subtask: bool,
    /// `force` of abort: pause first. For estimate: `format=rfd34`, which is answered at any time.
    pub is_forced: bool,
    /// A node is declared dead.
    pub declares: bool,
    /// What the target wrote may be lost.
    pub discards: bool,
}

impl Call {
    /// Returns a call without further parameters.
    pub fn new(action: Action) -> Call {
        Call { action, is_subtask: false, is_forced: false, declares: false, discards: false }
    }
}
