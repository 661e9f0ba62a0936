// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon's configuration: a JSON or TOML file, then flags. Every key has a default that fits
//! a real node.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::agent::hub::SOCKET;
use daemon::http::Limits as HttpLimits;
use daemon::{ConfigError, Fields};
use sdc_clients::quoted;

use crate::node::root::{DEADLINE, Root};
use crate::node::{Ctx, Deadlines};
use daemon::command::{Commands, Paths, Program};
use daemon::journal::BYTES;

/// The longest time that can be set.
const DAY: Duration = Duration::from_secs(86_400);

/// The programs that it runs.
pub const PROGRAMS: [Program; 5] =
    [Program::Zoneadm, Program::Zfs, Program::Kstat, Program::Sysevent, Program::Fswatcher];

/// How changes of files are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The platform's `fswatcher` helper reports them.
    Fswatcher,
    /// Only sweeps find them.
    Sweep,
}

impl std::str::FromStr for Watch {
    type Err = &'static str;

    /// `auto` is an older name of `fswatcher`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" | "fswatcher" => Ok(Self::Fswatcher),
            "sweep" => Ok(Self::Sweep),
            _ => Err("expected fswatcher or sweep"),
        }
    }
}

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the node's `/` is.
    pub root: PathBuf,
    /// Where to serve.
    pub listen: SocketAddr,
    /// Serve there even if it is no loopback address.
    pub listen_beyond_loopback: bool,
    /// Host names of this node by which clients may ask, besides `localhost`.
    pub host_names: Vec<String>,
    /// A unix socket to serve on as well, for programs that act on what they read.
    pub socket: Option<Socket>,
    /// Where other nodes may collect metrics, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Caps and deadlines of connections.
    pub http: HttpLimits,
    /// The node's programs.
    pub commands: Paths,
    /// How changes of files are found.
    pub watch: Watch,
    /// Time between full refreshes: least and most.
    pub refresh: (Duration, Duration),
    /// Time between sweeps.
    pub sweep: Duration,
    /// How long commands may take.
    pub deadlines: Deadlines,
    /// How long a file system may take to answer.
    pub file_deadline: Duration,
    /// Pause before a failed reading is tried again: first ceiling and last.
    pub retry: (Duration, Duration),
    /// The least time between the beginnings of two readings of a VM.
    pub fold: Duration,
    /// VMs read at once.
    pub concurrency: usize,
    /// The size of the ring of events.
    pub ring_bytes: usize,
    /// What is logged.
    pub log_level: String,
}

impl Default for Config {
    fn default() -> Self {
        match Self::read(Fields::empty()) {
            Ok((config, _)) => config,
            Err(error) => unreachable!("invariant: defaults are within their own bounds: {error}"),
        }
    }
}

impl Config {
    /// Reads the settings; returns the unknown keys too.
    pub fn read(mut fields: Fields) -> Result<(Self, Vec<String>), ConfigError> {
        const MS: Duration = Duration::from_millis(1);
        const ANY: RangeInclusive<Duration> = MS..=DAY;
        let seconds = Duration::from_secs;
        let default = Deadlines::default();
        let config = Self {
            root: fields.path("root", "/"),
            listen: fields.parse("listen", "127.0.0.1:9090"),
            listen_beyond_loopback: fields.flag("listen_beyond_loopback", false),
            host_names: fields.texts("host_names"),
            socket: Socket::read(&mut fields),
            metrics: fields.metrics(),
            http: http_limits(&mut fields),
            commands: Paths::read(&mut fields, &PROGRAMS),
            watch: fields.parse("watch", "fswatcher"),
            refresh: (
                fields.span("refresh.min", seconds(270), ANY),
                fields.span("refresh.max", seconds(300), ANY),
            ),
            sweep: fields.span("sweep", seconds(10), ANY),
            deadlines: Deadlines {
                zoneadm: fields.span("deadlines.zoneadm", default.zoneadm, ANY),
                zfs_one: fields.span("deadlines.zfs_one", default.zfs_one, ANY),
                zfs_node: fields.span("deadlines.zfs_node", default.zfs_node, ANY),
                zfs_snapshots: fields.span("deadlines.zfs_snapshots", default.zfs_snapshots, ANY),
                kstat: fields.span("deadlines.kstat", default.kstat, ANY),
            },
            file_deadline: fields.span("deadlines.files", DEADLINE, ANY),
            retry: (
                fields.span("retry.min", Duration::from_millis(500), ANY),
                fields.span("retry.max", seconds(60), ANY),
            ),
            fold: fields.span("fold", Duration::from_millis(10), MS..=seconds(10)),
            concurrency: usize::try_from(fields.number("concurrency", 8, 1..=1024)).unwrap_or(8),
            ring_bytes: usize::try_from(fields.number("ring_bytes", BYTES as u64, 1..=1 << 40))
                .unwrap_or(usize::MAX),
            log_level: fields.text("log_level", "info"),
        };
        for (key, (min, max)) in [("refresh", config.refresh), ("retry", config.retry)] {
            if min > max {
                fields.fault(key, "min is greater than max");
            }
        }
        if !config.listen.ip().is_loopback() && !config.listen_beyond_loopback {
            fields
                .fault("listen", "not a loopback address (listen_beyond_loopback would allow it)");
        }
        let unknown = fields.finish()?;
        Ok((config, unknown))
    }

