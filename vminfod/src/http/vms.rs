// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/vms` and `/vms/NAME`: the snapshot's shared bytes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;

use crate::store::Snapshot;
use daemon::http::Body;

/// All VMs as one array, without copying any of them.
pub fn list(snapshot: Arc<Snapshot>) -> Body {
    let bracket = |text: &'static [u8]| std::iter::once(Bytes::from_static(text));
    let inner = (0..snapshot.vms.len()).flat_map(move |at| {
        let comma = (at > 0).then_some(Bytes::from_static(b","));
        comma.into_iter().chain(snapshot.vms.get_index(at).map(|(_, vm)| vm.json.clone()))
    });
    Body::stream(stream::iter(bracket(b"[").chain(inner).chain(bracket(b"]"))))
}

/// One VM.
pub fn one(snapshot: &Snapshot, name: &str) -> Option<Bytes> {
    snapshot.vms.get(name).map(|vm| vm.json.clone())
}
