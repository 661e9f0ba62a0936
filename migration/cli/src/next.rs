// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a person does next about a migration. Pure.

use migration_core::need::waits;
use migration_core::record::{Phase, Record, State};
use sdc_clients::migrations::Migration;

/// Characters of a uuid that stand for it where nothing was typed.
const SHORT: usize = 8;

/// Returns the command that goes on with a migration that waits for a person, and what it is about; of one whose step
/// is tried again, the command that ends that. The VM is called as it was typed.
pub(super) fn step(migration: &Migration, typed: Option<&str>) -> Option<String> {
    let raw = serde_json::to_value(migration).ok()?;
    // A record in an unknown form is shown as it is.
    let record = Record::read(&raw).ok()?;
    let vm = typed.filter(|it| is_word(it)).or(migration.vm_uuid.get(..SHORT))?;
    match waits(&record) {
        Some(why) => {
            let need = daemon::needs::find(why.name()?)?;
            Some(format!("{}    ({})", need.command_for(&[("VM", vm)]), need.says))
        }
        None if record.journal.again.is_some() && can_abort(&record) => Some(format!(
            "nothing: it goes on by itself. sdc-migrate abort --force {vm} ends it; the VM stays where it is"
        )),
        None => None,
    }
}

/// Returns true if a shell takes this as one word.
fn is_word(typed: &str) -> bool {
    typed.chars().all(|it| it.is_ascii_alphanumeric() || "._-".contains(it))
        && !typed.starts_with('-')
}

/// Returns true if a migration that runs can be ended: before the new copy is shown.
fn can_abort(record: &Record) -> bool {
    let is_before = matches!(record.phase, Phase::Begin | Phase::Sync | Phase::Switch);
    record.state == State::Running && is_before && !record.journal.target_shown
}
