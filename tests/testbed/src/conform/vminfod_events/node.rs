// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node of a recording: its files below a directory of its own, its commands answered from the
//! recorded rows. It knows nothing of what is expected of the daemon that reads it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use daemon::Shutdown;
use futures_util::future::BoxFuture;
use sdc_clients::http::Call;
use sdc_clients::{Http, Jitter};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use vminfod::config::Config;
use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Tool};

use super::gate::Gate;

/// What the commands answer from.
#[derive(Default)]
struct Rows {
    zoneadm: Vec<String>,
    zfs: Vec<Map<String, Value>>,
    zoneinfo: Vec<Value>,
    /// The far ends of the sysevent streams: `zones`, `zfs`.
    streams: HashMap<&'static str, DuplexStream>,
}

/// A node as a recording describes it.
#[derive(Clone)]
pub(crate) struct RecordedNode {
    dir: Arc<tempfile::TempDir>,
    rows: Arc<Mutex<Rows>>,
    gate: Gate,
}

impl RecordedNode {
    /// Builds the node of a `base` record.
    pub(crate) fn new(base: &Value) -> anyhow::Result<Self> {
        let dir = Arc::new(tempfile::tempdir()?);
        let node = Self { dir, rows: Arc::default(), gate: Gate::default() };
        for dir in ["etc/zones", "tmp", "zones"] {
            fs::create_dir_all(node.dir.path().join(dir))?;
        }
        let files = base["files"].as_object().context("the base has no files")?;
        for (path, file) in files {
            let text = file["text"].as_str().with_context(|| format!("no text of {path}"))?;
            node.write(path, text, file["mtime"].as_f64(), "rename")?;
        }
        let mut rows = node.rows();
        rows.zoneadm = texts(&base["zoneadm"]);
        rows.zoneinfo = base["zoneinfo"].as_array().cloned().unwrap_or_default();
        rows.zfs = objects(&base["zfs"]);
        drop(rows);
        Ok(node)
    }

