// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A recorded node brought to life: a copy of its files with their times, and its commands' answers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use daemon::command::{Output, Program};
use serde_json::Value;
use simnode::recorded::Listings;
use vminfod::node::Ctx;
use vminfod::node::root::Root;

/// Reads a JSON file.
pub(super) fn json(path: &Path) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    vm_model::js::parse(&bytes).with_context(|| path.display().to_string())
}

/// A copy of a node; gone when dropped.
pub struct Recorded {
    dir: tempfile::TempDir,
    commands: Listings,
}

impl Recorded {
    /// Copies the node's root and sets the times that git does not keep.
    pub fn copy(node: &Path) -> anyhow::Result<Recorded> {
        let dir = tempfile::tempdir().context("no temporary directory")?;
        simnode::files::copy_tree(&node.join("root"), dir.path())?;
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
        let commands = Listings::default();
        for (tool, name, extension) in [
            (Program::Zoneadm, "zoneadm-list", "txt"),
            (Program::Zfs, "zfs-list", "txt"),
            (Program::Kstat, "zoneinfo", "json"),
        ] {
            commands.put(tool, recorded(&node.join("cmd"), name, extension));
        }
        Ok(Recorded { dir, commands })
    }

    /// The same, whose zoneadm lists the zones of `order` in that order.
    pub fn in_order(self, order: &[String]) -> Recorded {
        let mut listed = self.commands.answer(Program::Zoneadm, &["list".to_owned()]);
        let mut lines: Vec<&[u8]> = listed.stdout.split_inclusive(|b| *b == b'\n').collect();
        lines.sort_by_key(|line| {
            let name = line.split(|b| *b == b':').nth(1).unwrap_or_default();
            order.iter().position(|known| known.as_bytes() == name)
        });
        listed.stdout = lines.concat();
        self.commands.put(Program::Zoneadm, listed);
        self
    }

    /// What the production loader needs to load it.
    pub fn ctx(&self) -> Ctx {
        Ctx::new(Root::new(self.dir.path()), Arc::new(self.commands.clone()))
    }
}

fn recorded(dir: &Path, name: &str, extension: &str) -> Output {
    let read = |extension: &str| std::fs::read(dir.join(format!("{name}.{extension}")));
    let status = |text: Vec<u8>| String::from_utf8_lossy(&text).trim().parse().unwrap_or(1);
    match read(extension) {
        Ok(stdout) => {
            let stderr = read("stderr").unwrap_or_default();
            Output { status: read("exit").map(status).unwrap_or(0), stdout, stderr }
        }
        Err(error) => {
            let stderr = format!("{name}.{extension}: {error}").into_bytes();
            Output { status: 1, stdout: Vec::new(), stderr }
        }
    }
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
