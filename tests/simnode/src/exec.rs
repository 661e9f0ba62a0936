// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's executables `zoneadm`, `sysevent`, `kstat` and `fswatcher` (`zfs` is in
//! `exec_zfs.rs`). Arguments, output and errors are those of the real ones.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::ended::Ended;
use crate::error::NodeError;
use crate::node::{Node, TOOLS};
use crate::sysevent::{self, Follow, Stream};
use crate::{exec_zfs, fswatcher, zones};

/// The line of the global zone in a list of zones.
pub(crate) const GLOBAL: &str = "0:global:running:/::liveimg:shared:0\n";

/// Returns the tool and the node's directory if the program was started as `NODE/bin/TOOL`, by its
/// path or by `PATH`.
pub fn as_tool(invoked: &Path) -> Option<(&'static str, PathBuf)> {
    let name = invoked.file_name()?.to_str()?;
    let tool = TOOLS.into_iter().find(|tool| *tool == name)?;
    let bin = match invoked.parent() {
        Some(bin) if bin != Path::new("") => bin.to_owned(),
        // A shell that found it by PATH passes the bare name.
        _ => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).find(|bin| bin.join(name).is_file())?
        }
    };
    Some((tool, bin.parent()?.to_owned()))
}

/// Runs one of the node's executables.
pub fn run(tool: &str, node: &Path, args: Vec<OsString>) -> ExitCode {
    let ended = match texts(args) {
        Ok(args) => command(tool, node, &args),
        Err(what) => Ended::Failed(2, format!("{tool}: {what}")),
    };
    match ended {
        Ended::Printed(text) => {
            let mut out = std::io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Ended::Failed(status, message) => {
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::from(status)
        }
    }
}

/// Runs a command in this process; returns its exit status, stdout and stderr.
pub fn answer(node: &Node, tool: &str, args: &[String]) -> (u8, String, String) {
    match on_node(tool, node, args) {
        Ended::Printed(text) => (0, text, String::new()),
        Ended::Failed(status, message) => (status, String::new(), message + "\n"),
    }
}

fn texts(args: Vec<OsString>) -> Result<Vec<String>, String> {
    let bad = |a: OsString| format!("argument is not UTF-8: {}", a.to_string_lossy());
    args.into_iter().map(|a| a.into_string().map_err(bad)).collect()
}

fn command(tool: &str, dir: &Path, args: &[String]) -> Ended {
    let node = match Node::open(dir) {
        Ok(node) => node,
        Err(error) => return Ended::Failed(1, format!("{tool}: {error}")),
    };
    match tool {
        "sysevent" => sysevent(&node, args),
        "fswatcher" => fswatcher(args),
        _ => on_node(tool, &node, args),
    }
}

fn on_node(tool: &str, node: &Node, args: &[String]) -> Ended {
    match tool {
        "zoneadm" => zoneadm(node, args),
        "zfs" => exec_zfs::zfs(node, args),
        "kstat" => kstat(node, args),
        _ => Ended::Failed(2, format!("{tool}: no such command on this node")),
    }
}

fn zoneadm(node: &Node, args: &[String]) -> Ended {
    let usage = || {
        Ended::Failed(
            2,
            "usage: zoneadm [-z zonename] [-u uuid-match] subcommand [args]".to_string(),
        )
    };
    let (mut name, mut uuid, mut rest) = (None, None, args);
    loop {
        match rest {
            [flag, value, tail @ ..] if flag == "-z" => (name, rest) = (Some(value.as_str()), tail),
            [flag, value, tail @ ..] if flag == "-u" => (uuid, rest) = (Some(value.as_str()), tail),
            _ => break,
        }
    }
    let [verb, options @ ..] = rest else { return usage() };
    if verb == "list" {
        return list(node, name, uuid, options);
    }
    let Some(name) = name.or(uuid) else { return usage() };
    let done = match verb.as_str() {
        "boot" => node.zone_boot(name),
        "halt" => node.zone_halt(name, zones::CLEAN_EXIT),
        "shutdown" => node.zone_halt(name, 0),
        "reboot" => node.zone_reboot(name),
        "install" => node.zone_install(name, |zone| {
            let dataset = zone.zonepath.trim_start_matches('/').to_string();
            match node.datasets()?.get(&dataset) {
                Some(_) => Ok(()),
                None => node.zfs(|all| Ok(((), all.create(&dataset, &[])?))),
            }
        }),
        "uninstall" => node.zone_uninstall(name),
        _ => return usage(),
    };
    match done {
        Ok(()) => Ended::Printed(String::new()),
        Err(error) => Ended::Failed(1, format!("zoneadm: {error}")),
    }
}

fn list(node: &Node, name: Option<&str>, uuid: Option<&str>, options: &[String]) -> Ended {
    let (mut parsable, mut all) = (false, false);
    for option in options {
        match option.strip_prefix('-') {
            Some(flags) if !flags.is_empty() && flags.chars().all(|c| "pciv".contains(c)) => {
                parsable |= flags.contains('p');
                all |= flags.contains(['c', 'i']);
            }
            _ => return Ended::Failed(2, format!("zoneadm: list: illegal option '{option}'")),
        }
    }
    let zones = match node.zones() {
        Ok(zones) => zones,
        Err(error) => return Ended::Failed(1, format!("zoneadm: {error}")),
    };
    let mut text = String::new();
    let mut add = |line: &str| {
        let shown = if parsable { line } else { line.split(':').nth(1).unwrap_or(line) };
        text.push_str(shown);
        text.push('\n');
    };
    if let Some(wanted) = name.or(uuid) {
        let found = match zones.find(wanted) {
            Some(zone) if uuid.is_none_or(|u| u == zone.uuid) => zone.line(),
            None if wanted == "global" => GLOBAL.trim_end().to_string(),
            _ => return Ended::Failed(1, format!("zoneadm: {wanted}: No such zone configured")),
        };
        add(&found);
    } else {
        add(GLOBAL.trim_end());
        for zone in zones.listed(all) {
            add(&zone.line());
        }
    }
    Ended::Printed(text)
}

fn sysevent(node: &Node, args: &[String]) -> Ended {
    let usage = |what: &str| {
        Ended::Failed(
            1,
            format!("sysevent: {what}\nusage: sysevent [-hjr] [-c channel] [class] [subclass...]"),
        )
    };
    let (mut ready, mut json, mut channel, mut operands) = (false, false, None, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(flags) = arg.strip_prefix('-').filter(|f| !f.is_empty() && operands.is_empty())
        else {
            operands.push(arg.as_str());
            continue;
        };
        for (at, flag) in flags.char_indices() {
            match flag {
                'r' => ready = true,
                'j' => json = true,
                'h' => {
                    return Ended::Printed(
                        "usage: sysevent [-hjr] [-c channel] [class] [subclass...]\n".to_string(),
                    );
                }
                'c' => {
                    let attached = flags.get(at + 1..).filter(|rest| !rest.is_empty());
                    channel = attached.map(str::to_string).or_else(|| args.next().cloned());
                    if channel.is_none() {
                        return usage("option -c needs a channel");
                    }
                    break;
                }
                _ => return usage(&format!("unknown option -{flag}")),
            }
        }
    }
    if !json {
        return usage("this node prints JSON only: give -j");
    }
    let stream = match (channel.as_deref(), operands.as_slice()) {
        (Some("com.sun:zones:status"), []) => Stream::Zones,
        (None, ["EC_zfs"] | ["EC_zfs", "ESC_ZFS_history_event", ..]) => Stream::Zfs,
        _ => Stream::Silent,
    };
    sysevent::follow(node, &Follow { stream, ready }).map_or_else(
        |error| Ended::Failed(1, format!("sysevent: {error}")),
        |()| Ended::Printed(String::new()),
    )
}

#[cfg(target_os = "linux")]
fn fswatcher(args: &[String]) -> Ended {
    use std::os::fd::AsFd;

    let flags = || args.iter().flat_map(|arg| arg.strip_prefix('-').unwrap_or("?").chars());
    // The plain-text output is not recorded.
    if flags().any(|flag| !"rj".contains(flag)) || !flags().any(|flag| flag == 'j') {
        return Ended::Failed(2, "usage: fswatcher [-r] -j".to_string());
    }
    let file = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(std::fs::File::from);
    let streams =
        file(std::io::stdin().as_fd()).and_then(|i| Ok((i, file(std::io::stdout().as_fd())?)));
    let ended = match streams {
        Ok((mut input, mut output)) => {
            let ready = flags().any(|flag| flag == 'r');
            fswatcher::serve(&mut input, &mut output, ready).map_err(|fault| fault.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    ended.map_or_else(
        |why| Ended::Failed(1, format!("fswatcher: {why}")),
        |()| Ended::Printed(String::new()),
    )
}

#[cfg(not(target_os = "linux"))]
fn fswatcher(_args: &[String]) -> Ended {
    Ended::Failed(1, "fswatcher: this one needs inotify".to_string())
}

/// The kstats of all zones, or of the zone with the given id.
fn kstat(node: &Node, args: &[String]) -> Ended {
    let id = match args {
        [] => None,
        [id] if id.parse::<i64>().is_ok() => id.parse().ok(),
        _ => return Ended::Failed(2, "usage: kstat [ZONEID]".to_string()),
    };
    kstats(node, id).map_or_else(Ended::from, Ended::Printed)
}

fn kstats(node: &Node, id: Option<i64>) -> Result<String, NodeError> {
    let zones = node.zones()?;
    let one = |zonename: &str, instance: i64, pid: i64, restarts: u32, boot: i64| {
        let name: String = zonename.chars().take(30).collect();
        let busy = pid.saturating_mul(1_000_000);
        json!({
            "class": "zone_misc", "module": "zones", "name": name, "instance": instance,
            "data": {
                "zonename": zonename, "nsec_user": busy, "nsec_sys": busy / 2, "nsec_waitrq": pid,
                "avenrun_1min": 1, "avenrun_5min": 1, "avenrun_15min": 1, "forkfail_cap": 0,
                "forkfail_noproc": 0, "forkfail_nomem": 0, "forkfail_misc": 0,
                "init_pid": pid, "init_restarts": restarts, "boot_time": boot,
            },
        })
    };
    let mut all: Vec<Value> = vec![one("global", 0, 1, 0, 1_700_000_000)];
    for zone in zones.listed(false) {
        if let Some(k) = &zone.kstat {
            all.push(one(&zone.zonename, k.instance, k.init_pid, k.init_restarts, k.boot_time));
        }
    }
    let wanted = all.iter().filter(|one| id.is_none_or(|id| one["instance"] == id));
    let lines: Vec<String> = wanted.map(Value::to_string).collect();
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}
