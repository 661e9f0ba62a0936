// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the streams hold now: each node's last heartbeat, what happened to a VM, whether the streams are well.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::{ClusterInfo, DiscardPolicy, Info, Stream};
use async_nats::jetstream::{self, Context};
use jiff::Timestamp;

use super::access::{Access, PATIENCE};
use super::error::FleetError;
use super::link::Link;
use super::message::{MARKER, Message, Position, Target};
use super::name::{CHANGES, KV_NODES, VMS};
use super::node::Node;
use super::reading::{Part, Reading, Received};
use super::server::Server;
use super::sourcing::Sourcing;
use crate::jitter::Jitter;

/// The streams of the feed.
const STREAMS: [&str; 3] = [CHANGES, VMS, KV_NODES];

/// Servers of a stream hear each other every second.
const UNHEARD: Duration = Duration::from_secs(10);

/// The last event that was read of each subject: an agent that was cut off, and was answered by a server that is
/// behind, may have published one twice.
#[derive(Debug, Default)]
struct Once(BTreeMap<Target, Position>);

impl Once {
    fn is_first(&mut self, message: &Message) -> bool {
        if message.labels.compared {
            return true;
        }
        let last = self.0.insert(message.target.clone(), message.labels.at.clone());
        match last {
            Some(last) if last.has(&message.labels.at) => {
                self.0.insert(message.target.clone(), last);
                false
            }
            _ => true,
        }
    }
}

/// The feed, for reading. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(super) jetstream: Context,
    server: Server,
}

/// The last heartbeat of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// What it said.
    pub node: Node,
    /// When, by the clock of the feed's servers.
    pub at: Timestamp,
    /// How long ago, when the reading that gave it began; by the same clock, whatever the reader's shows.
    pub age: Duration,
}

impl Beat {
    /// Returns true if the node had been heard within three heartbeats.
    pub fn is_up(&self) -> bool {
        self.age <= Duration::from_secs(self.node.every_s.saturating_mul(3))
    }
}

/// How a stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Its name.
    pub stream: &'static str,
    /// How many messages it has.
    pub messages: u64,
    /// And how many bytes.
    pub bytes: u64,
    /// The server that leads it; none where there is one server.
    pub leader: Option<String>,
    /// The servers that are there and do not have all of it now. While there is one, no other server may be stopped:
    /// the rest may be too few to elect a leader.
    pub behind: Vec<String>,
    /// Those that are away.
    pub away: Vec<String>,
    /// On how many servers fewer than it should be it is.
    pub too_few: usize,
    /// How many messages it lacks of the stream that it is sourced from.
    pub lag: u64,
    /// It is `VMS`, and takes no VM that is new, or soon none.
    pub full: bool,
}

impl Health {
    /// Returns true if it is on as many servers as it should be, and each has all of it.
    pub fn is_whole(&self) -> bool {
        self.behind.is_empty() && self.away.is_empty() && self.too_few == 0
    }
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
    pub fn with_client(client: Link, access: &Access) -> Fleet {
        let jetstream = jetstream::with_prefix((*client).clone(), &access.api);
        Fleet { jetstream, server: Server::new(client) }
    }

    /// Says instead of "no answer" why there is no connection, where there is none.
    pub fn explain(&self, error: FleetError) -> FleetError {
        self.server.explain(error)
    }

    /// Returns JetStream, for the program that makes the streams.
    pub fn jetstream(&self) -> &Context {
        &self.jetstream
    }

    /// Returns the last heartbeat of each node, with what is believed of it.
    ///
    /// # Errors
    /// If the feed does not answer.
    pub async fn nodes(&self) -> Result<Vec<Beat>, FleetError> {
        let all = self.latest(KV_NODES, "$KV.NODES.*", Part::Whole).await?;
        let all = all.into_iter().filter(|it| !it.body.is_empty());
        let beat = |received: Received| {
            let node = Node::read(&received.subject, &received.body)?;
            Some(Beat { node, at: received.at, age: received.age })
        };
        Ok(all.filter_map(beat).collect())
    }

    /// Returns what `CHANGES` has under `filter`, in its order, without what no agent wrote.
    ///
    /// # Errors
    /// If the feed does not answer.
    pub async fn changes(&self, filter: &str) -> Result<Vec<Message>, FleetError> {
        let found = self.held(CHANGES, filter, DeliverPolicy::All, Part::Whole).await?;
        let mut once = Once::default();
        let messages = found.into_iter().filter_map(|received| received.message);
        Ok(messages.filter(|message| once.is_first(message)).collect())
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
        let mut found = self.held(CHANGES, &format!("vms.*.{vm}"), from(), Part::Whole).await?;
        let nodes: std::collections::BTreeSet<String> = found
            .iter()
            .filter_map(|received| Some(received.message.as_ref()?.target.cn.clone()))
            .collect();
        for cn in nodes {
            let marker = format!("vms.{cn}.{MARKER}");
            found.extend(self.held(CHANGES, &marker, from(), Part::Whole).await?);
        }
        found.sort_by_key(|received| received.seq);
        let mut once = Once::default();
        let found = found.into_iter().filter_map(|it| Some((it.at, it.message?)));
        Ok(found.filter(|(_, message)| once.is_first(message)).collect())
    }

