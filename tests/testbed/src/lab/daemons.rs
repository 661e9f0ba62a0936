// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemons of one node, as processes that can be started, killed and started again. What they say goes to
//! logs beside the node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sdc_clients::http::{Call, Http};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::asking::{OWN_AGENT, until};
use super::error::LabError;
use crate::process::Child;

/// The page of the data centre.
pub(super) const PAGE: &str = "console-fleet";
/// How long a daemon may take to stop when asked.
const GRACE: Duration = Duration::from_secs(5);
/// How long it may take until it answers.
const STARTS: Duration = Duration::from_secs(90);
/// How many ends of daemons are kept for the listener; more are not told.
const ENDS: usize = 16;

/// The daemons that run. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Daemons {
    program: PathBuf,
    dir: PathBuf,
    running: BTreeMap<&'static str, Child>,
    /// What tells that a daemon has ended, and who hears it.
    told: mpsc::Sender<LabError>,
    ended: Option<mpsc::Receiver<LabError>>,
}

impl Daemons {
    /// None yet. `program` is all of them; configurations and logs are in `dir`.
    pub(super) fn new(program: &Path, dir: &Path) -> Self {
        let (told, ended) = mpsc::channel(ENDS);
        let (program, dir) = (program.to_owned(), dir.to_owned());
        Self { program, dir, running: BTreeMap::new(), told, ended: Some(ended) }
    }

    /// Tells of each daemon that ends from now on, also of one that is stopped. There is one listener.
    pub(super) fn ended(&mut self) -> mpsc::Receiver<LabError> {
        self.ended.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// The pid of a daemon that runs.
    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        self.running.get(name).and_then(Child::id)
    }

    /// Starts a daemon, and waits until it has logged this message.
    pub(super) async fn start_until_said(
        &mut self,
        name: &'static str,
        msg: &str,
        config: &Value,
    ) -> Result<(), LabError> {
        let (mut child, log) = self.spawn(name, &["serve"], config).await?;
        let log = said(&mut child, msg, log).await?;
        self.keep(name, child, log);
        Ok(())
    }

    /// Starts a daemon with this verb, and waits until its `/ping` answers at `url`.
    pub(super) async fn start(
        &mut self,
        name: &'static str,
        verb: &str,
        config: &Value,
        url: &str,
    ) -> Result<(), LabError> {
        self.start_with(name, &[verb], config, url).await
    }

    /// The same with further words.
    pub(super) async fn start_with(
        &mut self,
        name: &'static str,
        words: &[&str],
        config: &Value,
        url: &str,
    ) -> Result<(), LabError> {
        let (child, log) = self.spawn(name, words, config).await?;
        self.keep(name, child, log);
        let what = format!("{name} answers");
        let http = Http::new(url, OWN_AGENT).map_err(LabError::request(&what))?;
        until(&what, STARTS, || async {
            Ok(http.execute(Call::new(http::Method::GET, &["ping"])).await.is_ok())
        })
        .await
    }

    /// Kills a daemon as a crash would, or stops it as SMF does. One that does not run is none.
    pub(super) async fn end(&mut self, name: &str, crash: bool) -> Result<(), LabError> {
        let Some(child) = self.running.remove(name) else { return Ok(()) };
        let grace = if crash { Duration::ZERO } else { GRACE };
        if crash {
            child.signal(rustix::process::Signal::KILL);
        }
        child.stop(grace).await.map(drop).map_err(LabError::io(format!("stopping {name}")))
    }

    fn keep(&mut self, name: &'static str, mut child: Child, log: tokio::fs::File) {
        tokio::spawn(keep(name.to_owned(), child.take_lines(), log, self.told.clone()));
        self.running.insert(name, child);
    }

    /// Writes the configuration of a daemon, starts it, and opens its log.
    async fn spawn(
        &self,
        name: &str,
        words: &[&str],
        config: &Value,
    ) -> Result<(Child, tokio::fs::File), LabError> {
        let file = self.dir.join(format!("{name}.json"));
        let written = tokio::fs::write(&file, format!("{config:#}\n")).await;
        written.map_err(LabError::io(format!("writing {}", file.display())))?;
        let log = self.dir.join(format!("{name}.log"));
        let mut options = tokio::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(&log).await;
        let log = log.map_err(LabError::io(format!("opening the log of {name}")))?;
        // The page of the data centre is the program of a node's page.
        let (program, flag) = match name {
            PAGE => ("console", Some("--fleet")),
            name => (name, None),
        };
        let (this, file) = (format!("@{program}"), file.to_string_lossy());
        let args = [this.as_str()].into_iter().chain(words.iter().copied()).chain(flag);
        let args: Vec<&str> = args.chain(["--config", &file]).collect();
        let child = Child::spawn(name, &self.program, &args)
            .map_err(LabError::io(format!("starting {name}")))?;
        Ok((child, log))
    }
}

/// Waits for a bunyan line with this `msg`; all lines go to the log.
async fn said(
    child: &mut Child,
    msg: &str,
    mut log: tokio::fs::File,
) -> Result<tokio::fs::File, LabError> {
    let mut last = String::from("none");
    while let Some(line) = child.line().await {
        write_line(&mut log, &line).await;
        if let Ok(value) = serde_json::from_str::<Value>(&line)
            && value["msg"] == msg
        {
            return Ok(log);
        }
        last = line;
    }
    Err(LabError::Ended { name: child.name().to_owned(), last })
}

/// Writes the lines to the log, and tells when there are no more.
async fn keep(
    name: String,
    mut lines: mpsc::Receiver<String>,
    mut log: tokio::fs::File,
    told: mpsc::Sender<LabError>,
) {
    let mut last = String::from("none");
    while let Some(line) = lines.recv().await {
        write_line(&mut log, &line).await;
        last = line;
    }
    // Nobody may be listening.
    drop(told.try_send(LabError::Ended { name, last }));
}

async fn write_line(log: &mut tokio::fs::File, line: &str) {
    // A log of the lab that cannot be written costs the log, not the lab.
    let _lost = log.write_all(format!("{line}\n").as_bytes()).await;
}