    /// Returns what reads this node with these programs.
    pub fn ctx(&self, commands: Arc<dyn Commands>) -> Ctx {
        let root = Root::new(self.root.clone()).with_deadline(self.file_deadline);
        Ctx { root, commands, deadlines: self.deadlines }
    }
}

/// A unix socket to serve on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Where it is below the root; elsewhere if this is absolute.
    pub path: PathBuf,
    pub mode: u32,
}

impl Socket {
    /// `socket.path`, which `none` switches off, and `socket.mode` in octal digits.
    fn read(fields: &mut Fields) -> Option<Self> {
        let text = fields.text("socket.mode", "0600");
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            fields.fault(
                "socket.mode",
                format_args!("{} is not a mode (write \"0660\")", quoted(&text)),
            );
        }
        let path = fields.path("socket.path", SOCKET.trim_start_matches('/'));
        (path != Path::new("none")).then(|| Self { path, mode: mode.unwrap_or(0o600) })
    }
}

fn http_limits(fields: &mut Fields) -> HttpLimits {
    let least = Duration::from_millis(100);
    let limits = HttpLimits::default();
    let mut count = |key: &str, default: u64, bounds| {
        usize::try_from(fields.number(key, default, bounds)).unwrap_or(usize::MAX)
    };
    let connections = count("http.connections", limits.connections as u64, 1..=1 << 20);
    // The library cannot enforce less than 8 KiB.
    let head_bytes = count("http.head_bytes", limits.head_bytes as u64, 8192..=1 << 20);
    let rate = count("http.requests_per_second", limits.requests_per_second.into(), 0..=1 << 30);
    HttpLimits {
        connections,
        head_bytes,
        requests_per_second: u32::try_from(rate).unwrap_or(u32::MAX),
        head: fields.span("http.head", limits.head, least..=DAY),
        idle: fields.span("http.idle", limits.idle, least..=DAY),
        write: fields.span("http.write", limits.write, least..=DAY),
        drain: limits.drain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn defaults_and_overrides() {
        let config = Config::default();
        assert_eq!(config.listen.to_string(), "127.0.0.1:9090");
        assert_eq!(config.refresh, (Duration::from_secs(270), Duration::from_secs(300)));
        assert_eq!(config.ring_bytes, 16 << 20); // S119
        let text = r#"{"root": "/n", "refresh": {"min": "1s", "max": "2s"}, "commands": {"zfs": "/n/zfs"}, "odd": 1}"#;
        let (config, unknown) = Config::read(Fields::from_json(text).unwrap()).unwrap();
        assert_eq!(
            (config.root.as_path(), config.commands.of(Program::Zfs)),
            (Path::new("/n"), Path::new("/n/zfs"))
        );
        assert_eq!(unknown, ["odd"]);
    }

    #[test]
    fn reports_all_faults_at_once() {
        let text = r#"{"listen": "0.0.0.0:1", "refresh": {"min": "3s", "max": "2s"}, "concurrency": 0,
            "socket": {"mode": "999"}, "http": {"connections": 0}, "retry": {"min": "2m"}}"#;
        let message = Config::read(Fields::from_json(text).unwrap()).unwrap_err().to_string();
        for key in ["listen", "refresh", "concurrency", "socket.mode", "http.connections", "retry"]
        {
            assert!(message.contains(key), "{key} in {message}");
        }
    }

    #[test]
    fn reads_a_socket_and_its_mode() {
        let read = |text: &str| Config::read(Fields::from_json(text).unwrap()).unwrap().0;
        let path = |config: Config| config.socket.map(|socket| socket.path.display().to_string());
        assert_eq!(path(read(r#"{"root": "/n"}"#)).as_deref(), Some("var/run/vminfod/hub.sock"));
        assert_eq!(path(read(r#"{"socket": {"path": "none"}}"#)), None);
        let config = read(
            r#"{"socket": {"path": "/s", "mode": "660"}, "listen": "0.0.0.0:1", "listen_beyond_loopback": true}"#,
        );
        assert_eq!(config.socket, Some(Socket { path: "/s".into(), mode: 0o660 }));
        assert!(config.listen_beyond_loopback);
    }
}