    /// Returns how the streams are.
    ///
    /// # Errors
    /// If one is missing, or has no leader now.
    pub async fn health(&self) -> Result<Vec<Health>, FleetError> {
        let mut all = Vec::new();
        for name in STREAMS {
            all.push(self.health_of(name).await?);
        }
        let lag = Sourcing::read(&self.jetstream).await?.lag();
        all.iter_mut().filter(|health| health.stream == VMS).for_each(|health| health.lag = lag);
        Ok(all)
    }

    /// Returns how each stream is, or why no server that leads it answers. What `VMS` lacks is not read.
    ///
    /// # Errors
    /// If one is missing, or none of them has a leader that answers.
    pub async fn led(&self) -> Result<Vec<(&'static str, Result<Health, String>)>, FleetError> {
        let (mut all, mut last) = (Vec::new(), None);
        for name in STREAMS {
            match self.health_of(name).await {
                Ok(health) => all.push((name, Ok(health))),
                // The server that leads it answers, and no other one.
                Err(FleetError::Away(why)) => {
                    all.push((name, Err(why.clone())));
                    last = Some(FleetError::Away(why));
                }
                Err(error) => return Err(error),
            }
        }
        match last.filter(|_| all.iter().all(|(_, health)| health.is_err())) {
            Some(error) => Err(error),
            None => Ok(all),
        }
    }

    async fn health_of(&self, name: &'static str) -> Result<Health, FleetError> {
        let stream = self.stream(name).await?;
        let info = stream.cached_info();
        let servers = info.cluster.as_ref();
        let (away, there): (Vec<_>, Vec<_>) =
            servers.iter().flat_map(|it| &it.replicas).partition(|it| it.offline);
        let behind = there.into_iter().filter(|it| !it.current || it.lag.unwrap_or(0) > 0);
        Ok(Health {
            stream: name,
            messages: info.state.messages,
            bytes: info.state.bytes,
            leader: servers.and_then(|servers| servers.leader.clone()),
            behind: behind.map(|it| it.name.clone()).collect(),
            away: away.into_iter().map(|it| it.name.clone()).collect(),
            too_few: info.config.num_replicas.saturating_sub(on(info)),
            lag: 0,
            full: is_full(info),
        })
    }

    pub(super) async fn stream(&self, name: &str) -> Result<Stream, FleetError> {
        use async_nats::jetstream::context::GetStreamErrorKind as Kind;
        let found = self.jetstream.get_stream(name).await.map_err(|error| match error.kind() {
            Kind::JetStream(refused) => {
                FleetError::of_code(refused.error_code().0, &refused.to_string(), name)
            }
            _ => FleetError::away(error),
        });
        let found = found.and_then(|stream| {
            match stream.cached_info().cluster.as_ref().and_then(is_apart) {
                Some(why) => Err(FleetError::Away(format!("{name}: {why}"))),
                None => Ok(stream),
            }
        });
        match found {
            Ok(stream) => Ok(stream),
            Err(error) => self.server.answered(Err(error)).await,
        }
    }

    /// Begins to read what passes `filter`.
    pub(super) async fn begin(
        &self,
        stream: &str,
        filter: &str,
        from: DeliverPolicy,
        part: Part,
    ) -> Result<Reading, FleetError> {
        let begun = Reading::begin(&self.jetstream, stream, filter, from, part).await;
        self.server.answered(begun).await
    }

    /// Returns the last message of each subject of a stream that keeps one of each.
    pub(super) async fn latest(
        &self,
        stream: &str,
        filter: &str,
        part: Part,
    ) -> Result<Vec<Received>, FleetError> {
        Ok(last_of_each(self.held(stream, filter, DeliverPolicy::All, part).await?))
    }

    /// Returns what a stream holds now under `filter`. The server that reads may be behind: the reading ends at what
    /// the stream's leader had last. What is replaced meanwhile comes behind that, and is read too; how much is still
    /// pending does not end the reading, since a server that drops what it has counted never comes to 0.
    async fn held(
        &self,
        stream: &str,
        filter: &str,
        from: DeliverPolicy,
        part: Part,
    ) -> Result<Vec<Received>, FleetError> {
        let mut all = Vec::new();
        let Some(mut last) = self.last(stream, filter, &from).await? else { return Ok(all) };
        let mut is_second = false;
        let mut reading = self.begin(stream, filter, from, part).await?;
        loop {
            let next = tokio::time::timeout(PATIENCE, reading.next()).await;
            let received = next.map_err(|_| late())??;
            let (seq, pending) = (received.seq, received.pending);
            all.push(received);
            if seq < last {
                continue;
            }
            if pending > 0 && !std::mem::replace(&mut is_second, true) {
                last = self.last(stream, filter, &from).await?.unwrap_or(last);
                if seq < last {
                    continue;
                }
            }
            return Ok(all);
        }
    }

