// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `/vms` and `/vms/NAME`: the snapshot's shared bytes, or what a filter leaves of them.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use http::header::{HeaderValue, IF_NONE_MATCH};

use daemon::http::{Body, Chunk};

use super::filter::Filter;
use crate::json::to_ascii;
use crate::store::{Published, Snapshot};

/// VMs in one chunk: with what frames it as many pieces as the system takes at once.
const TOGETHER: usize = 60;

/// A snapshot as one client asked to see it.
pub struct Shown {
    /// All VMs.
    pub snapshot: Arc<Snapshot>,
    /// Which of them, and what of each.
    pub filter: Option<Filter>,
}

impl Shown {
    /// The array, piece by piece, without copying what is shown whole.
    pub fn pieces(self) -> impl Iterator<Item = Bytes> + Send {
        let bracket = |text: &'static [u8]| std::iter::once(Bytes::from_static(text));
        let mut first = true;
        let vms = (0..self.snapshot.vms.len()).filter_map(move |at| self.vm(at));
        let inner = vms.flat_map(move |json| {
            let comma = (!std::mem::take(&mut first)).then_some(Bytes::from_static(b","));
            comma.into_iter().chain([json])
        });
        bracket(b"[").chain(inner).chain(bracket(b"]"))
    }

    fn vm(&self, at: usize) -> Option<Bytes> {
        let (name, vm) = self.snapshot.vms.get_index(at)?;
        let Some(filter) = &self.filter else { return Some(vm.json()) };
        if !filter.admits(vm.uuid.as_deref().unwrap_or(name), &vm.traits) {
            return None;
        }
        if !filter.chooses_fields() {
            return Some(vm.json());
        }
        Some(Bytes::from(to_ascii(&*filter.select(&vm.object()))))
    }

    /// All of it as a body: the bytes of many VMs go out together, as they lie.
    pub fn body(self) -> Body {
        if self.filter.is_some() {
            return Body::stream(stream::iter(self.pieces()));
        }
        let last = self.snapshot.vms.len().saturating_sub(1);
        let chunk = move |from: usize| {
            let open = (from == 0).then_some(Bytes::from_static(b"["));
            let range = from..(from + TOGETHER).min(last + 1);
            let close = (range.end > last).then_some(Bytes::from_static(b"]"));
            let vms = range.filter_map(|at| {
                let (_, vm) = self.snapshot.vms.get_index(at)?;
                Some(if at == last { vm.json() } else { vm.listed.clone() })
            });
            open.into_iter().chain(vms).chain(close).collect::<Chunk>()
        };
        Body::chunks(stream::iter((0..=last).step_by(TOGETHER).map(chunk)))
    }
}

/// One VM.
pub fn one(snapshot: &Snapshot, name: &str) -> Option<Bytes> {
    snapshot.vms.get(name).map(|vm| vm.json())
}

/// The tag of a snapshot: where it stands in the stream of events.
pub fn tag(published: &Published, snapshot: &Snapshot) -> String {
    format!("\"{}-{}\"", published.epoch, snapshot.seq)
}

/// Does the client say that it has what this tag stands for?
pub fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let mut lists = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    lists.any(|list| {
        let mut tags = list.split(',').map(|one| one.trim().trim_start_matches("W/"));
        tags.any(|one| one == "*" || one == tag)
    })
}

/// The tag as a header.
pub fn header(tag: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(tag).ok()
}
