// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI's record of a VM whose old copy was replaced and not seen to stop: whoever took it back, it is put right.

use serde_json::json;
use store::Fence;
use uuid::Uuid;

use super::ending::is_busy;
use super::observe::observe;
use super::order::Failed;
use super::step::move_record;
use crate::state::Service;
use migration_core::intent::End;
use migration_core::machine::MayMove;
use migration_core::record::State;

/// Where VMAPI has the VM of a migration that was switched on its old node: moves the record as the switch did. The
/// rounds of an operation that runs do it themselves.
pub async fn put_right(service: &Service, fence: &Fence, migration: Uuid) -> Result<(), Failed> {
    let Some(mut kept) = service.records.get(migration).await? else { return Ok(()) };
    let record = &kept.record;
    let is_settled = record.state == State::Successful && record.intent.target_shown;
    if !is_settled || is_busy(record) || record.intent.older.is_some() {
        return Ok(());
    }
    let vm = record.vm_uuid;
    let there = service.peers.vmapi.record(&vm.to_string()).await;
    let is_source = json!(record.source_server_uuid);
    if !there.is_ok_and(|there| there.get("server_uuid") == Some(&is_source)) {
        return Ok(());
    }
    kept.raise();
    service.records.write(&mut kept, Some(fence)).await?;
    let seen = observe(service, &kept.record, true).await;
    let target = seen.facts.copy(End::Target);
    let is_moved_back = seen.facts.vmapi == Some(End::Source);
    let may_move = MayMove::check(End::Target, &kept.record.intent, &seen.facts);
    if !is_moved_back || target.is_none_or(|it| it.hidden) || may_move.is_err() {
        return Ok(());
    }
    if service.records.is_changed(&kept).await? {
        return Ok(()); // a command has come, whose rounds do it
    }
    tracing::warn!(%vm, id = %migration, "VMAPI had the VM on its old node again; moving its record to the new one");
    move_record(service, &kept.record, End::Target, &seen).await
}
