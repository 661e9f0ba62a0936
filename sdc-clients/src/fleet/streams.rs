// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the streams of the feed, and makes them again where somebody deleted them. Whoever may make a stream may lose
//! the feed, so this is for the operator's key and no node's.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, Source, StorageType};

use super::error::FleetError;
use super::name::{CHANGES, KV_NODES, VMS};

/// How long JetStream knows the id of a message.
const DUPLICATES: Duration = Duration::from_secs(120);
/// What a server adds to a message of a stream that is sourced from another.
pub(super) const SOURCE: &str = "Nats-Stream-Source";

/// How much the streams keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// On how many servers each message is.
    pub replicas: usize,
    /// How long `CHANGES` keeps a message.
    pub age: Duration,
    /// How many bytes `CHANGES` keeps.
    pub bytes: i64,
    /// How long `NODES` keeps the last heartbeat of a node.
    pub nodes_age: Duration,
}

impl Default for Shape {
    fn default() -> Shape {
        let day = Duration::from_secs(86_400);
        Shape { replicas: 3, age: 7 * day, bytes: 20 << 30, nodes_age: 7 * day }
    }
}

/// What was done to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was there, as it should be.
    Kept,
    /// It was not there.
    New,
    /// It was there, with other limits.
    Changed,
    /// It followed a `CHANGES` that is no more, or has lost what it followed.
    Again,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Made::Kept => "it was there",
            Made::New => "made: the nodes fill it by comparison",
            Made::Changed => "its limits were changed",
            Made::Again => "made again behind another CHANGES: the nodes fill it by comparison",
        })
    }
}

fn config(name: &str, shape: &Shape) -> Config {
    Config {
        name: name.to_owned(),
        num_replicas: shape.replicas,
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        allow_direct: true,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        duplicate_window: DUPLICATES,
        ..Config::default()
    }
}

fn changes(shape: &Shape) -> Config {
    Config {
        subjects: vec!["vms.*.*".to_owned()],
        max_age: shape.age,
        max_bytes: shape.bytes,
        ..config(CHANGES, shape)
    }
}

fn vms(shape: &Shape) -> Config {
    let source = Source { name: CHANGES.to_owned(), ..Source::default() };
    Config { sources: Some(vec![source]), max_messages_per_subject: 1, ..config(VMS, shape) }
}

/// As the bucket of that name has it.
fn nodes(shape: &Shape) -> Config {
    Config {
        subjects: vec!["$KV.NODES.>".to_owned()],
        max_messages_per_subject: 1,
        max_age: shape.nodes_age,
        discard: DiscardPolicy::New,
        deny_delete: true,
        allow_rollup: true,
        ..config(KV_NODES, shape)
    }
}

/// Makes what is missing. Returns what was done to each stream.
///
/// # Errors
/// If JetStream refuses, or does not answer.
pub async fn make(
    jetstream: &Context,
    shape: &Shape,
) -> Result<Vec<(&'static str, Made)>, FleetError> {
    let (changes, kept) = one(jetstream, changes(shape)).await?;
    let mut done = vec![(CHANGES, kept)];
    let (info, mut made) = one(jetstream, vms(shape)).await?;
    if made != Made::New && !follows(jetstream, &info, &changes).await? {
        // Its place in CHANGES is behind the end: it would wait there until CHANGES has grown past it.
        jetstream.delete_stream(VMS).await.map_err(FleetError::away)?;
        one(jetstream, vms(shape)).await?;
        made = Made::Again;
    }
    done.push((VMS, made));
    done.push((KV_NODES, one(jetstream, nodes(shape)).await?.1));
    Ok(done)
}

/// Returns whether `vms` can go on from its place in `changes`: neither made anew since, nor restored to an earlier state.
async fn follows(jetstream: &Context, vms: &Info, changes: &Info) -> Result<bool, FleetError> {
    if changes.created > vms.created {
        return Ok(false);
    }
    let stream = jetstream.get_stream_no_info(VMS).await.map_err(FleetError::away)?;
    if vms.state.messages == 0 {
        return Ok(true);
    }
    let last = stream.get_raw_message(vms.state.last_sequence).await.map_err(FleetError::away)?;
    let place = last.headers.get(SOURCE).and_then(|source| source_seq(source.as_str()));
    Ok(place.is_some_and(|place| place <= changes.state.last_sequence))
}

/// Reads the number in the sourced stream: the second word of the header.
pub(super) fn source_seq(header: &str) -> Option<u64> {
    header.split_whitespace().nth(1)?.parse().ok()
}

async fn one(jetstream: &Context, config: Config) -> Result<(Info, Made), FleetError> {
    match jetstream.get_stream(&config.name).await {
        Ok(stream) => {
            let info = stream.cached_info().clone();
            let (have, want) = (&info.config, &config);
            let is_same = (have.max_age, have.max_bytes, have.num_replicas)
                == (want.max_age, want.max_bytes, want.num_replicas);
            if is_same {
                return Ok((info, Made::Kept));
            }
            let info = jetstream.update_stream(&config).await.map_err(FleetError::away)?;
            Ok((info, Made::Changed))
        }
        Err(_) => match jetstream.create_stream(config).await {
            Ok(stream) => Ok((stream.cached_info().clone(), Made::New)),
            Err(error) => Err(match error.kind() {
                CreateStreamErrorKind::JetStream(refused) => {
                    FleetError::Refused { code: refused.error_code().0, text: refused.to_string() }
                }
                _ => FleetError::away(error),
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::source_seq;

    #[test]
    fn the_place_in_the_source_is_read_as_each_server_writes_it() {
        assert_eq!(source_seq("CHANGES 12"), Some(12));
        assert_eq!(source_seq("CHANGES:a1b2 12 > >"), Some(12));
        assert_eq!(source_seq("CHANGES"), None);
    }
}
