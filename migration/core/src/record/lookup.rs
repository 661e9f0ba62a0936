// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which record is meant: by VM, and by the filters of `GET /migrations`.

use uuid::Uuid;

use super::fields::{Entry, Record};
use super::states::{Phase, State};
use crate::intent::End;

/// Returns the newest of the records of a VM that are not over.
///
/// The deployed service looks for a record on the server that VMAPI names, and so finds none while a
/// switch or a rollback moves the VM.
pub fn newest<'a>(records: impl IntoIterator<Item = &'a Record>, vm: Uuid) -> Option<&'a Record> {
    let of_vm = records.into_iter().filter(|record| is_of_vm(record, vm));
    of_vm.max_by_key(|record| record.created_timestamp)
}

/// Returns true if this is the record of a migration of the VM that is not over.
pub fn is_of_vm(record: &Record, vm: Uuid) -> bool {
    record.vm_uuid == vm && !is_over(record)
}

/// Returns true if a copy is on this node, or is to be.
pub fn is_on(record: &Record, cn: Uuid) -> bool {
    record.source_server_uuid == cn || record.target_server_uuid == Some(cn)
}

/// Returns the node of a copy; none before the target is chosen.
pub fn node_of(record: &Record, end: End) -> Option<Uuid> {
    match end {
        End::Source => Some(record.source_server_uuid),
        End::Target => record.target_server_uuid,
    }
}

/// Returns true if the migration ended, by abort or while a node was declared dead.
pub fn is_over(record: &Record) -> bool {
    record.state == State::Aborted || record.intent.over
}

/// Returns true if what is on the target's node is this migration's: it ordered the creation, or has begun well. Other
/// datasets and zones of the VM's name are somebody's.
pub fn has_made_target(record: &Record) -> bool {
    let has_begun = |it: &Entry| it.phase == Phase::Begin && it.state == State::Successful;
    record.intent.made
        || record.num_sync_phases > 0
        || record.phase != Phase::Begin && record.progress_history.iter().any(has_begun)
}

/// The filters of `GET /migrations`. A value that cannot be matches nothing, `*` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub owner_uuid: Option<String>,
    pub vm_uuid: Option<String>,
    pub source_server_uuid: Option<String>,
    pub target_server_uuid: Option<String>,
    pub state: Option<String>,
    pub id: Option<String>,
    pub created_timestamp: Option<String>,
    pub data_version: Option<String>,
}

impl Filter {
    /// Returns true if the record is to be listed. Aborted ones are listed for `state=aborted` alone.
    pub fn admits(&self, record: &Record) -> bool {
        let text = |uuid: Option<Uuid>| uuid.map(|uuid| uuid.to_string());
        let is = |want: &Option<String>, has: Option<String>| match want.as_deref() {
            None => true,
            Some("*") => has.is_some(),
            want => has.as_deref() == want,
        };
        if record.intent.over {
            return false;
        }
        let state = match self.state.as_deref() {
            // `active` meant what it says once; deployed tools still send it for "all".
            None | Some("active" | "*") => record.state != State::Aborted,
            Some(name) => record.state.name() == name,
        };
        state
            && is(&self.owner_uuid, text(record.owner_uuid))
            && is(&self.vm_uuid, text(Some(record.vm_uuid)))
            && self.is_on_source(record)
            && is(&self.target_server_uuid, text(record.target_server_uuid))
            && is(&self.id, text(Some(record.id)))
            && is(&self.created_timestamp, Some(record.created_timestamp.to_string()))
            && is(&self.data_version, Some(record.data_version.unwrap_or(1).to_string()))
    }

    /// A migration that has moved its VM is listed for the server where the VM now is, too.
    fn is_on_source(&self, record: &Record) -> bool {
        let Some(want) = self.source_server_uuid.as_deref() else { return true };
        let has_moved = record.state == State::Successful
            || (record.phase == Phase::Rollback && record.state == State::Failed);
        let target = record.target_server_uuid.filter(|_| has_moved);
        want == "*"
            || want == record.source_server_uuid.to_string()
            || target.is_some_and(|target| target.to_string() == want)
    }
}
