// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The limit for changes of files: a program that reads the lines of the same `fswatcher` helper,
//! with the same paths watched, and does nothing else.

use std::time::SystemTime;

use anyhow::{anyhow, bail};
use daemon::command::{Commands, Launch, Pipes, Program, Running, Spawned};
use sdc_clients::vminfod::Lines;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use vminfod::node::root::Root;
use vminfod::sources::signal::Signal;
use vminfod::sources::watched::WatchList;

use super::cn::Cn;

/// The reader and its helper.
pub(super) struct BareReader {
    helper: Running,
    /// To the task that writes to the helper: it answers while it is written to.
    requests: mpsc::Sender<Vec<u8>>,
    lines: Lines,
    list: WatchList,
}

impl BareReader {
    /// Starts a helper and waits until it watches what vminfod watches.
    pub(super) async fn start(cn: &Cn) -> anyhow::Result<BareReader> {
        let commands = Spawned::new(cn.commands());
        let args = ["-r", "-j"].map(str::to_owned).to_vec();
        let mut helper = commands.start(Launch::new(Program::Fswatcher, args, Pipes::Both))?;
        let mut input = std::mem::replace(&mut helper.stdin, Box::new(tokio::io::sink()));
        let (requests, mut written) = mpsc::channel::<Vec<u8>>(1024);
        tokio::spawn(async move {
            while let Some(request) = written.recv().await {
                input.write_all(&request).await?;
            }
            std::io::Result::Ok(())
        });
        let list = WatchList::new(Root::new(cn.root()));
        let lines = Lines::new(64 << 20);
        let mut reader = BareReader { helper, requests, lines, list };
        while !reader.list.is_ready() {
            reader.read().await?;
        }
        reader.list.want(&cn.watched());
        while reader.list.unanswered() > 0 {
            reader.read().await?;
        }
        Ok(reader)
    }

    /// Waits for the next line that tells of a change of a zone's file. Returns when it was read.
    pub(super) async fn change(&mut self) -> anyhow::Result<SystemTime> {
        loop {
            let (at, signals) = self.read().await?;
            if signals.iter().any(|signal| matches!(signal, Signal::File(..))) {
                return Ok(at);
            }
        }
    }

    /// Waits until every watch that an event ended is set again.
    pub(super) async fn settled(&mut self) -> anyhow::Result<()> {
        while self.list.unanswered() > 0 {
            self.read().await?;
        }
        Ok(())
    }

    /// Sends what is to be sent and reads what comes. Returns when that came, and its signals.
    async fn read(&mut self) -> anyhow::Result<(SystemTime, Vec<Signal>)> {
        let requests = self.list.take_requests();
        if !requests.is_empty() {
            self.requests.send(requests).await?;
        }
        let mut chunk = vec![0; 64 << 10];
        let count = self.helper.stdout.read(&mut chunk).await?;
        let at = SystemTime::now();
        if count == 0 {
            bail!("the helper ended");
        }
        self.lines.push(chunk.get(..count).unwrap_or_default());
        let mut signals = Vec::new();
        while let Some(line) =
            self.lines.next_line().map_err(|_| anyhow!("a line without an end"))?
        {
            signals.extend(self.list.line(&line)?);
        }
        Ok((at, signals))
    }
}
