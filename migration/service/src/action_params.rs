// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of an action, read and checked.

use sdc_clients::cnapi::{Affinity, BadAffinity};
use uuid::Uuid;

use super::params::Params;
use super::refused::Refused;
use super::through::Through;
use migration_core::intent::Asker;
use migration_core::machine::{Action, Call};
use migration_core::permit::Caller;
use migration_core::time::Time;

/// An action and what changes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionParams {
    /// The action; none is known by the name that was given.
    pub action: Option<Action>,
    pub caller: Caller,
    /// One action does all phases.
    pub automatic: bool,
    /// A part of the running operation calls.
    pub is_subtask: bool,
    /// Pause first; for an estimate: the form of RFD 34.
    pub is_forced: bool,
    /// An estimate in the form of RFD 34 tells the target, too.
    pub with_target: bool,
    /// `scheduled_timestamp` as it was given.
    pub at: Option<String>,
    /// Where to place the VM relative to others.
    pub affinity: Vec<Affinity>,
    /// The limit of its streams in Mbit/s from now on; 0 is none.
    pub bwlimit: Option<u32>,
    /// A switch that would keep the VM down for longer, in seconds, is refused; 0 takes it back.
    pub max_downtime: Option<u32>,
    /// The operator's confirmation that something may be lost.
    pub words: Words,
    /// The program that asks.
    pub through: Through,
}

/// What an operator takes upon himself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The source's node is dead.
    pub source_dead: Option<Uuid>,
    /// The target's node is dead.
    pub target_dead: Option<Uuid>,
    /// What the target wrote may be lost.
    pub discard: bool,
    /// The operator has seen that the node is off, whatever its last contact.
    pub really: bool,
}

impl Words {
    /// Returns true if any is given.
    pub fn is_any(&self) -> bool {
        self.source_dead.is_some() || self.target_dead.is_some() || self.discard
    }
}

impl ActionParams {
    /// Returns an action that no caller has asked for by name.
    pub fn of(action: Action) -> ActionParams {
        ActionParams {
            action: Some(action),
            caller: Caller::Operator,
            automatic: false,
            is_subtask: false,
            is_forced: false,
            with_target: false,
            at: None,
            affinity: Vec::new(),
            bwlimit: None,
            max_downtime: None,
            words: Words::default(),
            through: Through::default(),
        }
    }

    /// Reads what is needed before the VM is known.
    /// Refuses with 409 for a bad uuid.
    pub fn read(params: &Params) -> Result<ActionParams, Refused> {
        let owner = uuid_of(params, "owner_uuid")?;
        let action = params.text("migration_action").and_then(Action::parse);
        let is_rfd34 = action == Some(Action::Estimate) && params.text("format") == Some("rfd34");
        let affinity = affinity(params).map_err(|why| Refused::argument(&why.to_string()))?;
        let words = Words {
            source_dead: uuid_of(params, "source_dead")?,
            target_dead: uuid_of(params, "target_dead")?,
            discard: params.is_true("discard"),
            really: params.is_true("really"),
        };
        Ok(ActionParams {
            action,
            caller: owner.map_or(Caller::Operator, Caller::Account),
            automatic: params.is_true("migration_automatic"),
            is_subtask: params.is_true("is_migration_subtask"),
            is_forced: params.is_true("force") || is_rfd34,
            with_target: is_rfd34 && params.is_true("with_target"),
            at: params.text("scheduled_timestamp").map(str::to_owned),
            affinity,
            bwlimit: whole(params, "bwlimit", LIMIT)?,
            max_downtime: whole(params, "max_downtime", DOWNTIME)?,
            words,
            through: params.through.clone(),
        })
    }

    /// Returns who asks, for the record.
    pub fn asker(&self, now: Time) -> Asker {
        match self.caller {
            Caller::Account(account) => self.through.asker(Some(account), now),
            Caller::Operator => self.through.asker(None, now),
        }
    }

    /// Returns the call that the state machine judges.
    pub fn call(&self, action: Action) -> Call {
        let Words { source_dead, target_dead, discard, .. } = self.words;
        let declares = source_dead.is_some() || target_dead.is_some();
        let (is_subtask, is_forced) = (self.is_subtask, self.is_forced);
        Call { action, is_subtask, is_forced, declares, discards: discard }
    }
}

/// Reads the node that was named for the target.
/// Refuses with 409 for a bad uuid, in the sentences of VMAPI.
pub fn overrides(params: &Params) -> Result<Option<Uuid>, Refused> {
    for name in ["override_uuid", "override_server_uuid"] {
        let Some(text) = params.text(name) else { continue };
        if lower_uuid(text).is_none() {
            let sentence = format!("Invalid parameters: {name} ({text}) is not a valid UUID");
            return Err(Refused::parameters(&sentence, name, "Invalid UUID"));
        }
        if name == "override_uuid" {
            return Err(Refused::argument("override_uuid: a VM keeps its uuid"));
        }
    }
    Ok(params.text("override_server_uuid").and_then(lower_uuid))
}

/// Returns the rules of a list, or of a text of rules that semicolons part.
fn affinity(params: &Params) -> Result<Vec<Affinity>, BadAffinity> {
    match (params.get("affinity"), params.text("affinity")) {
        (_, Some(text)) if !text.starts_with('[') => text.split(';').map(str::parse).collect(),
        (Some(given), _) => Affinity::list(given),
        (None, _) => Ok(Vec::new()),
    }
}

const LIMIT: &str = "expected whole megabits per second, or 0 for no limit of its own";
const DOWNTIME: &str = "expected whole seconds, or 0 for any";

/// Reads a whole number that may be absent.
fn whole(params: &Params, name: &str, what: &str) -> Result<Option<u32>, Refused> {
    let Some(value) = params.get(name) else { return Ok(None) };
    let read = match value.as_str() {
        Some(text) => text.parse().ok(),
        None => value.as_u64().and_then(|it| u32::try_from(it).ok()),
    };
    read.map(Some).ok_or_else(|| Refused::parameter(name, what))
}

/// Reads a uuid that may be absent.
fn uuid_of(params: &Params, name: &str) -> Result<Option<Uuid>, Refused> {
    let Some(value) = params.get(name) else { return Ok(None) };
    let uuid = value.as_str().and_then(lower_uuid);
    uuid.map(Some).ok_or_else(|| Refused::parameter(name, "Invalid UUID"))
}

/// Reads a uuid in the one form that VMAPI takes.
pub fn lower_uuid(text: &str) -> Option<Uuid> {
    text.parse::<Uuid>().ok().filter(|uuid| uuid.to_string() == text)
}
