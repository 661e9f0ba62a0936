// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The requests of the program that publishes: each one message and its answer, so that a key may be allowed exactly
//! them.

use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{HeaderMap, Message, RequestError};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::access::Access;
use super::error::FleetError;
use super::link::Link;
use super::message::{BEHIND, Kind, Labels};
use super::name::{CHANGES, KV_NODES};
use super::server::Server;

/// JetStream's conditions of a publish.
const ID: &str = "Nats-Msg-Id";
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const STREAM: &str = "Nats-Expected-Stream";
/// What a direct get says of the message.
const SEQUENCE: &str = "Nats-Sequence";
const NOT_FOUND: u16 = 404;
/// While a question for a message has no answer it is asked once more after each such time, up to so often: the server
/// that is asked is drawn among those of the stream, for minutes also one that is cut off in silence. Of three that one
/// was drawn two times in three.
const DRAW: Duration = Duration::from_millis(400);
const DRAWS: usize = 12;

/// A message as a stream has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its number in the stream.
    pub seq: u64,
    /// What its headers say; none if no agent wrote it.
    pub labels: Option<Labels>,
    /// Its body.
    pub body: Bytes,
}

impl Stored {
    /// Returns true if this, the last message of its subject, is or contains the one with these labels that was
    /// published behind the number `last`.
    pub fn has(&self, labels: &Labels, last: u64) -> bool {
        self.seq > last && self.labels.as_ref().is_some_and(|own| own.at.has(&labels.at))
    }
}

/// A connection, for single requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Wire {
    client: Link,
    server: Server,
    api: String,
}

#[derive(Deserialize)]
struct Fault {
    err_code: u64,
    description: String,
}

#[derive(Deserialize)]
struct Ack {
    error: Option<Fault>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

#[derive(Deserialize)]
struct Info {
    error: Option<Fault>,
    #[serde(default)]
    total: usize,
    state: Option<Subjects>,
}

#[derive(Deserialize)]
struct Subjects {
    #[serde(default)]
    subjects: std::collections::BTreeMap<String, u64>,
}

impl Wire {
    /// Asks through this client, under the prefix of `access`.
    pub fn new(client: Link, access: &Access) -> Wire {
        Wire { server: Server::new(client.clone()), client, api: access.api.clone() }
    }

    /// Returns the largest message that the server takes, headers included.
    pub fn largest(&self) -> usize {
        self.client.max_payload()
    }

    /// Returns the last message of a subject, which may end with `>`. A server of the cluster that is behind may answer
    /// with an earlier one.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn last(&self, stream: &str, subject: &str) -> Result<Option<Stored>, FleetError> {
        let target = format!("{}.DIRECT.GET.{stream}.{subject}", self.api);
        let answer = self.drawn(&target).await.map_err(|error| self.failure(&error, &target, 0))?;
        if let Some(status) = answer.status {
            return match status.as_u16() {
                NOT_FOUND => Ok(None),
                _ => Err(FleetError::away(answer.description.as_deref().unwrap_or("no message"))),
            };
        }
        let headers = answer.headers.unwrap_or_default();
        // A stored message may have one too: the server's own is the last.
        let seq = headers.get_last(SEQUENCE).and_then(|seq| seq.as_str().parse().ok());
        let seq = seq.ok_or_else(|| FleetError::away("a message without its number came"))?;
        Ok(Some(Stored { seq, labels: Labels::read(&headers, true), body: answer.payload }))
    }

