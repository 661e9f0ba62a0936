// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What several verbs have: where the services are, of which VMs, where to, how fast, and whether to ask.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use daemon::config::parse_span;

/// Where the services are.
#[derive(Args, Debug, Clone, Default)]
pub struct Reach {
    /// migration-service, which stands in front of VMAPI.
    #[arg(long, value_name = "URL", global = true)]
    pub url: Option<String>,
    /// CNAPI, for host names and `evacuate`.
    #[arg(long, value_name = "URL", global = true)]
    pub cnapi: Option<String>,
    /// Configuration file (default: /opt/smartdc/agents/etc/sdc-migrate.config.json).
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// How an operator proves that he is one.
#[derive(Args, Debug, Clone, Default)]
pub struct Proof {
    /// The service's port for those who have certificates; its unix socket otherwise.
    #[arg(long, value_name = "URL", global = true)]
    pub trust_url: Option<String>,
    /// Where the operator's key and certificate are (default: ~/.sdc-migrate).
    #[arg(long, value_name = "DIR", global = true)]
    pub trust_dir: Option<PathBuf>,
}

/// Of which migrations.
#[derive(Args, Debug, Clone, Default)]
#[group(id = "which", required = true, multiple = false)]
pub struct Which {
    /// The VM.
    pub vm: Option<String>,
    /// All from this node and to it that take it.
    #[arg(long, value_name = "CN")]
    pub cn: Option<String>,
    /// All in the data centre that wait for it; of a pause, all that sync.
    #[arg(long)]
    pub all_waiting: bool,
}

/// How fast.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Rate {
    /// At most so many megabits per second from now on, besides the limit of the nodes; 0: only that.
    #[arg(long, value_name = "MBPS", allow_negative_numbers = true)]
    pub bwlimit: Option<u32>,
}

/// How long the instance may be down.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Down {
    /// Refuse to switch where the instance would be down for longer, such as 90s or 2m; it runs on then. 0: any.
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    pub max_downtime: Option<u32>,
}

/// Reads a span, or whole seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let span = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_span(text)?,
    };
    u32::try_from(span.as_secs()).map_err(|_| "that is too long".to_owned())
}

/// A migration that begins.
#[derive(Args, Debug, Clone, Default)]
pub struct Placed {
    /// The VM.
    pub vm: String,
    /// The node to migrate to; CNAPI chooses one otherwise.
    #[arg(short = 'n', long, value_name = "CN")]
    pub cn: Option<String>,
    /// Where to place it relative to others, as docker spells it.
    #[arg(long, value_name = "RULE")]
    pub affinity: Option<String>,
    /// Whichever vm-agent the two nodes have: a restart of the deployed one may have VMAPI show the VM destroyed.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub rate: Rate,
    #[command(flatten)]
    pub down: Down,
    /// Do not watch it: print its job and end.
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub consent: Consent,
}

/// Whether to ask.
#[derive(Args, Debug, Clone, Copy, Default)]
pub struct Consent {
    /// Do not ask. Off a terminal it asks only before data is lost, and then needs this.
    #[arg(short = 'y', long)]
    pub yes: bool,
}
