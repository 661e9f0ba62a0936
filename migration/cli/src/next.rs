// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a person does next about a migration. Pure.

use migration_core::need::waits;
use migration_core::record::Record;
use sdc_clients::migrations::Migration;

/// Returns the command that goes on with a migration that waits for a person, and what it is about.
pub(super) fn step(migration: &Migration) -> Option<String> {
    let raw = serde_json::to_value(migration).ok()?;
    // A record in a form that is not known here says itself what it is.
    let record = Record::read(&raw).ok()?;
    let need = daemon::needs::find(waits(&record)?.name()?)?;
    let command = need.command_for(&[("VM", &migration.vm_uuid)]);
    Some(format!("{command}    ({})", need.says))
}
