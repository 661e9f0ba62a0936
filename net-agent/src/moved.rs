// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMs that the node had and gave to other nodes: while they put the brake on, VMAPI is asked about them, and those
//! that live on another node count no more.

use futures_util::StreamExt as _;

use crate::apply::ask_vmapi;
use crate::parts::Parts;

/// Requests at once.
const AT_ONCE: usize = 4;

/// Asks VMAPI about the VMs that are missing, if the node shows so little that its brake is on, or that VMAPI's word on
/// deletes does not count.
pub(crate) async fn forget(parts: &Parts) {
    let missing = parts.node.with(|inventory| {
        let view = &inventory.view;
        let scale = parts.scale(view, 0);
        let is_little = [scale.had, scale.day].iter().any(|had| had.shrunk().is_some())
            || scale.reference.is_some_and(|reference| !reference.is_most());
        match view.is_complete() && is_little && parts.clients.vmapi.is_some() {
            true => parts.brake.to_ask(|vm| view.confirms(vm)),
            false => Vec::new(),
        }
    });
    let cn_uuid = parts.gate.cn_uuid();
    let asked = futures_util::stream::iter(missing).map(|vm| async move {
        let is_elsewhere = ask_vmapi(parts, &vm).await.places_elsewhere(cn_uuid);
        (vm, is_elsewhere)
    });
    let asked: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    for (vm, _) in asked.iter().filter(|(_, is_elsewhere)| *is_elsewhere) {
        tracing::info!(vm, "VMAPI has the VM on another node; the brake no longer counts it");
        parts.brake.moved(vm);
    }
}
