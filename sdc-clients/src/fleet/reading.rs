// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One reading of a stream: an ephemeral consumer whose messages are pulled, each once and in the order of the stream,
//! or an error. Who reads on makes another reading behind the last message that it took.
//!
//! The client's ordered consumer is not used: on the first missed heartbeat it registers no waker, and it makes its
//! consumer again from the first message of the stream where it had none, whatever was asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::Statistics;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull::{self, Config};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::stream::ConsumerErrorKind;
use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio::time::timeout;

use super::error::FleetError;
use super::message::{BEHIND, Kind, Labels, Message, Target};
use super::sourcing::{SOURCE, source_seq};

/// The server says that often that there is nothing; silence for twice as long is a loss.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// A consumer that no client reads is removed by the server.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// The server that is to read is drawn among those of the stream, for half a minute after its death too: another draw
/// is quicker than to wait for a dead one.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);
/// How often it is drawn.
const DRAWS: u32 = 4;
/// How many messages are on their way at most.
const BATCH: usize = 500;

/// A message as a consumer gets it.
pub(super) struct Received {
    pub(super) subject: String,
    /// None for a message that no agent wrote.
    pub(super) message: Option<Message>,
    /// Its number in the stream that was read.
    pub(super) seq: u64,
    /// How many the server that reads has behind it now.
    pub(super) pending: u64,
    pub(super) at: Timestamp,
    /// How old it was when the reading began, by the clock of the servers.
    pub(super) age: Duration,
    pub(super) body: bytes::Bytes,
}

/// What is to be read of each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Headers,
}

/// The connection on which messages come. What is on its way when it ends is lost, and the server does not send it
/// again.
struct Connection {
    statistics: Arc<Statistics>,
    nth: u64,
}

impl Connection {
    fn of(jetstream: &Context) -> Connection {
        let statistics = jetstream.client().statistics();
        let nth = statistics.connects.load(Ordering::Relaxed);
        Connection { statistics, nth }
    }

    fn is_another(&self) -> bool {
        self.statistics.connects.load(Ordering::Relaxed) != self.nth
    }
}

/// A stream being read. One server of the cluster reads, possibly one that is behind.
pub(super) struct Reading {
    messages: pull::Stream,
    connection: Connection,
    /// The number of the last message among those of this consumer.
    nth: u64,
    /// How many the server had at the beginning.
    pub(super) pending: u64,
    /// The server that reads.
    pub(super) server: String,
    /// When it began, by the clock of the servers: the reader's own may show anything.
    began: Timestamp,
}

/// How old a message was then; one that came later is new.
fn age(at: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(at)).unwrap_or_default()
}

impl Reading {
    /// Begins to read what passes `filter`.
    pub(super) async fn begin(
        jetstream: &Context,
        stream: &str,
        filter: &str,
        from: DeliverPolicy,
        part: Part,
    ) -> Result<Reading, FleetError> {
        let config = Config {
            headers_only: part == Part::Headers,
            filter_subject: filter.to_owned(),
            deliver_policy: from,
            ack_policy: AckPolicy::None,
            inactive_threshold: FORGOTTEN,
            num_replicas: 1,
            memory_storage: true,
            ..Config::default()
        };
        let mut made = None;
        for _ in 0..DRAWS {
            let making = jetstream.create_consumer_on_stream(config.clone(), stream);
            made = timeout(BEGINS_WITHIN, making).await.ok();
            if made.is_some() {
                break;
            }
        }
        let made = made.ok_or_else(|| FleetError::away("no server begins to read"))?;
        let consumer = made.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(refused) => {
                FleetError::of_code(refused.error_code().0, &refused.to_string(), stream)
            }
            _ => FleetError::away(error),
        })?;
        let pending = consumer.cached_info().num_pending;
        let server = consumer.cached_info().cluster.as_ref().and_then(|it| it.leader.clone());
        let began = consumer.cached_info().created.unix_timestamp_nanos();
        let began = Timestamp::from_nanosecond(began).unwrap_or_default();
        let pulled = consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT);
        // Before the first message can be on its way.
        let connection = Connection::of(jetstream);
        let messages = pulled.messages().await.map_err(FleetError::away)?;
        let server = server.unwrap_or_default();
        Ok(Reading { messages, connection, nth: 0, pending, server, began })
    }

    /// Waits for the next message. Cancel-safe. After an error this reading is over.
    pub(super) async fn next(&mut self) -> Result<Received, FleetError> {
        let next = loop {
            if self.connection.is_another() {
                return Err(FleetError::away("the connection was made anew"));
            }
            if let Ok(next) = timeout(HEARTBEAT, self.messages.next()).await {
                break next;
            }
        };
        let next = next.ok_or_else(|| FleetError::away("the stream ended"))?;
        let message = next.map_err(FleetError::away)?;
        let info = message.info().map_err(FleetError::away)?;
        if info.consumer_sequence != self.nth + 1 {
            return Err(FleetError::away("a message was lost on its way"));
        }
        self.nth = info.consumer_sequence;
        let (seq, pending) = (info.stream_sequence, info.pending);
        let at = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos());
        let headers = message.headers.clone().unwrap_or_default();
        let source = headers.get(SOURCE).and_then(|source| source_seq(source.as_str()));
        let behind = headers.get(BEHIND).and_then(|behind| behind.as_str().parse().ok());
        let subject = message.subject.to_string();
        let read = || {
            let (target, labels) = (Target::of(&subject)?, Labels::read(&headers, false)?);
            // A marker is no VM's, and a VM has none.
            (target.vm.is_none() == (labels.kind == Kind::Resync)).then(|| Message {
                target,
                labels,
                seq: source.unwrap_or(seq),
                behind: behind.unwrap_or(0),
                body: message.payload.clone(),
            })
        };
        let read = read();
        let (at, body) = (at.unwrap_or_default(), message.payload.clone());
        let age = age(at, self.began);
        Ok(Received { subject, message: read, seq, pending, at, age, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_old_as_the_servers_clock_says_and_never_younger_than_new() {
        // N25
        let second = |nth: i64| Timestamp::from_second(1_700_000_000 + nth).unwrap();
        assert_eq!(age(second(0), second(40)), Duration::from_secs(40));
        assert_eq!(age(second(50), second(40)), Duration::ZERO);
    }
}
