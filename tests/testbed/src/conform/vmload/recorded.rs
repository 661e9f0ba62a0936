// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A recorded node brought to life: a copy of its files with their times, and its commands' answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use futures_util::future::BoxFuture;
use serde_json::Value;
use vminfod::node::Ctx;
use vminfod::node::commands::{CommandError, Commands, Follow, Input, Output, Tool};
use vminfod::node::root::Root;

/// Reads a JSON file.
pub(super) fn json(path: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    vm_model::js::parse(&bytes).with_context(|| path.display().to_string())
}

/// A copy of a node; gone when dropped.
pub struct Recorded {
    dir: tempfile::TempDir,
    answers: PathBuf,
}

impl Recorded {
    /// Copies the node's root and sets the times that git does not keep.
    pub fn copy(node: &Path) -> anyhow::Result<Recorded> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        copy_tree(&node.join("root"), dir.path())?;
        let times = node.join("mtimes.json");
        if times.is_file() {
            let Value::Object(times) = json(&times)? else {
                bail!("{} is no object", times.display());
            };
            for (path, seconds) in times {
                let seconds = seconds.as_f64().or_else(|| seconds.as_str()?.parse().ok());
                let seconds = seconds.with_context(|| format!("mtimes.json: {path}: no time"))?;
                set_time(&dir.path().join(&path), seconds)
                    .with_context(|| format!("time of {path}"))?;
            }
        }
        Ok(Recorded { dir, answers: node.join("cmd") })
    }

    /// What the production loader needs to load it.
    pub fn ctx(&self) -> Ctx {
        let commands = Answers { dir: self.answers.clone() };
        Ctx::new(Root::new(self.dir.path()), Arc::new(commands))
    }
}

fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    let place = || from.display().to_string();
    for entry in std::fs::read_dir(from).with_context(place)? {
        let entry = entry.with_context(place)?;
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(place)?.is_dir() {
            std::fs::create_dir_all(&target).with_context(place)?;
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).with_context(place)?;
        }
    }
    Ok(())
}

fn set_time(path: &Path, seconds: f64) -> anyhow::Result<()> {
    let ms = Duration::from_millis((seconds.abs() * 1000.0).round() as u64);
    let time = if seconds < 0.0 {
        SystemTime::UNIX_EPOCH.checked_sub(ms)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(ms)
    };
    let time = time.ok_or_else(|| anyhow!("{seconds} is out of range"))?;
    Ok(std::fs::File::open(path)?.set_modified(time)?)
}

/// Commands whose output was recorded.
struct Answers {
    dir: PathBuf,
}

impl Answers {
    fn answer(&self, tool: Tool, args: &[String]) -> Output {
        let name = match tool {
            Tool::Zoneadm => "zoneadm-list",
            Tool::Zfs => "zfs-list",
            Tool::Kstat => "zoneinfo",
            Tool::Sysevent | Tool::Fswatcher => return unknown(tool, args),
        };
        if matches!(tool, Tool::Zoneadm | Tool::Zfs) && !args.iter().any(|a| a == "list") {
            return unknown(tool, args);
        }
        let extension = if tool == Tool::Kstat { "json" } else { "txt" };
        let read = |ext: &str| std::fs::read(self.dir.join(format!("{name}.{ext}")));
        let status = read("exit")
            .map(|b| String::from_utf8_lossy(&b).trim().parse().unwrap_or(1))
            .unwrap_or(0);
        match read(extension) {
            Ok(stdout) if tool == Tool::Zfs => {
                let stdout = simnode::recorded::zfs_list(&stdout, args);
                Output { status, stdout, stderr: read("stderr").unwrap_or_default() }
            }
            Ok(stdout) => Output { status, stdout, stderr: read("stderr").unwrap_or_default() },
            Err(e) => Output {
                status: 1,
                stdout: Vec::new(),
                stderr: format!("{name}.{extension}: {e}").into_bytes(),
            },
        }
    }
}

fn unknown(tool: Tool, args: &[String]) -> Output {
    let stderr = format!("no answer was recorded for {} {}", tool.name(), args.join(" "));
    Output { status: 2, stdout: Vec::new(), stderr: stderr.into_bytes() }
}

impl Commands for Answers {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        _deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move { Ok(self.answer(tool, &args)) })
    }

    fn follow(&self, tool: Tool, _args: Vec<String>) -> Result<Follow, CommandError> {
        let error = Arc::new(std::io::Error::other("recorded nodes post no events"));
        Err(CommandError::Spawn { path: tool.name().into(), error })
    }

    fn converse(&self, tool: Tool, _args: Vec<String>) -> Result<(Follow, Input), CommandError> {
        let error = Arc::new(std::io::Error::other("recorded nodes do not change"));
        Err(CommandError::Spawn { path: tool.name().into(), error })
    }
}
