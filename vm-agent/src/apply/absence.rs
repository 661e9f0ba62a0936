// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The proof that a VM is gone.

use std::collections::BTreeSet;
use std::time::Duration;

use sdc_clients::uuid_value;
use sdc_clients::vminfod::{Incomplete, Left, View, VmFields as _, VmObject};

use crate::node::Gone;
use crate::parts::Parts;
use crate::plan::{Blocked, Crowd, Reason};

/// What a list of the node says: who is there, and of whom it is not known.
#[derive(Debug)]
struct Listed {
    shown: BTreeSet<String>,
    incomplete: Incomplete,
}

impl Listed {
    fn of(view: &View) -> Self {
        let names = |key: &'static str| {
            view.vms.iter().filter_map(move |vm| vm.get(key)?.as_str().map(uuid_value))
        };
        let shown = names("uuid").chain(names("zonename")).collect();
        Self { shown, incomplete: view.incomplete.clone() }
    }
}

/// Checks that this VM, which vminfod does not know any more, is gone and may be reported: a list that
/// was asked for later lacks it too and is complete as far as it goes, and the brake is off.
pub(super) async fn prove(parts: &Parts, vm: &str, gone: &Gone) -> Result<(), Reason> {
    let view = match parts.clients.vminfod.zones().await {
        Ok(view) => view,
        Err(error) => return Err(parts.failed(&error)),
    };
    for hidden in view.vms.iter().filter(|vm| vm.is_hidden()) {
        if let Some(uuid) = crate::plan::named(hidden) {
            parts.node.note_hidden(&uuid);
        }
    }
    let listed = Listed::of(&view);
    // One that is shown as it was read earlier may be gone like this one.
    let is_older = |vm: &VmObject| listed.incomplete.has(vm.zonename().unwrap_or_default());
    let vms = view.vms.iter().filter(|vm| !is_older(vm)).count();
    if listed.shown.contains(vm) {
        return Err(Reason::Contradicted);
    }
    if listed.incomplete.has(vm) {
        return Err(Reason::Unread);
    }
    let known = parts.node.with(|known| known.crowd());
    // The stream may not have told all that the list lacks: the worse one counts.
    let here = known.here.min(vms);
    let crowd = Crowd { here, gone: known.here + known.gone - here, ..known };
    let since: Duration = parts.clock.now().saturating_sub(gone.since);
    let second_look = parts.config.times.second_look;
    match crowd.clear(since, second_look) {
        Err(Blocked::Brake(_)) if parts.is_approved(vm) => return Ok(()),
        cleared => cleared?,
    }
    let is_stranger = !gone.seen && !parts.is_approved(vm);
    if is_stranger {
        parts.is_of_this_machine(vm).await?;
        let is_census = parts.clients.admitted.is_some();
        if let Some(gone) = parts.node.strangers(vm, is_census) {
            return Err(Blocked::Strangers { gone }.into());
        }
    }
    // Last: what the node had of it may go while the rest is asked.
    let found = parts.clients.vminfod.left(vm).await.map_err(|error| parts.failed(&error))?;
    if found.has_zone {
        return Err(Reason::Contradicted);
    }
    if found.holds().is_some() && !parts.is_approved(vm) {
        return Err(Reason::Left(Left::shows(vm)));
    }
    let left = second_look.saturating_sub(since);
    match gone.last.is_none() || !found.seen_to_go {
        true if !left.is_zero() => Err(Reason::Missed(left)),
        _ => Ok(()),
    }
}
