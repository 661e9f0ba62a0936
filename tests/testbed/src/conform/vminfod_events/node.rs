// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node of a recording: its files below a directory of its own, its commands answered from the
//! recorded rows. It knows nothing of what is expected of the daemon that reads it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use daemon::command::{Call, CommandError, Commands, Launch, Output, Pipes, Program, Run, Running};
use sdc_clients::Http;
use serde_json::{Map, Value, json};
use simnode::recorded::{COLUMNS, Listings};
use simnode::tap::Stream;
use vminfod::config::Config;

use super::gate::Gate;
use crate::cn::Vminfod;

/// What the commands answer from.
#[derive(Default)]
struct Rows {
    zoneadm: Vec<String>,
    zfs: Vec<Map<String, Value>>,
    zoneinfo: Vec<Value>,
}

/// A node as a recording describes it.
#[derive(Clone)]
pub(crate) struct RecordedNode {
    dir: Arc<tempfile::TempDir>,
    rows: Arc<Mutex<Rows>>,
    commands: Listings,
    gate: Gate,
}

impl RecordedNode {
    /// Builds the node of a `base` record.
    pub(crate) fn new(base: &Value) -> anyhow::Result<Self> {
        let dir = Arc::new(tempfile::tempdir()?);
        let (rows, commands, gate) = Default::default();
        let node = Self { dir, rows, commands, gate };
        for dir in ["etc/zones", "tmp", "zones"] {
            fs::create_dir_all(node.dir.path().join(dir))?;
        }
        let files = base["files"].as_object().context("the base has no files")?;
        for (path, file) in files {
            let text = file["text"].as_str().with_context(|| format!("no text of {path}"))?;
            node.write(path, text, file["mtime"].as_f64(), "rename")?;
        }
        // The recorder's node had no zone index; without one nothing is ever gone.
        let index = node.path("/etc/zones/index");
        if !index.exists() {
            fs::write(index, "global:installed:/\n")?;
        }
        let mut rows = node.rows();
        rows.zoneadm = texts(&base["zoneadm"]);
        rows.zoneinfo = base["zoneinfo"].as_array().cloned().unwrap_or_default();
        rows.zfs = objects(&base["zfs"]);
        node.show(&rows);
        drop(rows);
        Ok(node)
    }

    /// Serves it with the whole daemon in this process, on a port of its own.
    pub(crate) async fn serve(&self) -> anyhow::Result<Served> {
        let config = Config {
            root: self.dir.path().to_owned(),
            // Recorded requests ask for this host.
            host_names: vec!["x".to_owned()],
            ..Config::default()
        };
        let vminfod = Vminfod::start(config, Arc::new(self.clone()), 7).await?;
        Ok(Served { address: vminfod.running.address, vminfod })
    }

