// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `VminfodEventStream`: one request, a `ready` line in time, then events. Nothing is retried.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::matching::{Wanted, is_subset};
use super::thrown::Thrown;
use super::wire::{Answer, Splitter, get};

/// How long vm-agent and net-agent wait before they connect again.
const AGENTS_PAUSE: Duration = Duration::from_secs(1);

/// How a stream is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client's name, the first word of its user agent; none is sent if it is empty.
    pub name: String,
    /// Turn `vms` of the ready line into an object by zone name.
    pub parse_ready: bool,
    /// How long to wait for it.
    pub ready_timeout: Duration,
}

impl Options {
    /// The defaults, under a name.
    pub fn named(name: &str) -> Self {
        let ready_timeout = Duration::from_secs(30);
        Self { name: name.to_owned(), parse_ready: false, ready_timeout }
    }
}

/// An open stream.
#[derive(Debug)]
pub struct EventStream {
    name: String,
    answer: Answer,
    splitter: Splitter,
    lines: VecDeque<String>,
    /// The first line.
    pub ready: Value,
}

impl EventStream {
    /// Connects and waits for the ready line.
    pub async fn open(base: &str, options: Options) -> Result<Self, Thrown> {
        let agent = match options.name.as_str() {
            "" => String::new(),
            name => format!("{name} - cn/{} (/usr/vm/sbin/vmadm)", std::process::id()),
        };
        let end = Instant::now() + options.ready_timeout;
        let late = || Thrown::NotReady(options.ready_timeout.as_millis());
        let answer = timeout_at(end, get(base, "/events", &agent)).await.map_err(|_| late())??;
        if answer.status != 200 {
            return Err(Thrown::Status(answer.status));
        }
        let mut stream = Self {
            name: options.name,
            answer,
            splitter: Splitter::default(),
            lines: VecDeque::new(),
            ready: Value::Null,
        };
        let mut ready = timeout_at(end, stream.line()).await.map_err(|_| late())??;
        if ready["type"] != "ready" {
            return Err(Thrown::Assertion(format!("the first line is no ready: {ready}")));
        }
        if options.parse_ready {
            ready["vms"] = by_zonename(&ready["vms"])?;
        }
        stream.ready = ready;
        Ok(stream)
    }

    /// What the agents do when their stream ended: a second's pause, then a new one, for ever.
    pub async fn again(base: &str, options: &Options, limit: Duration) -> Result<Self, Thrown> {
        let end = Instant::now() + limit;
        loop {
            tokio::time::sleep(AGENTS_PAUSE).await;
            match Self::open(base, options.clone()).await {
                Ok(stream) => return Ok(stream),
                Err(thrown) if Instant::now() > end => return Err(thrown),
                Err(_) => {}
            }
        }
    }

    /// The next event. Cancel-safe.
    pub async fn event(&mut self) -> Result<Value, Thrown> {
        let event = self.line().await?;
        if event["type"] == "ready" {
            return Err(Thrown::Assertion("a second ready line".to_owned()));
        }
        Ok(event)
    }

    /// `watchForEvent`: the first event that the pattern is a part of.
    pub async fn watch_for_event(
        &mut self,
        pattern: &Value,
        limit: Duration,
    ) -> Result<Value, Thrown> {
        let end = Instant::now() + limit;
        loop {
            let event = timeout_at(end, self.event()).await;
            let event = event.map_err(|_| self.late("watchForEvent", limit))??;
            if is_subset(pattern, Some(&event)) {
                return Ok(event);
            }
        }
    }

    /// `watchForChanges`: until every wanted change came in events that the pattern is a part of.
    pub async fn watch_for_changes(
        &mut self,
        pattern: &Value,
        changes: &Value,
        limit: Duration,
    ) -> Result<(), Thrown> {
        let end = Instant::now() + limit;
        let mut wanted = Wanted::new(changes);
        while !wanted.is_done() {
            let event = timeout_at(end, self.event()).await;
            let event = event.map_err(|_| self.late("watchForChanges", limit))??;
            if is_subset(pattern, Some(&event)) {
                wanted.take(event["changes"].as_array().map(Vec::as_slice).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn late(&self, method: &'static str, limit: Duration) -> Thrown {
        Thrown::Timeout { method, stream: self.name.clone(), limit_ms: limit.as_millis() }
    }

    async fn line(&mut self) -> Result<Value, Thrown> {
        while self.lines.is_empty() {
            match self.answer.piece().await {
                Ok(Some(piece)) => self.lines.extend(self.splitter.push(&piece)),
                Err(Thrown::Request(_)) | Ok(None) => return Err(Thrown::Ended),
                Err(thrown) => return Err(thrown),
            }
        }
        let line = self.lines.pop_front().unwrap_or_default();
        let event: Value = serde_json::from_str(&line).map_err(|_| Thrown::Line(line.clone()))?;
        let date = event["date"].as_str().and_then(|date| date.parse::<jiff::Timestamp>().ok());
        if date.is_none() {
            return Err(Thrown::Date(line));
        }
        Ok(event)
    }
}

/// The list in a ready line as an object by zone name.
fn by_zonename(text: &Value) -> Result<Value, Thrown> {
    let text = text.as_str().ok_or_else(|| Thrown::TypeError("vms as text".to_owned()))?;
    let list: Value = serde_json::from_str(text).map_err(|_| Thrown::Line(text.to_owned()))?;
    let mut all = json!({});
    for vm in list.as_array().ok_or_else(|| Thrown::TypeError("forEach of vms".to_owned()))? {
        let name = vm["zonename"].as_str();
        let name = name.ok_or_else(|| Thrown::TypeError("zonename of a VM".to_owned()))?;
        all[name] = vm.clone();
    }
    Ok(all)
}
