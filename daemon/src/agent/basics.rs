// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The part of the configuration that all agents have. An agent has two files: the shipped agent's, which
//! config-agent writes, and optionally one with the keys that the shipped agent does not have.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::replaced::Replaced;
use crate::cli::names::Names;
use crate::config::{ConfigError, Fields};
use crate::http::url_of;

/// Whether the agent writes or only reports what it would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It writes.
    On,
    /// It only reports.
    Report,
}

impl Mode {
    /// Returns its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Report => "report",
        }
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => Ok(Self::On),
            "report" => Ok(Self::Report),
            _ => Err("expected one of on report"),
        }
    }
}

/// Where an agent keeps its files and listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Lock, state file and what else the agent keeps.
    pub state_dir: PathBuf,
    /// The unix socket for root: offers, approvals, explanations.
    pub control_socket: PathBuf,
    /// Status listener; loopback only.
    pub status_listen: SocketAddr,
    /// Where other nodes may collect metrics, if anywhere.
    pub metrics_listen: Option<SocketAddr>,
}

/// What the configuration of every agent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basics {
    /// Files and listeners.
    pub places: Places,
    /// The shipped feature flag: false means that the agent's service is left alone.
    pub no_rabbit: bool,
    /// on or report.
    pub mode: Mode,
    /// Seed of all jitter; drawn if absent.
    pub seed: Option<u64>,
    /// Tracing filter.
    pub log_level: String,
    /// Unknown keys.
    pub unknown: Vec<String>,
}

/// The arguments that name the files. An agent's grammar sets the default of `--config`.
#[derive(Debug, Clone, clap::Args)]
pub struct FileArgs {
    /// The configuration file, as config-agent writes it.
    #[arg(long, global = true, value_name = "FILE", default_value = "")]
    pub config: PathBuf,
    /// A second file, with keys that the shipped program does not know.
    #[arg(long, global = true, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Where its pages are (default: `status.listen` of the configuration).
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Check the configuration and exit.
    #[arg(long, global = true)]
    pub check_config: bool,
}

impl FileArgs {
    /// Loads a configuration from these files.
    pub fn load<K: Keys>(&self) -> Result<Config<K>, ConfigError> {
        let policy = self.policy.as_deref().map(Fields::load).transpose()?;
        Config::read(Files { shipped: Fields::load(&self.config)?, policy })
    }

    /// Loads what can be used of these files, with the defaults of all else: what is decided in a hurry does not wait for
    /// a typing error elsewhere. Returns also what is wrong.
    pub fn load_usable<K: Keys>(&self) -> (Config<K>, Option<ConfigError>) {
        let mut wrong = None;
        let mut fields = |path: &Path| {
            Fields::load(path).unwrap_or_else(|error| {
                wrong.get_or_insert(error);
                Fields::empty()
            })
        };
        let shipped = fields(&self.config);
        let policy = self.policy.as_deref().map(fields);
        let (config, read) = Config::usable(Files { shipped, policy });
        (config, wrong.or(read.err()))
    }

    /// Returns the base URL of the agent's pages. With `--url` no configuration is read.
    pub fn base<K: Keys>(&self) -> Result<String, ConfigError> {
        match &self.url {
            Some(url) => Ok(url.clone()),
            None => Ok(url_of(self.load::<K>()?.basics.places.status_listen)),
        }
    }
}

/// The keys of one agent.
pub trait Keys: Sized + Send + 'static {
    /// The agent's name; its files are in a directory of this name unless configured otherwise.
    const NAME: &'static str;
    /// The port of its pages unless configured otherwise.
    const PORT: u16;

    /// Reads them.
    fn read(files: &mut Files) -> Self;

    /// Returns where the aliases of the VMs are asked for that its pages name, if they name some.
    fn vminfod(&self) -> Option<&str> {
        None
    }

    /// Reads what all agents have.
    fn basics(files: &mut Files) -> Basics {
        files.basics(Self::NAME, Self::PORT)
    }
}

/// The whole configuration of an agent. Its own keys are its fields too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config<K> {
    keys: K,
    /// What every agent has.
    pub basics: Basics,
}

impl<K> Deref for Config<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.keys
    }
}

impl<K: Keys> Config<K> {
    /// Returns the names of the VMs of the node; none where its pages name no VMs, or vminfod does not answer.
    pub async fn names(&self) -> Names {
        match self.keys.vminfod() {
            Some(vminfod) => Names::of_node(vminfod, K::NAME).await,
            None => Names::default(),
        }
    }

    /// Reads JSON text (one file that holds everything).
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        Self::read(Files { shipped: Fields::from_json(text)?, policy: None })
    }

    /// Reads the two files.
    fn read(files: Files) -> Result<Self, ConfigError> {
        let (mut config, unknown) = Self::usable(files);
        config.basics.unknown = unknown?;
        Ok(config)
    }

    /// Reads what can be used of the two files. Returns also the unknown keys, or what is wrong.
    fn usable(mut files: Files) -> (Self, Result<Vec<String>, ConfigError>) {
        let basics = K::basics(&mut files);
        let keys = K::read(&mut files);
        (Self { keys, basics }, files.finish())
    }
}

/// The two files.
#[derive(Debug)]
pub struct Files {
    shipped: Fields,
    policy: Option<Fields>,
}

impl Files {
    /// Returns the keys of the shipped agent.
    pub fn shipped(&mut self) -> &mut Fields {
        &mut self.shipped
    }

    /// Returns the keys that the shipped agent does not have.
    pub fn ours(&mut self) -> &mut Fields {
        self.policy.as_mut().unwrap_or(&mut self.shipped)
    }

    /// Returns migration-agent of this node.
    pub fn replaced(&mut self) -> Replaced {
        let dir = "/var/db/migration-agent";
        Replaced::new(self.ours().path("migration_agent.state_dir", dir))
    }

    fn basics(&mut self, name: &str, port: u16) -> Basics {
        let no_rabbit = self.shipped.flag("no_rabbit", true);
        let f = self.ours();
        let state_dir = f.path("state_dir", format!("/var/db/{name}"));
        Basics {
            places: Places {
                control_socket: f.path("control.socket", state_dir.join("control.sock")),
                state_dir,
                status_listen: f.loopback("status.listen", port),
                metrics_listen: f.metrics(),
            },
            no_rabbit,
            mode: f.parse("mode", Mode::On.name()),
            seed: f.get("seed").is_some().then(|| f.number("seed", 0, 0..=u64::MAX)),
            log_level: f.text("log_level", "info"),
            unknown: Vec::new(),
        }
    }

    /// Returns the unknown keys of both files.
    fn finish(self) -> Result<Vec<String>, ConfigError> {
        let mut unknown = self.shipped.finish()?;
        unknown.extend(self.policy.map(Fields::finish).transpose()?.unwrap_or_default());
        Ok(unknown)
    }
}
