// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The configuration file. The daemon is off unless it says otherwise.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use daemon::agent::hub;
use daemon::timing::HOUR;
use daemon::{ConfigError, Fields};

use crate::judge::ADMIN_WINDOW;
use crate::needed::Need;
use crate::verdict::Rule;

/// The default configuration file.
pub const DEFAULT_FILE: &str = "/opt/smartdc/agents/etc/kvmd.config.json";
/// Where Ganeti keeps the monitors' sockets.
const CONTROL_DIR: &str = "/var/run/ganeti/kvm-hypervisor/ctrl";

/// The configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether it is wanted here at all (K2).
    pub need: Need,
    /// Where it serves.
    pub listen: SocketAddr,
    /// Where other nodes may collect metrics, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Lock, histories and clearings.
    pub run_dir: PathBuf,
    /// Sockets in one directory, markers beside them.
    pub control: Option<Control>,
    /// Zones, followed through vminfod.
    pub zones: Option<Zones>,
    /// The rule that decides about markers.
    pub rule: Rule,
    /// Waits and windows.
    pub limits: Limits,
    /// A tracing filter.
    pub log_level: String,
}

/// The control directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The directory.
    pub dir: PathBuf,
    /// The sockets' extension, without its dot.
    pub extension: String,
    /// A marker without a socket is removed at this age; `None`: never.
    pub marker_age: Option<Duration>,
}

/// SmartOS.
#[derive(Clone, Debug)]
pub struct Zones {
    /// vminfod.
    pub url: String,
    /// A second monitor's socket, as a path inside the zone; `None`: no QMP here.
    pub socket: Option<PathBuf>,
    /// How long after a zone's end its facts may still change.
    pub settle: Duration,
}

/// Waits and windows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// See [`ADMIN_WINDOW`].
    pub admin_window: Duration,
    /// Interval of complete scans.
    pub rescan: Duration,
    /// How long a full backlog is retried.
    pub connect: Duration,
    /// Without a greeting for this long another client holds the monitor.
    pub greeting: Duration,
    /// An end this soon after the admin path cleared the marker is the admin's (R3).
    pub clear_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            admin_window: ADMIN_WINDOW,
            rescan: Duration::from_secs(60),
            connect: Duration::from_secs(180),
            greeting: Duration::from_secs(5),
            clear_window: Duration::from_secs(10),
        }
    }
}

impl Config {
    /// Reads the fields of a configuration; also returns its unknown keys.
    /// Fails if it has wrong values: all are named.
    pub fn read(mut fields: Fields) -> Result<(Self, Vec<String>), ConfigError> {
        let f = &mut fields;
        let waits = Limits::default();
        let short = Duration::from_millis(1)..=HOUR;
        let config = Self {
            need: Need {
                enabled: f.flag("enabled", false),
                hypervisors: f.text("hypervisors", "kvm"),
                user_shutdown: f.flag("user_shutdown", true),
                vm_capable: f.flag("vm_capable", true),
                ssconf: f.optional_text("ssconf_dir").map(PathBuf::from),
            },
            listen: f.parse("listen", "127.0.0.1:5312"),
            metrics: f.metrics(),
            run_dir: f.path("run_dir", "/var/run/kvmd"),
            control: control(f),
            zones: zones(f),
            rule: f.parse("rule", "reason"),
            limits: Limits {
                admin_window: f.span("admin_window", waits.admin_window, short.clone()),
                rescan: f.span("rescan", waits.rescan, short.clone()),
                connect: f.span("connect_timeout", waits.connect, short.clone()),
                greeting: f.span("greeting_timeout", waits.greeting, short.clone()),
                clear_window: f.span("clear_window", waits.clear_window, short),
            },
            log_level: f.text("log_level", "info"),
        };
        Ok((config, fields.finish()?))
    }
}

fn control(f: &mut Fields) -> Option<Control> {
    let wanted = f.flag("control.enabled", !cfg!(target_os = "illumos"));
    let dir = f.path("control.dir", CONTROL_DIR);
    let extension = f.text("control.extension", ".kvmd");
    let age = f.span("control.marker_age", Duration::ZERO, Duration::ZERO..=10_000 * HOUR);
    let extension = extension.strip_prefix('.').unwrap_or(&extension).to_owned();
    if extension.is_empty() || extension.contains(['.', '/']) || extension == "shutdown" {
        f.fault("control.extension", "expected one extension that is not the marker's");
    }
    if !dir.is_absolute() {
        f.fault("control.dir", "expected an absolute path");
    }
    let marker_age = (!age.is_zero()).then_some(age);
    wanted.then_some(Control { dir, extension, marker_age })
}

fn zones(f: &mut Fields) -> Option<Zones> {
    let wanted = f.flag("vminfod.enabled", cfg!(target_os = "illumos"));
    let url = hub::url(f);
    let settle = f.span("vminfod.settle", Duration::from_secs(2), Duration::ZERO..=HOUR);
    let socket = f.optional_text("vminfod.socket").map(PathBuf::from);
    if let Some(path) = &socket
        && let Some(reason) = unfit(path)
    {
        f.fault("vminfod.socket", reason);
    }
    wanted.then_some(Zones { url, socket, settle })
}

/// Returns why a path inside a zone cannot be the socket's.
fn unfit(path: &Path) -> Option<&'static str> {
    let plain =
        path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path.file_name().is_none() {
        return Some("expected an absolute path inside the zone, without \"..\"");
    }
    // A monitor serves one client: vmadm stop, reboot and info would hang.
    (path.file_name().is_some_and(|name| name == "vm.qmp"))
        .then_some("vm.qmp is the platform's own monitor and is never held; give QEMU a second one")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, ConfigError> {
        Config::read(Fields::from_json(text).unwrap()).map(|(config, _)| config)
    }

    #[test]
    fn defaults_are_as_documented() {
        let config = Config::read(Fields::empty()).unwrap().0;
        assert!(!config.need.enabled);
        assert_eq!(config.listen.to_string(), "127.0.0.1:5312");
        assert_eq!(config.rule, Rule::Reason);
        if !cfg!(target_os = "illumos") {
            let control = config.control.unwrap();
            assert_eq!(
                (control.dir.to_str(), control.extension.as_str()),
                (Some(CONTROL_DIR), "kvmd")
            );
            assert!(config.zones.is_none());
        }
    }

    #[test]
    fn the_platforms_own_monitor_cannot_be_configured() {
        for path in ["/tmp/vm.qmp", "tmp/vm.kvmd", "/tmp/../vm.kvmd", "/"] {
            let text = format!(r#"{{"vminfod":{{"socket":"{path}"}}}}"#);
            assert!(read(&text).unwrap_err().to_string().contains("vminfod.socket"), "{path}");
        }
        let config = read(r#"{"vminfod":{"enabled":true,"socket":"/tmp/vm.kvmd"}}"#).unwrap();
        assert_eq!(config.zones.unwrap().socket, Some(PathBuf::from("/tmp/vm.kvmd")));
    }

    #[test]
    fn extensions() {
        for (text, kept) in [(".qmp", "qmp"), ("kvmd", "kvmd")] {
            let config = read(&format!(r#"{{"control":{{"enabled":true,"extension":"{text}"}}}}"#));
            assert_eq!(config.unwrap().control.unwrap().extension, kept);
        }
        for text in ["", ".", ".shutdown", "a/b", ".a.b"] {
            assert!(read(&format!(r#"{{"control":{{"extension":"{text}"}}}}"#)).is_err(), "{text}");
        }
    }
}
