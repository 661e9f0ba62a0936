// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemons of one node, as processes that can be started, killed and started again. What they say goes to
//! logs beside the node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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

/// A daemon has ended; nobody has waited for it yet.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) cn: String,
    pub(super) name: &'static str,
    pub(super) pid: u32,
}

/// The daemons that run. Dropping the last clone kills them.
#[derive(Clone, Debug)]
pub(super) struct Daemons(Arc<Shared>);

/// The same for who must not keep them.
#[derive(Debug)]
pub(super) struct Running(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    dir: PathBuf,
    cn: String,
    inner: Mutex<Inner>,
    /// What tells that a daemon has ended, and who hears it.
    told: mpsc::Sender<LabError>,
    deaths: mpsc::Sender<Death>,
}

#[derive(Debug)]
struct Inner {
    running: BTreeMap<&'static str, Child>,
    /// How each was started last, also of those that do not run.
    starts: BTreeMap<&'static str, Start>,
    ended: Option<mpsc::Receiver<LabError>>,
}

/// How a daemon is started, and where it answers.
#[derive(Clone, Debug)]
struct Start {
    words: Vec<String>,
    url: String,
}

impl Running {
    /// The daemons, if they are there.
    pub(super) fn daemons(&self) -> Option<Daemons> {
        self.0.upgrade().map(Daemons)
    }
}

impl Daemons {
    /// None yet. `program` is all of them; configurations and logs are in `dir`.
    pub(super) fn new(program: &Path, dir: &Path, cn: &str, deaths: mpsc::Sender<Death>) -> Self {
        let (told, ended) = mpsc::channel(ENDS);
        let (program, dir, cn) = (program.to_owned(), dir.to_owned(), cn.to_owned());
        let inner = Inner { running: BTreeMap::new(), starts: BTreeMap::new(), ended: Some(ended) };
        Self(Arc::new(Shared { program, dir, cn, inner: Mutex::new(inner), told, deaths }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These daemons, for who must not keep them.
    pub(super) fn running(&self) -> Running {
        Running(Arc::downgrade(&self.0))
    }

    /// Tells of each daemon that ends from now on, also of one that is stopped. There is one listener.
    pub(super) fn ended(&self) -> mpsc::Receiver<LabError> {
        self.inner().ended.take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// The pid of a daemon that runs.
    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        self.inner().running.get(name).and_then(Child::id)
    }

    /// Those that run.
    pub(super) fn pids(&self) -> Vec<(&'static str, u32)> {
        let inner = self.inner();
        inner.running.iter().filter_map(|(name, child)| Some((*name, child.id()?))).collect()
    }

    /// Whether it was ever started.
    pub(super) fn has_started(&self, name: &str) -> bool {
        self.inner().starts.contains_key(name)
    }

    /// Starts a daemon, which answers at `url`, and waits until it has logged this message.
    pub(super) async fn start_until_said(
        &mut self,
        name: &'static str,
        msg: &str,
        config: &Value,
        url: &str,
    ) -> Result<(), LabError> {
        self.configure(name, &["serve"], config, url).await?;
        let (mut child, log) = self.spawn(name).await?;
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
        self.configure(name, words, config, url).await?;
        self.again(name, true).await
    }

    /// Starts a daemon as it was started last, with what its file of configuration says now.
    pub(super) async fn again(&self, name: &str, waits: bool) -> Result<(), LabError> {
        let start = self.inner().starts.get_key_value(name).map(|(name, it)| (*name, it.clone()));
        let Some((name, start)) = start else { return Ok(()) };
        let (child, log) = self.spawn(name).await?;
        self.keep(name, child, log);
        if !waits {
            return Ok(());
        }
        let what = format!("{name} answers");
        let http = Http::new(&start.url, OWN_AGENT).map_err(LabError::request(&what))?;
        until(&what, STARTS, || async {
            Ok(http.execute(Call::new(http::Method::GET, &["ping"])).await.is_ok())
        })
        .await
    }

    /// Kills a daemon as a crash would, or stops it as SMF does. One that does not run is none.
    pub(super) async fn end(&self, name: &str, crash: bool) -> Result<(), LabError> {
        let Some(child) = self.inner().running.remove(name) else { return Ok(()) };
        let grace = if crash { Duration::ZERO } else { GRACE };
        if crash {
            child.signal(rustix::process::Signal::KILL);
        }
        child.stop(grace).await.map(drop).map_err(LabError::io(format!("stopping {name}")))
    }

    fn keep(&self, name: &'static str, mut child: Child, log: tokio::fs::File) {
        let (told, deaths) = (self.0.told.clone(), self.0.deaths.clone());
        let (lines, cn) = (child.take_lines(), self.0.cn.clone());
        let death = child.id().map(|pid| Death { cn, name, pid });
        tokio::spawn(async move {
            keep(name.to_owned(), lines, log, told).await;
            // Nobody may be there to start it again.
            drop(death.map(|death| deaths.try_send(death)));
        });
        self.inner().running.insert(name, child);
    }

    /// Writes the configuration of a daemon, and keeps how it is started.
    async fn configure(
        &self,
        name: &'static str,
        words: &[&str],
        config: &Value,
        url: &str,
    ) -> Result<(), LabError> {
        let file = self.0.dir.join(format!("{name}.json"));
        let written = tokio::fs::write(&file, format!("{config:#}\n")).await;
        written.map_err(LabError::io(format!("writing {}", file.display())))?;
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.inner().starts.insert(name, Start { words, url: url.to_owned() });
        Ok(())
    }

    /// Starts a daemon as it was configured, and opens its log.
    async fn spawn(&self, name: &str) -> Result<(Child, tokio::fs::File), LabError> {
        let file = self.0.dir.join(format!("{name}.json"));
        let words = self.inner().starts.get(name).map(|it| it.words.clone()).unwrap_or_default();
        let log = self.0.dir.join(format!("{name}.log"));
        let mut options = tokio::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(&log).await;
        let log = log.map_err(LabError::io(format!("opening the log of {name}")))?;
        // The page of the data centre is the program of a node's page.
        let (program, flag) = match name {
            PAGE => ("console", Some("--fleet")),
            name => (name, None),
        };
        let (this, file) = (format!("@{program}"), file.to_string_lossy());
        let args = [this.as_str()].into_iter().chain(words.iter().map(String::as_str)).chain(flag);
        let args: Vec<&str> = args.chain(["--config", &file]).collect();
        let child = Child::spawn(name, &self.0.program, &args)
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
