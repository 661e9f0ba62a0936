// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the streams hold now: each node's last heartbeat, what happened to a VM, whether the streams are well.

use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt as _;
use jiff::Timestamp;

use super::access::{Access, PATIENCE};
use super::error::FleetError;
use super::message::{Kind, Labels, MARKER, Message, Target};
use super::name::{CHANGES, KV_NODES, VMS};
use super::node::Node;
use super::streams::{SOURCE, source_seq};
use crate::jitter::Jitter;

/// The feed, for reading. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(super) jetstream: Context,
}

/// The last heartbeat of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// What it said.
    pub node: Node,
    /// When, by the clock of the feed's servers.
    pub at: Timestamp,
}

impl Beat {
    /// Returns the time since.
    pub fn age(&self, now: Timestamp) -> Duration {
        Duration::try_from(now.duration_since(self.at)).unwrap_or_default()
    }

    /// Returns true if the node was heard within three heartbeats.
    pub fn is_up(&self, now: Timestamp) -> bool {
        self.age(now) <= Duration::from_secs(self.node.every_s.saturating_mul(3))
    }
}

/// How the streams are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The last message of `CHANGES`.
    pub last: u64,
    /// How many of them `VMS` does not show yet.
    pub lag: u64,
}

/// A message as a consumer gets it.
pub(super) struct Received {
    pub(super) subject: String,
    /// None for a message that no agent wrote.
    pub(super) message: Option<Message>,
    /// Its number in the stream that was read.
    pub(super) seq: u64,
    pub(super) pending: u64,
    pub(super) at: Timestamp,
    pub(super) body: bytes::Bytes,
}

impl Fleet {
    /// Connects; `name` is what the servers call this client.
    ///
    /// # Errors
    /// If a file of the configuration cannot be used.
    pub async fn connect(access: &Access, name: &str, jitter: Jitter) -> Result<Fleet, FleetError> {
        Ok(Fleet::with_client(access.connect(name, jitter).await?, access))
    }

    /// Reads through this client, under the prefix of `access`.
    pub fn with_client(client: async_nats::Client, access: &Access) -> Fleet {
        Fleet { jetstream: jetstream::with_prefix(client, &access.api) }
    }

    /// Returns JetStream, for who makes the streams.
    pub fn jetstream(&self) -> &Context {
        &self.jetstream
    }

    /// Returns the last heartbeat of each node. One that cannot be read is left out.
    ///
    /// # Errors
    /// If the feed does not answer.
    pub async fn nodes(&self) -> Result<Vec<Beat>, FleetError> {
        let all = self.held(KV_NODES, "$KV.NODES.*", DeliverPolicy::LastPerSubject).await?;
        let beat = |received: Received| {
            let node = serde_json::from_slice(&received.body).ok()?;
            Some(Beat { node, at: received.at })
        };
        Ok(all.into_iter().filter_map(beat).collect())
    }

    /// Returns what `CHANGES` has under `filter`, in its order, without what no agent wrote.
    ///
    /// # Errors
    /// If the feed does not answer.
    pub async fn changes(&self, filter: &str) -> Result<Vec<Message>, FleetError> {
        let found = self.held(CHANGES, filter, DeliverPolicy::All).await?;
        Ok(found.into_iter().filter_map(|received| received.message).collect())
    }

    /// Returns what `CHANGES` has of a VM, on whatever node, since a time, and the markers of those nodes: at each the
    /// history before is not completely known. In the order of the stream.
    ///
    /// # Errors
    /// If the feed does not answer.
    pub async fn changes_of(
        &self,
        vm: &str,
        since: Option<Timestamp>,
    ) -> Result<Vec<(Timestamp, Message)>, FleetError> {
        let from = || match since.and_then(jetstream_time) {
            Some(start_time) => DeliverPolicy::ByStartTime { start_time },
            None => DeliverPolicy::All,
        };
        let mut found = self.held(CHANGES, &format!("vms.*.{vm}"), from()).await?;
        let nodes: std::collections::BTreeSet<String> = found
            .iter()
            .filter_map(|received| Some(received.message.as_ref()?.target.cn.clone()))
            .collect();
        for cn in nodes {
            found.extend(self.held(CHANGES, &format!("vms.{cn}.{MARKER}"), from()).await?);
        }
        found.sort_by_key(|received| received.seq);
        Ok(found.into_iter().filter_map(|it| Some((it.at, it.message?))).collect())
    }