    /// Returns the number of the last message under `filter`, as the stream's leader has it; none if a reading from
    /// there has nothing to give.
    pub(super) async fn last(
        &self,
        stream: &str,
        filter: &str,
        from: &DeliverPolicy,
    ) -> Result<Option<u64>, FleetError> {
        use async_nats::jetstream::stream::RawMessageErrorKind as Kind;
        let handle = self.jetstream.get_stream_no_info(stream).await.map_err(FleetError::away)?;
        match handle.get_last_raw_message_by_subject(filter).await {
            Ok(last) => Ok(match from {
                DeliverPolicy::ByStartTime { start_time } if last.time < *start_time => None,
                _ => Some(last.sequence),
            }),
            Err(error) => match error.kind() {
                Kind::NoMessageFound => Ok(None),
                Kind::JetStream(refused) => {
                    Err(FleetError::of_code(refused.error_code().0, &refused.to_string(), stream))
                }
                _ => Err(FleetError::away(error)),
            },
        }
    }
}

pub(super) fn late() -> FleetError {
    FleetError::away("the server that reads is behind")
}

/// On how many servers a stream is, as the one that leads it says.
pub(super) fn on(info: &Info) -> usize {
    info.cluster.as_ref().map_or(1, |it| usize::from(it.leader.is_some()) + it.replicas.len())
}

/// Whether one that keeps what it has has less than a twentieth of its room left.
fn is_full(info: &Info) -> bool {
    let (config, state) = (&info.config, &info.state);
    let limits = [(state.bytes, config.max_bytes), (state.messages, config.max_messages)];
    let is_near = |(have, most): (u64, i64)| {
        u64::try_from(most).is_ok_and(|most| most > 0 && have >= most - most / 20)
    };
    config.discard == DiscardPolicy::New && limits.into_iter().any(is_near)
}

/// Returns why a server that answers cannot be used: it is cut off and sees no leader, or it leads and has heard none
/// of the others for longer than an election takes, so that they have another leader.
fn is_apart(cluster: &ClusterInfo) -> Option<&'static str> {
    // The age of what was never heard is 0.
    let is_heard = |age: Duration| !age.is_zero() && age < UNHEARD;
    let mut others = cluster.replicas.iter();
    match cluster.leader {
        None => Some("the stream has no leader"),
        Some(_) if cluster.replicas.is_empty() || others.any(|it| is_heard(it.active)) => None,
        Some(_) => Some("the server that leads hears no other"),
    }
}

/// Returns the last message of each subject, in the order of the stream. One that is replaced while the stream is read
/// comes as it was and, later, as it is.
fn last_of_each(all: Vec<Received>) -> Vec<Received> {
    let mut last: BTreeMap<String, Received> = BTreeMap::new();
    for received in all {
        last.insert(received.subject.clone(), received);
    }
    let mut last: Vec<Received> = last.into_values().collect();
    last.sort_unstable_by_key(|received| received.seq);
    last
}

fn jetstream_time(at: Timestamp) -> Option<async_nats::datetime::DateTime> {
    async_nats::datetime::from_nanos(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_cut_off_is_known_by_its_answer_whether_it_led_or_not() {
        // N24
        let is_usable = |leader: Option<&str>, ages: &[u64]| {
            let replicas = ages.iter().map(|seconds| {
                let age = seconds * 1_000_000_000;
                serde_json::json!({ "name": "n1", "current": false, "active": age })
            });
            let replicas: Vec<_> = replicas.collect();
            let cluster =
                serde_json::json!({ "name": "t", "leader": leader, "replicas": replicas });
            is_apart(&serde_json::from_value(cluster).unwrap()).is_none()
        };
        assert!(is_usable(Some("n0"), &[]), "one server");
        assert!(is_usable(Some("n0"), &[1, 40]));
        assert!(!is_usable(Some("n0"), &[11, 40]));
        assert!(!is_usable(Some("n0"), &[0, 40]), "one that it never heard");
        // As one of three answered of a stream that it had never led.
        assert!(!is_usable(None, &[153, 0, 150]));
    }

    #[test]
    fn a_message_that_is_replaced_while_the_stream_is_read_counts_once() {
        // N22
        let received = |(subject, seq): (&str, u64)| Received {
            subject: subject.to_owned(),
            message: None,
            seq,
            pending: 0,
            at: Timestamp::UNIX_EPOCH,
            age: Duration::ZERO,
            body: bytes::Bytes::new(),
        };
        let read = [("a", 1), ("b", 2), ("c", 3), ("a", 7), ("b", 8), ("a", 9)].map(received);
        let last = last_of_each(read.into());
        let last: Vec<_> = last.iter().map(|it| (it.subject.as_str(), it.seq)).collect();
        assert_eq!(last, [("c", 3), ("b", 8), ("a", 9)]);
    }
}
