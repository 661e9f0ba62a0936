// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What each node has of the streams' room. The servers count messages by subject, and bytes only of the whole stream:
//! how large a node's are is told by some of them.

use std::collections::BTreeMap;

use async_nats::jetstream::message::StreamMessage;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::error::FleetError;
use super::message::Target;
use super::name::{CHANGES, VMS};
use super::read::Fleet;

/// Messages that are looked at, of all nodes, and of one at most.
const SAMPLES: usize = 4000;
const OF_ONE: usize = 16;
/// Questions that are on their way.
const AT_ONCE: usize = 16;

/// What a node has of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Messages.
    pub messages: u64,
    /// About how many bytes they are.
    pub bytes: u64,
}

/// What a node has of the streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The node.
    pub cn: String,
    /// In `CHANGES`: its history.
    pub changes: Part,
    /// In `VMS`: its VMs, deleted ones too.
    pub vms: Part,
    /// The larger of its shares of the two, in per cent of the bytes.
    pub share: u64,
}

/// Returns what each node has, those with the largest share first.
///
/// # Errors
/// If the feed does not answer.
pub async fn usage(fleet: &Fleet) -> Result<Vec<Usage>, FleetError> {
    let (changes, vms) = (parts(fleet, CHANGES).await?, parts(fleet, VMS).await?);
    let sum = |all: &BTreeMap<String, Part>| all.values().map(|it| it.bytes).sum::<u64>().max(1);
    let sums = [sum(&changes), sum(&vms)];
    let mut all: BTreeMap<String, [Part; 2]> = BTreeMap::new();
    for (nth, parts) in [changes, vms].into_iter().enumerate() {
        for (cn, part) in parts {
            all.entry(cn).or_default()[nth] = part;
        }
    }
    let of = |(cn, [changes, vms]): (String, [Part; 2])| {
        let share = (changes.bytes * 100 / sums[0]).max(vms.bytes * 100 / sums[1]);
        Usage { cn, changes, vms, share }
    };
    let mut all: Vec<Usage> = all.into_iter().map(of).collect();
    all.sort_by_key(|it| std::cmp::Reverse((it.share, it.changes.bytes)));
    Ok(all)
}

async fn parts(fleet: &Fleet, name: &str) -> Result<BTreeMap<String, Part>, FleetError> {
    let handle = fleet.stream(name).await?;
    let subjects = handle.info_with_subjects("vms.*.*").await.map_err(FleetError::away)?;
    let subjects: Vec<(String, usize)> = subjects.try_collect().await.map_err(FleetError::away)?;
    let mut nodes: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
    for (subject, messages) in subjects {
        // Nobody may publish under another one.
        let Some(target) = Target::of(&subject) else { continue };
        nodes.entry(target.cn).or_default().push((subject, messages as u64));
    }
    let each = (SAMPLES / nodes.len().max(1)).clamp(1, OF_ONE);
    let sizes = nodes.iter().flat_map(|(cn, subjects)| {
        let some = subjects.iter().step_by(subjects.len().div_ceil(each));
        some.map(move |(subject, _)| (cn, subject))
    });
    let sizes = stream::iter(sizes).map(|(cn, subject)| {
        let handle = &handle;
        // One that goes meanwhile is not counted.
        async move { (cn, handle.get_last_raw_message_by_subject(subject).await.ok().map(size)) }
    });
    let mut seen: BTreeMap<&String, (u64, u64)> = BTreeMap::new();
    let mut sizes = std::pin::pin!(sizes.buffer_unordered(AT_ONCE));
    while let Some((cn, size)) = sizes.next().await {
        let (count, bytes) = seen.entry(cn).or_default();
        *count += u64::from(size.is_some());
        *bytes += size.unwrap_or_default();
    }
    let bytes = |cn: &String, messages: u64| {
        let (count, bytes) = seen.get(cn).copied().unwrap_or_default();
        messages * bytes / count.max(1)
    };
    let part = |(cn, subjects): (&String, &Vec<(String, u64)>)| {
        let messages = subjects.iter().map(|(_, messages)| messages).sum();
        (cn.clone(), Part { messages, bytes: bytes(cn, messages) })
    };
    Ok(nodes.iter().map(part).collect())
}

/// What a message needs in a stream.
fn size(message: StreamMessage) -> u64 {
    let of = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + value.as_str().len() + 4).sum::<usize>()
    };
    (message.payload.len() + message.subject.len() + message.headers.iter().map(of).sum::<usize>())
        as u64
}