    /// Serves it with the whole daemon in this process, on a port of its own.
    pub(crate) async fn serve(&self) -> anyhow::Result<Served> {
        let config = Config {
            root: self.dir.path().to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            // Recorded requests ask for this host.
            host_names: vec!["x".to_owned()],
            ..Config::default()
        };
        let shutdown = Shutdown::new();
        let commands: Arc<dyn Commands> = Arc::new(self.clone());
        let running =
            vminfod::serve_with(config, commands, Jitter::from_seed(7), shutdown.clone()).await?;
        Ok(Served { address: running.address, shutdown, running })
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
            let status: Value = client.execute(Call::get(&["status"])).await?.json("status")?;
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
    fn operate(&self, op: &Value, events: &mut Vec<(&'static str, String)>) -> anyhow::Result<()> {
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
            "zoneadm" => {
                self.set_zoneadm(op);
                Ok(())
            }
            "zoneinfo" => {
                self.set_zoneinfo(op);
                Ok(())
            }
            "zfs" => {
                self.set_zfs(op);
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

    fn set_zoneadm(&self, op: &Value) {
        let name = |line: &str| line.split(':').nth(1).unwrap_or_default().to_owned();
        let mut rows = self.rows();
        for line in texts(&op["set"]) {
            match rows.zoneadm.iter_mut().find(|old| name(old) == name(&line)) {
                Some(old) => *old = line,
                None => rows.zoneadm.push(line),
            }
        }
        let gone = texts(&op["del"]);
        rows.zoneadm.retain(|line| !gone.contains(&name(line)));
    }

    fn set_zoneinfo(&self, op: &Value) {
        let name = |kstat: &Value| kstat["data"]["zonename"].clone();
        let mut rows = self.rows();
        for kstat in op["set"].as_array().into_iter().flatten() {
            match rows.zoneinfo.iter_mut().find(|old| name(old) == name(kstat)) {
                Some(old) => *old = kstat.clone(),
                None => rows.zoneinfo.push(kstat.clone()),
            }
        }
        let gone = op["del"].as_array().cloned().unwrap_or_default();
        rows.zoneinfo.retain(|kstat| !gone.contains(&name(kstat)));
    }

    fn set_zfs(&self, op: &Value) {
        let mut rows = self.rows();
        for row in objects(&op["set"]) {
            match rows.zfs.iter_mut().find(|old| old.get("name") == row.get("name")) {
                Some(old) => old.extend(row),
                None => rows.zfs.push(row),
            }
        }
        for gone in texts(&op["del"]) {
            rows.zfs.retain(|row| {
                let rest = dataset(row).strip_prefix(gone.as_str());
                !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
            });
        }
    }

    /// In one piece: they came faster than they can be told apart.
    async fn post(&self, stream: &'static str, lines: &str) -> anyhow::Result<()> {
        let taken = self.rows().streams.remove(stream);
        let mut pipe = taken.ok_or_else(|| anyhow!("nobody follows the {stream} events"))?;
        pipe.write_all(lines.as_bytes()).await?;
        self.rows().streams.entry(stream).or_insert(pipe);
        Ok(())
    }

    fn answer(&self, tool: Tool, args: &[String]) -> Output {
        match tool {
            Tool::Zoneadm => self.zoneadm(args),
            Tool::Zfs => self.zfs(args),
            Tool::Kstat => {
                output(0, Value::Array(self.rows().zoneinfo.clone()).to_string(), String::new())
            }
            Tool::Sysevent | Tool::Fswatcher => {
                output(2, String::new(), "this one is followed".to_owned())
            }
        }
    }

    fn zoneadm(&self, args: &[String]) -> Output {
        let rows = self.rows();
        let [flag, name, ..] = args else {
            return output(0, rows.zoneadm.join("\n") + "\n", String::new());
        };
        if flag != "-z" {
            return output(0, rows.zoneadm.join("\n") + "\n", String::new());
        }
        match rows.zoneadm.iter().find(|line| line.split(':').nth(1) == Some(name)) {
            Some(line) => output(0, format!("{line}\n"), String::new()),
            None => {
                let complaint = format!("zoneadm: zone '{name}': No such zone configured");
                output(1, String::new(), complaint)
            }
        }
    }

    fn zfs(&self, args: &[String]) -> Output {
        let after = |flag: &str, nth| args.iter().skip_while(|arg| *arg != flag).nth(nth);
        let (columns, operand) = (after("-o", 1).map_or("name", String::as_str), after("-d", 2));
        let types = after("-t", 1).map_or("filesystem", String::as_str);
        let depth = |name: &str| name.matches(['/', '@']).count();
        let wanted = |row: &&Map<String, Value>| {
            let name = dataset(row);
            if !types.split(',').any(|kind| row.get("type").is_some_and(|own| own == kind)) {
                return false;
            }
            let Some(top) = operand else { return depth(name) <= 2 };
            let rest = name.strip_prefix(top.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
                && depth(name) <= depth(top) + 1
        };
        let text: String =
            self.rows().zfs.iter().filter(wanted).map(|row| row_line(row, columns)).collect();
        match operand {
            Some(top) if text.is_empty() => {
                output(1, text, format!("cannot open '{top}': dataset does not exist"))
            }
            _ => output(0, text, String::new()),
        }
    }
}

impl Commands for RecordedNode {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        _deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            self.gate.pass(tool, &args).await;
            Ok(self.answer(tool, &args))
        })
    }

    fn follow(&self, _tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        let (near, far) = duplex(1 << 20);
        let (errors, _) = duplex(1);
        let stream = if args.iter().any(|arg| arg == "-c") { "zones" } else { "zfs" };
        self.rows().streams.insert(stream, far);
        let ready = AsyncReadExt::chain(&b"{\"date\":\"d\",\"type\":\"ready\"}\n"[..], near);
        Ok(Follow::new(Box::new(ready), Box::new(errors), Box::pin(std::future::pending())))
    }

    fn converse(&self, tool: Tool, _args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        let helper = simnode::fswatcher::in_thread();
        let helper = helper.map_err(|error| CommandError::Io { tool, error: error.into() })?;
        Ok(self.gate.guard(helper))
    }
}

/// The daemon on a recorded node.
pub(crate) struct Served {
    /// Where it listens.
    pub(crate) address: std::net::SocketAddr,
    shutdown: Shutdown,
    running: vminfod::Running,
}

impl Served {
    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it; an error when some task of it did not end.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.trigger();
        if self.running.ended().await { Ok(()) } else { bail!("some task of vminfod did not end") }
    }
}

/// The stream of a recorded event and its line there.
fn sysevent(op: &Value) -> (&'static str, String) {
    let stream = if op["stream"] == "zones" { "zones" } else { "zfs" };
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

/// The columns that were asked for.
fn row_line(row: &Map<String, Value>, columns: &str) -> String {
    let cells = columns.split(',').map(|key| row.get(key).and_then(Value::as_str).unwrap_or("-"));
    cells.collect::<Vec<_>>().join("	")
        + "
"
}

fn output(status: i32, stdout: String, stderr: String) -> Output {
    Output { status, stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}