    /// Does the operations of one step, as one moment for the daemon except where the recording
    /// waited.
    pub(crate) async fn perform(&self, ops: &[Value], client: &Http) -> anyhow::Result<()> {
        for (nth, moment) in ops.split(|op| op["op"] == "sleep").enumerate() {
            if nth > 0 {
                // Part of the recording: what it waited for has happened by then.
                let pause = ops.iter().filter(|op| op["op"] == "sleep").nth(nth - 1);
                let ms = pause.and_then(|op| op["ms"].as_u64()).unwrap_or(0);
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            self.hold(client).await?;
            let mut events = Vec::new();
            for op in moment {
                self.operate(op, &mut events)?;
            }
            self.gate.hear_all().await?;
            for (stream, lines) in events {
                self.post(stream, &lines).await?;
            }
            self.gate.open();
        }
        Ok(())
    }

    /// Closes the gate at a moment when nothing is being read.
    async fn hold(&self, client: &Http) -> anyhow::Result<()> {
        loop {
            self.gate.close();
            let status: Value =
                client.execute(sdc_clients::http::Call::get(&["status"])).await?.json("status")?;
            let queue = &status["queue"]["vasync_queue"];
            let pending = queue["pending"].as_object().context("status has no queue")?;
            let waiting = self.gate.waiting();
            if pending.keys().all(|zone| waiting.contains(zone)) {
                return Ok(());
            }
            self.gate.open();
        }
    }

    /// Does one recorded operation; events are left for the end of the moment.
    fn operate(&self, op: &Value, events: &mut Vec<(Stream, String)>) -> anyhow::Result<()> {
        let path = || op["path"].as_str().with_context(|| format!("no path in {op}"));
        match op["op"].as_str().unwrap_or_default() {
            "write" => self.write(
                path()?,
                op["text"].as_str().with_context(|| format!("no text in {op}"))?,
                op["mtime"].as_f64(),
                op["how"].as_str().unwrap_or("rename"),
            ),
            "touch" => set_time(&self.path(path()?), op["mtime"].as_f64().context("no mtime")?),
            "unlink" => Ok(fs::remove_file(self.path(path()?))?),
            "rmtree" => Ok(fs::remove_dir_all(self.path(path()?))?),
            "mkdir" => Ok(fs::create_dir_all(self.path(path()?))?),
            "zoneadm" | "zoneinfo" | "zfs" => {
                let mut rows = self.rows();
                rows.change(op);
                self.show(&rows);
                Ok(())
            }
            "sysevent" => {
                let (stream, line) = sysevent(op);
                match events.last_mut().filter(|(last, _)| *last == stream) {
                    Some((_, lines)) => lines.push_str(&line),
                    None => events.push((stream, line)),
                }
                Ok(())
            }
            other => bail!("unknown operation {other:?}"),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str, mtime: Option<f64>, how: &str) -> anyhow::Result<()> {
        let target = self.path(path);
        let parent = target.parent().with_context(|| format!("{path} is in no directory"))?;
        fs::create_dir_all(parent)?;
        let place =
            if how == "inplace" { target.clone() } else { target.with_extension("written") };
        fs::write(&place, text)?;
        if let Some(mtime) = mtime {
            set_time(&place, mtime)?;
        }
        if how == "unlink+rename" {
            fs::remove_file(&target)?;
        }
        if place != target {
            fs::rename(&place, &target)?;
        }
        Ok(())
    }

    /// Prints the rows from now on.
    fn show(&self, rows: &Rows) {
        for (tool, stdout) in [
            (Program::Zoneadm, rows.zoneadm.join("\n") + "\n"),
            (Program::Zfs, rows.zfs.iter().map(row_line).collect()),
            (Program::Kstat, Value::Array(rows.zoneinfo.clone()).to_string()),
        ] {
            let stdout = stdout.into_bytes();
            self.commands.put(tool, Output { status: 0, stdout, stderr: Vec::new() });
        }
    }

    /// In one piece: they came faster than they can be told apart.
    async fn post(&self, stream: Stream, lines: &str) -> anyhow::Result<()> {
        ensure!(self.commands.feeds.feed(stream, lines).await, "nobody follows {stream:?} events");
        Ok(())
    }
}

impl Rows {
    /// Sets and deletes rows of one command.
    fn change(&mut self, op: &Value) {
        let gone = texts(&op["del"]);
        if op["op"] == "zoneadm" {
            let name = |line: &String| line.split(':').nth(1).unwrap_or_default().to_owned();
            texts(&op["set"]).into_iter().for_each(|line| set(&mut self.zoneadm, line, name));
            self.zoneadm.retain(|line| !gone.contains(&name(line)));
        } else if op["op"] == "zoneinfo" {
            let name =
                |kstat: &Value| kstat["data"]["zonename"].as_str().unwrap_or_default().to_owned();
            let kstats = op["set"].as_array().cloned().unwrap_or_default();
            kstats.into_iter().for_each(|kstat| set(&mut self.zoneinfo, kstat, name));
            self.zoneinfo.retain(|kstat| !gone.contains(&name(kstat)));
        } else {
            for row in objects(&op["set"]) {
                match self.zfs.iter_mut().find(|old| dataset(old) == dataset(&row)) {
                    Some(old) => old.extend(row),
                    None => self.zfs.push(row),
                }
            }
            self.zfs.retain(|row| {
                let is_in = |top: &String| {
                    let rest = dataset(row).strip_prefix(top.as_str());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
                };
                !gone.iter().any(is_in)
            });
        }
    }
}

/// Replaces the row of the same name, or adds it.
fn set<T>(rows: &mut Vec<T>, row: T, name: impl Fn(&T) -> String) {
    match rows.iter_mut().find(|old| name(old) == name(&row)) {
        Some(old) => *old = row,
        None => rows.push(row),
    }
}

impl Commands for RecordedNode {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            self.gate.pass(call.program, &call.args).await;
            self.commands.run(call).await
        })
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        let program = launch.program;
        if launch.pipes == Pipes::Out {
            return self.commands.start(launch);
        }
        let helper = simnode::fswatcher::in_thread();
        let helper = helper.map_err(|error| CommandError::Io { program, error: error.into() })?;
        Ok(self.gate.guard(helper))
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&self.commands)
    }
}

/// The daemon on a recorded node.
pub(crate) struct Served {
    /// Where it listens.
    pub(crate) address: std::net::SocketAddr,
    vminfod: Vminfod,
}

impl Served {
    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it; an error when some task of it did not end.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        if self.vminfod.end().await { Ok(()) } else { bail!("some task of vminfod did not end") }
    }
}

/// The stream of a recorded event and its line there.
fn sysevent(op: &Value) -> (Stream, String) {
    let stream = if op["stream"] == "zones" { Stream::Zones } else { Stream::Zfs };
    let mut line = json!({"date": "2026-01-05T10:00:00.000Z", "type": "event"});
    for (key, value) in op["event"].as_object().into_iter().flatten() {
        line[key] = value.clone();
    }
    (stream, format!("{line}\n"))
}

fn set_time(path: &Path, mtime: f64) -> anyhow::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(mtime);
    let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
    Ok(fs::File::options().write(true).open(path)?.set_times(times)?)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|v| Some(v.as_str()?.to_owned())).collect()
}

fn objects(list: &Value) -> Vec<Map<String, Value>> {
    list.as_array().into_iter().flatten().filter_map(|v| v.as_object().cloned()).collect()
}

fn dataset(row: &Map<String, Value>) -> &str {
    row.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// A row of `zfs list` with all columns.
fn row_line(row: &Map<String, Value>) -> String {
    let cells = COLUMNS.split(',').map(|key| row.get(key).and_then(Value::as_str).unwrap_or("-"));
    cells.collect::<Vec<_>>().join("\t") + "\n"
}
