// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Makes the streams of the feed, and makes them again if they were deleted. A client that may make a stream may lose
//! the feed, so this is for the operator's key and no node's.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, Source, StorageType};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::error::FleetError;
use super::name::{CHANGES, KV_NODES, VMS};
use super::read::on;
use super::sourcing::Sourcing;

/// How long JetStream knows the id of a message.
const DUPLICATES: Duration = Duration::from_secs(120);
/// How often a place behind the end of `CHANGES` has to be read: a server that has just become the leader may be
/// behind.
const READINGS: u32 = 3;
/// Between two of them.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a stream has to be on too few servers: the leader of one that was just started may not name each.
const SHORT: u32 = 10;
/// How many messages `CHANGES` keeps of one VM: one that changes without end pushes out no other's history.
const OF_ONE_VM: i64 = 10_000;
/// How many VMs `VMS` has at most, deleted ones too: each needs room in the servers' memory.
const MOST_VMS: i64 = 500_000;
/// JetStream's error number where a stream was taken from a server and no other one is there for it.
const NO_OTHER: u64 = 10075;

/// How much the streams keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// On how many servers each message is.
    pub replicas: usize,
    /// How long `CHANGES` keeps a message.
    pub age: Duration,
    /// How many bytes `CHANGES` keeps; `VMS` takes a tenth of it besides.
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
    /// It was on fewer servers: one was away, or a levelling was cut.
    Raised,
    /// It followed a `CHANGES` that is no more, or has lost what it followed.
    Again,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Made::Kept => "it was there",
            Made::New => "made: the nodes fill it by comparison",
            Made::Changed => "its limits were changed",
            Made::Raised => "it was on fewer servers than it should be, which get it now",
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
        max_messages_per_subject: OF_ONE_VM,
        ..config(CHANGES, shape)
    }
}

/// Where it is full it takes no VM that is new: a node that makes some up fills no disk, and pushes out no other's.
fn vms(shape: &Shape) -> Config {
    let source = Source { name: CHANGES.to_owned(), ..Source::default() };
    Config {
        sources: Some(vec![source]),
        max_messages_per_subject: 1,
        max_messages: MOST_VMS,
        // No limit, -1, stays one.
        max_bytes: shape.bytes.div_euclid(10),
        discard: DiscardPolicy::New,
        ..config(VMS, shape)
    }
}

/// What the servers keep of a stream.
fn limits(config: &Config) -> (Duration, [i64; 3], usize, DiscardPolicy) {
    let Config { max_bytes, max_messages, max_messages_per_subject, .. } = *config;
    let numbers = [max_bytes, max_messages, max_messages_per_subject];
    (config.max_age, numbers, config.num_replicas, config.discard)
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

/// Lets another server lead the stream. One that leads `VMS` asks for the next message of `CHANGES` anew.
///
/// # Errors
/// If JetStream refuses, as where there is one server, or does not answer.
pub async fn step_down(jetstream: &Context, stream: &str) -> Result<(), FleetError> {
    ask(jetstream, &format!("STREAM.LEADER.STEPDOWN.{stream}"), &json!({}), stream).await
}

/// Takes a stream from a server, which removes its copy.
pub(super) async fn drop_from(
    jetstream: &Context,
    stream: &str,
    server: &str,
) -> Result<(), FleetError> {
    let target = format!("STREAM.PEER.REMOVE.{stream}");
    match ask(jetstream, &target, &json!({"peer": server}), stream).await {
        // It is done, and there is no other server for it.
        Err(FleetError::Refused { code: NO_OTHER, .. }) => Ok(()),
        done => done,
    }
}

async fn ask(
    jetstream: &Context,
    target: &str,
    asked: &Value,
    about: &str,
) -> Result<(), FleetError> {
    match jetstream.request(target.to_owned(), asked).await.map_err(FleetError::away)? {
        Response::Ok::<Value>(_) => Ok(()),
        Response::Err { error } => {
            Err(FleetError::of_code(error.error_code().0, &error.to_string(), about))
        }
    }
}

/// Puts a stream on as many servers as its configuration says; those that have it keep it.
///
/// # Errors
/// If one that has it is away or behind, or there are too few.
pub(super) async fn raise(jetstream: &Context, info: &Info) -> Result<Info, FleetError> {
    let others = info.cluster.iter().flat_map(|cluster| &cluster.replicas);
    if let Some(late) = others.into_iter().find(|it| it.offline || !it.current) {
        return Err(FleetError::away(format!("{} is away or behind", late.name)));
    }
    // Servers are looked for only where the number changes, and a server that is asked for the second change before the
    // first one is made sees none.
    let (config, fewer) = (&info.config, on(info));
    update(jetstream, &Config { num_replicas: fewer, ..config.clone() }).await?;
    for _ in 0..SHORT {
        let now = jetstream.get_stream(&config.name).await;
        if now.is_ok_and(|stream| stream.cached_info().config.num_replicas == fewer) {
            return update(jetstream, config).await;
        }
        sleep(PAUSE).await;
    }
    Err(FleetError::away(format!("{} does not change", config.name)))
}

async fn update(jetstream: &Context, config: &Config) -> Result<Info, FleetError> {
    jetstream.update_stream(config).await.map_err(|error| refused(&error, &config.name))
}

fn refused(error: &CreateStreamError, stream: &str) -> FleetError {
    match error.kind() {
        CreateStreamErrorKind::JetStream(refused) => {
            FleetError::of_code(refused.error_code().0, &refused.to_string(), stream)
        }
        _ => FleetError::away(error),
    }
}

/// Returns whether a stream is on fewer servers than its configuration says, again and again.
async fn is_short(jetstream: &Context, first: &Info) -> Result<bool, FleetError> {
    let mut info = first.clone();
    for _ in 0..SHORT {
        if on(&info) >= info.config.num_replicas {
            return Ok(false);
        }
        sleep(PAUSE).await;
        let stream = jetstream.get_stream(&info.config.name).await.map_err(FleetError::away)?;
        info = stream.cached_info().clone();
    }
    Ok(on(&info) < info.config.num_replicas)
}

/// Returns whether `vms` can go on from its place in `changes`: neither made anew since, nor restored to an earlier
/// state.
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
            // nats-server refuses that of a new stream, and takes it of one that is there; nothing follows then.
            if want.num_replicas > 1 && info.cluster.is_none() {
                return Err(FleetError::Alone);
            }
            if limits(have) != limits(want) {
                let is_more = have.num_replicas < want.num_replicas;
                let made = if is_more { Made::Raised } else { Made::Changed };
                return Ok((update(jetstream, &config).await?, made));
            }
            match is_short(jetstream, &info).await? {
                true => Ok((raise(jetstream, &info).await?, Made::Raised)),
                false => Ok((info, Made::Kept)),
            }
        }
        Err(_) => {
            let name = config.name.clone();
            let made = jetstream.create_stream(config).await;
            let stream = made.map_err(|error| refused(&error, &name))?;
            Ok((stream.cached_info().clone(), Made::New))
        }
    }
}