    /// Returns how the streams are.
    ///
    /// # Errors
    /// If one is missing, or the feed does not answer.
    pub async fn health(&self) -> Result<Health, FleetError> {
        let last = self.stream(CHANGES).await?.cached_info().state.last_sequence;
        let vms = self.stream(VMS).await?;
        let lag = vms.cached_info().sources.first().map_or(0, |source| source.lag);
        Ok(Health { last, lag })
    }

    pub(super) async fn stream(&self, name: &str) -> Result<Stream, FleetError> {
        use async_nats::jetstream::context::GetStreamErrorKind as Kind;
        self.jetstream.get_stream(name).await.map_err(|error| match error.kind() {
            Kind::JetStream(refused) => {
                FleetError::of_code(refused.error_code().0, &refused.to_string(), name)
            }
            _ => FleetError::away(error),
        })
    }

    /// Returns what a stream holds now under `filter` (empty: all).
    pub(super) async fn held(
        &self,
        stream: &str,
        filter: &str,
        from: DeliverPolicy,
    ) -> Result<Vec<Received>, FleetError> {
        let (pending, mut messages) = self.open(stream, filter, from).await?;
        let mut all = Vec::new();
        if pending == 0 {
            return Ok(all);
        }
        loop {
            let next = tokio::time::timeout(PATIENCE, next(&mut messages)).await;
            let received =
                next.map_err(|_| FleetError::away("the stream ends before its end"))??;
            let is_last = received.pending == 0;
            all.push(received);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Reads a stream from here on; returns how many messages it has to give now.
    pub(super) async fn open(
        &self,
        stream: &str,
        filter: &str,
        from: DeliverPolicy,
    ) -> Result<(u64, Ordered), FleetError> {
        let handle = self.jetstream.get_stream_no_info(stream).await.map_err(FleetError::away)?;
        let config = OrderedConfig {
            filter_subject: filter.to_owned(),
            deliver_policy: from,
            ..OrderedConfig::default()
        };
        let consumer =
            handle.create_consumer(config).await.map_err(|error| match error.kind() {
                ConsumerErrorKind::JetStream(refused) => {
                    FleetError::of_code(refused.error_code().0, &refused.to_string(), stream)
                }
                _ => FleetError::away(error),
            })?;
        let pending = consumer.cached_info().num_pending;
        Ok((pending, consumer.messages().await.map_err(FleetError::away)?))
    }
}

/// Waits for the next message. Cancel-safe.
pub(super) async fn next(messages: &mut Ordered) -> Result<Received, FleetError> {
    let next = messages.next().await.ok_or_else(|| FleetError::away("the stream ended"))?;
    let message = next.map_err(FleetError::away)?;
    let info = message.info().map_err(FleetError::away)?;
    let (seq, pending) = (info.stream_sequence, info.pending);
    let at = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos()).unwrap_or_default();
    let headers = message.headers.clone().unwrap_or_default();
    let source = headers.get(SOURCE).and_then(|source| source_seq(source.as_str()));
    let subject = message.subject.to_string();
    let read = || {
        let (target, labels) = (Target::of(&subject)?, Labels::read(&headers, false)?);
        // A marker is no VM's, and a VM has none.
        (target.vm.is_none() == (labels.kind == Kind::Resync)).then(|| Message {
            target,
            labels,
            seq: source.unwrap_or(seq),
            body: message.payload.clone(),
        })
    };
    let read = read();
    Ok(Received { subject, message: read, seq, pending, at, body: message.payload.clone() })
}

fn jetstream_time(at: Timestamp) -> Option<async_nats::datetime::DateTime> {
    async_nats::datetime::from_nanos(at.as_nanosecond()).ok()
}
