// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The end of an operation, and what follows by itself.

use store::Fence;
use uuid::Uuid;

use super::order::{Failed, order};
use super::tickets;
use crate::command::message;
use crate::history;
use crate::records::{Rest, Stored};
use crate::state::Service;
use migration_core::intent::{End, Remedy};
use migration_core::machine::{After, Ending, follow, settle, stall, start};
use migration_core::protocol::What;
use migration_core::record::{Phase, Record, State, node_of};
use migration_core::resync::{Rule, Verdict};

/// Returns true if the rounds of a record go on.
pub fn is_busy(record: &Record) -> bool {
    let goes_on = record.state == State::Running
        || (record.state == State::Successful && record.intent.finalize);
    goes_on && record.intent.older.is_none()
}

/// Ends an operation, and begins the one that follows it. `sent` is what its stream carried.
pub async fn end(
    service: &Service,
    kept: &mut Stored,
    ending: Ending,
    sent: Option<u64>,
    fence: &Fence,
) -> Result<(), Failed> {
    let (rule, now) = (Rule::default(), service.clock.now());
    if let (Ending::Synced, Some(bytes)) = (&ending, sent) {
        rule.remember(&mut kept.record, bytes);
    }
    if ending == Ending::Synced {
        let (source, vm) = (kept.record.source_server_uuid, kept.record.vm_uuid);
        // Only people see it: an agent that does not answer now delays nothing.
        let held = service.agents.size(source, vm).await.ok().map(|size| size.bytes);
        kept.record.intent.held_bytes = held.or(kept.record.intent.held_bytes);
    }
    tracing::info!(vm = %kept.record.vm_uuid, id = %kept.record.id, %ending, "an operation of a migration ended");
    // Before the record is written: after a crash between the two it is done again.
    tickets::give_back(service, kept).await;
    (kept.record.intent.creation, kept.record.intent.again) = (None, None);
    kept.record.intent.creation_lost = false;
    // VMAPI has the VM on the target, or there is no target.
    if !matches!(ending, Ending::Begun | Ending::Synced | Ending::Paused | Ending::Failed(_)) {
        tickets::free(service, kept).await;
    }
    if ending.is_last() {
        over(service, &kept.record, &ending).await;
    }
    let ended = history::named(&kept.record, &ending);
    kept.record.intent.sent = match (sent, kept.record.intent.sent) {
        (None, None) => None,
        (now, before) => Some(now.unwrap_or(0).saturating_add(before.unwrap_or(0))),
    };
    kept.record.intent.finalize = false;
    let after = settle(&mut kept.record, ending.clone(), now);
    kept.ended = ended.map(|ended| history::of(&mut kept.record, ended, now));
    match after {
        After::Goes => service.records.remove(kept, Some(fence), Rest::Gone).await?,
        After::Over if kept.record.intent.over => {
            service.records.remove(kept, Some(fence), Rest::Stays).await?;
        }
        After::Over => service.records.write(kept, Some(fence)).await?,
        After::Stays => {
            let is_enough = rule.judge(&kept.record) != Verdict::Again;
            if let Some(phase) = follow(&kept.record, &ending, is_enough) {
                start(&mut kept.record, phase, message(phase), Uuid::new_v4(), now);
            }
            service.records.write(kept, Some(fence)).await?;
        }
    }
    if !matches!(ending, Ending::Begun) {
        service.records.news.forget_event(kept.record.vm_uuid).await?;
    }
    Ok(())
}

/// Ends an operation that can neither go on nor be undone now.
pub async fn give_up(
    service: &Service,
    kept: &mut Stored,
    why: &str,
    remedy: Option<Remedy>,
    fence: &Fence,
) -> Result<(), Failed> {
    let record = &mut kept.record;
    if record.intent.undo.is_none() {
        record.intent.remedy = remedy;
    }
    tracing::warn!(vm = %record.vm_uuid, id = %record.id, reason = why, "giving up an operation of a migration");
    if record.phase == Phase::Begin {
        tickets::free(service, kept).await;
    }
    let record = &mut kept.record;
    let what = history::running(record);
    record.intent.again = None;
    let has_ended = record.state == State::Successful || record.intent.undo.is_some();
    if record.state == State::Successful {
        // A finalize that failed can be repeated.
        (record.intent.finalize, record.intent.undo) = (false, None);
        record.error = Some(why.to_owned());
    } else if record.intent.undo.is_some() {
        stall(record, &why, service.clock.now());
    } else {
        migration_core::machine::give_up(record, &why);
    }
    if has_ended {
        let now = service.clock.now();
        kept.ended = Some(history::of(record, (what, history::FAILED), now));
    }
    service.records.write(kept, Some(fence)).await?;
    Ok(())
}

/// Orders both agents to forget the migration. One that does not receive it keeps a few bytes, and asks later: so does
/// that of a node that was declared dead, which is not waited for, or finds that its copy was replaced.
async fn over(service: &Service, record: &Record, ending: &Ending) {
    let is_left = matches!(
        ending,
        Ending::RolledBack { is_gone: false } | Ending::Finalized { is_gone: false }
    );
    for end in [End::Source, End::Target] {
        let is_replaced = is_left && record.intent.is_replaced(end);
        let is_dead = record.intent.is_dead(end) && record.intent.returned.is_none();
        if node_of(record, end).is_none() || is_replaced || is_dead {
            continue;
        }
        if let Err(why) = order(service, record, end, What::Over).await {
            tracing::warn!(
                vm = %record.vm_uuid,
                %end,
                reason = %why,
                "cannot make an agent forget an ended migration; the agent asks about it later, and then forgets it"
            );
        }
    }
}
