// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/vms` and `/vms/NAME`: the bytes of a snapshot, or what a filter leaves of them.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderValue, IF_NONE_MATCH};

use super::filter::Filter;
use super::pieces::pieces;
use crate::store::{Published, Snapshot, StoredVm};
use vm_model::js::to_ascii;

/// A snapshot as one client asked for it.
pub(super) struct Shown {
    pub(super) snapshot: Arc<Snapshot>,
    /// Which VMs and which of their fields; `None` for all.
    pub(super) filter: Option<Filter>,
}

impl Shown {
    /// Returns the array in pieces.
    pub(super) fn pieces(self) -> impl Iterator<Item = Bytes> + Send {
        let (mut at, mut before) = (0, &b"["[..]);
        pieces(move |piece| {
            let Some((name, vm)) = self.snapshot.vms.get_index(at) else {
                piece.extend_from_slice(if before == b"[" { b"[]" } else { b"]" });
                return false;
            };
            at += 1;
            if let Some(json) = self.json(name, vm) {
                piece.extend_from_slice(before);
                piece.extend_from_slice(&json);
                before = b",";
            }
            true
        })
    }

    fn json(&self, name: &str, vm: &StoredVm) -> Option<Bytes> {
        let Some(filter) = &self.filter else { return Some(vm.json()) };
        if !filter.admits(vm.uuid.as_deref().unwrap_or(name), &vm.traits) {
            return None;
        }
        if !filter.chooses_fields() {
            return Some(vm.json());
        }
        Some(Bytes::from(to_ascii(&filter.select(vm.object()))))
    }
}

/// Returns the JSON of the VM whose zone has this name, else of the VM with this uuid.
pub(super) fn one(snapshot: &Snapshot, name: &str) -> Option<Bytes> {
    let of_uuid = || snapshot.vms.values().find(|vm| vm.uuid.as_deref() == Some(name));
    snapshot.vms.get(name).or_else(of_uuid).map(|vm| vm.json())
}

/// Returns the ETag of a snapshot: epoch and sequence number.
pub(super) fn tag(published: &Published, snapshot: &Snapshot) -> String {
    format!("\"{}-{}\"", published.epoch, snapshot.seq)
}

/// Returns true if `If-None-Match` names the tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let mut lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    lists.any(|list| {
        let mut tags = list.split(',').map(|one| one.trim().trim_start_matches("W/"));
        tags.any(|one| one == "*" || one == tag)
    })
}

/// Returns the tag as a header value.
pub(super) fn header(tag: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(tag).ok()
}
