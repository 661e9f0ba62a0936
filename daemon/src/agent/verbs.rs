// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line of an agent. A failure is one line on stderr and an exit status: 2 for the command line and the
//! configuration (96 under SMF), 1 for the rest (95 under SMF if another copy runs).

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Debug;
use std::ops::Deref;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::Value;

use crate::cli::{self, Generated, NamedListArgs, Screen, pages};
use crate::config::ConfigError;
use crate::log;
use crate::tasks::Shutdown;

use super::ask::{approve_plan, claim_node};
use super::basics::{Basics, Config, FileArgs, Keys};
use super::run::{self, ServeError};

/// A program's own verbs, and what the verbs of all agents need.
pub trait Verbs: Subcommand + Debug {
    /// Its configuration.
    type Keys: Keys;
    /// Why a verb failed.
    type Error: Deref<Target = dyn Error + Send + Sync>;
    /// The name in messages and logs.
    const NAME: &'static str = <Self::Keys as Keys>::NAME;
    /// What the program is for.
    const ABOUT: &'static str;
    /// Examples.
    const HELP: &'static str;
    /// Where the shipped platform keeps its configuration.
    const FILE: &'static str;

    /// Returns `/status` for people.
    const STATUS: fn(&Value, Screen) -> String;

    /// Runs the daemon until the shutdown.
    fn serve(
        config: Config<Self::Keys>,
        shutdown: Shutdown,
    ) -> impl Future<Output = Result<(), ServeError>>;

    /// Returns what one of its own verbs prints.
    fn answer(
        self,
        target: Target<Self>,
        screen: Screen,
    ) -> impl Future<Output = Result<String, Self::Error>>;
}

/// Where the agent that a verb is about has its files and pages.
#[derive(Debug)]
pub struct Target<V> {
    files: FileArgs,
    verbs: std::marker::PhantomData<V>,
}

impl<V: Verbs> Target<V> {
    /// Returns its configuration.
    pub fn config(&self) -> Result<Config<V::Keys>, ConfigError> {
        self.files.load()
    }

    /// Returns what can be used of it; what is wrong with it is a warning.
    pub fn usable_config(&self) -> Config<V::Keys> {
        let (config, wrong) = self.files.load_usable();
        if let Some(wrong) = wrong {
            let dir = config.basics.places.state_dir.display();
            eprintln!("{}: warning: {}: what is said is of {dir}", V::NAME, log::chain(&wrong));
        }
        config
    }

    /// Returns the base URL of its pages.
    pub fn base(&self) -> Result<String, ConfigError> {
        self.files.base::<V::Keys>()
    }
}

#[derive(Debug, clap::Parser)]
#[command(name = V::NAME, version = cli::version(), about = V::ABOUT)]
#[command(args_override_self = true)]
#[command(after_help = V::HELP.to_owned() + "\n\nExit status: 0 done, 1 failed, 2 wrong usage or configuration \
    (`serve` under SMF: 95, 96).\nColours only on a terminal, and never with NO_COLOR.")]
#[command(mut_arg("config", |arg| arg.default_value(V::FILE)))]
struct CommandLine<V: Verbs> {
    #[command(subcommand)]
    verb: Option<Verb<V>>,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Debug, Subcommand)]
enum Verb<V: Verbs> {
    /// Run the daemon.
    Serve,
    /// Exit 0 if the daemon answers.
    Ping {
        /// JSON, also on a terminal.
        #[arg(short = 'j', long)]
        json: bool,
    },
    /// Show what it does and what it is waiting for (JSON if stdout is no terminal).
    Status {
        #[command(flatten)]
        list: NamedListArgs,
    },
    #[command(flatten)]
    Own(V),
    #[command(flatten)]
    Generated(Generated),
}

/// What an operator decides for an agent that deletes.
#[derive(Debug, Subcommand)]
pub enum Decide {
    /// Approve what the brake is blocking, as `plan` listed it.
    Approve {
        /// The id that `plan` printed.
        id: String,
    },
    /// Say that this machine is the node, or was a node that had another uuid.
    Claim {
        /// The node that this machine was; without it, the node that it is.
        node: Option<String>,
        /// Also where CNAPI knows the old node, or does not answer.
        #[arg(long)]
        really: bool,
    },
}

impl Decide {
    /// Sends it to the running agent, whose records are called `kind`. Returns what follows, for people.
    /// Fails if no agent answers, or it refuses.
    pub async fn send(
        self,
        basics: &Basics,
        kind: &str,
    ) -> Result<String, cli::control::ControlError> {
        match self {
            Self::Approve { id } => {
                let count = approve_plan(&basics.places, &id, kind).await?;
                Ok(format!(
                    "approved {count} {kind} for 15 minutes; every other check still runs\n"
                ))
            }
            Self::Claim { node, really } => {
                claim_node(&basics.places, node.as_deref(), really).await
            }
        }
    }
}

/// Runs an agent's program; `args` begin with its name.
pub fn main<V: Verbs>(args: impl Iterator<Item = OsString>) -> ExitCode {
    let CommandLine::<V> { verb, files } = match cli::parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    if files.check_config {
        return run::check::<V::Keys>(&files);
    }
    let (target, screen) = (Target { files, verbs: std::marker::PhantomData }, Screen::of_stdout());
    match verb.unwrap_or(Verb::Serve) {
        Verb::Serve => run::serve(&target.files, V::serve),
        Verb::Own(verb) => {
            cli::run(V::NAME, async { cli::finish(V::NAME, verb.answer(target, screen).await) })
        }
        common => {
            cli::run(V::NAME, async { cli::finish(V::NAME, answer(common, &target, screen).await) })
        }
    }
}

async fn answer<V: Verbs>(
    verb: Verb<V>,
    target: &Target<V>,
    screen: Screen,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    Ok(match verb {
        Verb::Ping { json } => pages::ping(V::NAME, &target.base()?, json, screen).await?,
        Verb::Status { list } => {
            let mut page = pages::page(V::NAME, &target.base()?, "status", "version").await?;
            // With --url there need not be a configuration, and then there are no names.
            if let (true, Ok(config)) = (list.shows_names(screen), target.config()) {
                page = config.names().await.in_page(page);
            }
            pages::shown(&page, &list.layout(), screen, V::STATUS)?
        }
        Verb::Generated(asked) => asked.text::<CommandLine<V>>()?,
        Verb::Serve | Verb::Own(_) => String::new(),
    })
}