    /// Publishes a message behind `last`, the last one of its subject in `CHANGES` (0: there is none). Returns its
    /// number there. A follower that has not seen `last` knows that it missed something, also where the servers lost
    /// what they had acknowledged. It is no condition: a condition would stand in the message, the server would ask it
    /// again of `VMS`, whose numbers are others, and `VMS` would take no message any more.
    ///
    /// A server that led, lost the lead before it stored the message, and leads again takes it for one that it has:
    /// that it has it is believed only where it gives it.
    ///
    /// # Errors
    /// [`FleetError::Away`] if it is not known whether it was stored, [`FleetError::Missing`] if it was not and is
    /// not taken for the next two minutes.
    pub async fn publish(
        &self,
        subject: &str,
        labels: &Labels,
        body: Bytes,
        last: u64,
    ) -> Result<u64, FleetError> {
        let mut headers = HeaderMap::new();
        labels.write(&mut headers);
        headers.insert(ID, labels.id(subject, last));
        // Nothing has to be before what is new: a follower that does not know a deleted VM has missed nothing.
        if last > 0 && labels.kind != Kind::Create {
            headers.insert(BEHIND, last.to_string());
        }
        let ack = self.put(subject, headers, body).await?;
        if !ack.duplicate {
            return Ok(ack.seq);
        }
        match self.last(CHANGES, subject).await? {
            Some(stored) if stored.has(labels, last) => Ok(stored.seq),
            _ => Err(FleetError::Missing(subject.to_owned())),
        }
    }

    /// Replaces a node's entry in `NODES` if its revision is `expected`. Returns the new revision.
    ///
    /// # Errors
    /// As [`Wire::publish`].
    pub async fn beat(&self, cn: &str, body: Bytes, expected: u64) -> Result<u64, FleetError> {
        let mut headers = HeaderMap::new();
        headers.insert(STREAM, KV_NODES);
        headers.insert(EXPECTED, expected.to_string());
        Ok(self.put(&format!("$KV.NODES.{cn}"), headers, body).await?.seq)
    }

    async fn put(&self, subject: &str, headers: HeaderMap, body: Bytes) -> Result<Ack, FleetError> {
        let stored = self.stored(subject, headers, body).await;
        self.server.answered(stored).await
    }

    async fn stored(
        &self,
        subject: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Ack, FleetError> {
        let answer = self.ask(subject.to_owned(), headers, body).await?;
        let ack: Ack = serde_json::from_slice(&answer.payload).map_err(FleetError::away)?;
        match &ack.error {
            Some(fault) => Err(FleetError::of_code(fault.err_code, &fault.description, subject)),
            None => Ok(ack),
        }
    }

    /// Lists the subjects of a stream that pass `filter`.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn subjects(&self, stream: &str, filter: &str) -> Result<Vec<String>, FleetError> {
        let mut all = Vec::new();
        loop {
            let asked = json!({"subjects_filter": filter, "offset": all.len()});
            let target = format!("{}.STREAM.INFO.{stream}", self.api);
            let answer = self.ask(target, HeaderMap::new(), asked.to_string().into()).await?;
            let info: Info = serde_json::from_slice(&answer.payload).map_err(FleetError::away)?;
            if let Some(fault) = info.error {
                return Err(FleetError::of_code(fault.err_code, &fault.description, stream));
            }
            let found = info.state.map(|state| state.subjects).unwrap_or_default();
            let is_last = found.is_empty();
            all.extend(found.into_keys());
            if is_last || all.len() >= info.total {
                return Ok(all);
            }
        }
    }

    /// Asks again and again until one of the questions is answered, or the first one waited for too long.
    async fn drawn(&self, target: &str) -> Result<Message, RequestError> {
        let mut asked = FuturesUnordered::new();
        loop {
            asked.push(self.client.send_request(target.to_owned(), Request::new()));
            tokio::select! {
                Some(answer) = asked.next() => return answer,
                () = sleep(DRAW), if asked.len() < DRAWS => {}
            }
        }
    }

    async fn ask(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Message, FleetError> {
        let bytes = body.len();
        let mut request = Request::new().payload(body);
        if !headers.is_empty() {
            request = request.headers(headers);
        }
        let asked = self.client.send_request(subject.clone(), request).await;
        asked.map_err(|error| self.failure(&error, &subject, bytes))
    }

    fn failure(&self, error: &RequestError, subject: &str, bytes: usize) -> FleetError {
        self.server.explain(match error.kind() {
            // Nothing takes what is published there: its stream is not there.
            RequestErrorKind::NoResponders => FleetError::NoStream(subject.to_owned()),
            RequestErrorKind::MaxPayloadExceeded => {
                FleetError::TooLarge { bytes, most: self.largest() }
            }
            _ => FleetError::away(error),
        })
    }
}
