// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the streams of the feed, and makes them again where somebody deleted them. Whoever may make a stream may lose
//! the feed, so this is for the operator's key and no node's.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, Source, StorageType};
use tokio::time::sleep;

use super::error::FleetError;
use super::name::{CHANGES, KV_NODES, VMS};
use super::sourcing::Sourcing;

/// How long JetStream knows the id of a message.
const DUPLICATES: Duration = Duration::from_secs(120);
/// How often a place behind the end of `CHANGES` has to be read: a server that has just become the leader may be
/// behind.
const READINGS: u32 = 3;
/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);

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
            Made::Again => "made again: CHANGES and the nodes fill it",
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
        again(jetstream, shape).await?;
        made = Made::Again;
    }
    done.push((VMS, made));
    done.push((KV_NODES, one(jetstream, nodes(shape)).await?.1));
    Ok(done)
}

/// Makes `VMS` again: the server fills it from `CHANGES`, and the nodes with what that does not have any more.
///
/// # Errors
/// As [`make`].
pub async fn again(jetstream: &Context, shape: &Shape) -> Result<(), FleetError> {
    // One that is gone already, such as after an attempt that was cut, need not go.
    match jetstream.delete_stream(VMS).await {
        Ok(_) => {}
        Err(error) if jetstream.get_stream(VMS).await.is_ok() => {
            return Err(FleetError::away(error));
        }
        Err(_) => {}
    }
    one(jetstream, vms(shape)).await?;
    Ok(())
}

/// Gives each server what the one that leads the stream has: the others drop what they have, and get it anew. Where it is
/// cut in the middle, [`make`] does the rest.
///
/// # Errors
/// If JetStream refuses, or does not answer.
pub async fn level(jetstream: &Context, stream: &str) -> Result<(), FleetError> {
    let stream = jetstream.get_stream(stream).await.map_err(FleetError::away)?;
    let config = &stream.cached_info().config;
    for num_replicas in [1, config.num_replicas] {
        let config = Config { num_replicas, ..config.clone() };
        jetstream.update_stream(config).await.map_err(FleetError::away)?;
    }
    Ok(())
}

/// Lets another server lead `VMS`, which asks for the next message of `CHANGES` anew.
///
/// # Errors
/// If JetStream refuses, as where there is one server, or does not answer.
pub async fn step_down(jetstream: &Context) -> Result<(), FleetError> {
    use async_nats::jetstream::response::Response;
    let asked = serde_json::json!({});
    let answer = jetstream.request(format!("STREAM.LEADER.STEPDOWN.{VMS}"), &asked).await;
    match answer.map_err(FleetError::away)? {
        Response::Ok::<serde_json::Value>(_) => Ok(()),
        Response::Err { error } => {
            Err(FleetError::of_code(error.error_code().0, &error.to_string(), VMS))
        }
    }
}

/// Returns whether `vms` can go on from its place in `changes`: neither made anew since, nor restored to an earlier state.
async fn follows(jetstream: &Context, vms: &Info, changes: &Info) -> Result<bool, FleetError> {
    if changes.created > vms.created {
        return Ok(false);
    }
    for _ in 0..READINGS {
        if !Sourcing::read(jetstream).await?.is_ahead() {
            return Ok(true);
        }
        sleep(PAUSE).await;
    }
    Ok(false)
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
