// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The flags of `list`.

use clap::Args;
use daemon::cli::Layout;

/// What `list -s` takes: the states, and what the shipped tool sends for all of them.
const STATES: [&str; 10] = [
    "any",
    "all",
    "active",
    "queued",
    "running",
    "paused",
    "scheduled",
    "failed",
    "successful",
    "aborted",
];

/// How `list` prints. Its `-s` is the shipped one.
#[derive(Args, Debug, Clone, Default)]
pub struct MigrationList {
    /// With both nodes and the error.
    #[arg(short = 'l', long)]
    pub long: bool,
    /// Aborted ones too.
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Only those in this state; any is the same as all.
    #[arg(short = 's', long, default_value = "active", hide_default_value = true, value_parser = STATES)]
    pub state: String,
    /// Only those from this node.
    #[arg(short = 'n', long, value_name = "CN")]
    pub cn: Option<String>,
    /// Only those from these nodes, as in RFD 34.
    #[arg(value_name = "CN", conflicts_with = "cn")]
    pub nodes: Vec<String>,
    /// Those that were switched and wait for finalize: since when, and the bytes that the old copy holds.
    #[arg(long, conflicts_with_all = ["state", "all", "long"])]
    pub to_finalize: bool,
    /// Again every two seconds, with how fast it goes and how long it takes, until Ctrl-C.
    #[arg(short = 'w', long, conflicts_with_all = ["json", "long"])]
    pub watch: bool,
    /// No header line.
    #[arg(short = 'H')]
    pub no_header: bool,
    /// Parsable: colons between values, no padding, no header; `:` and `\` in values get a `\`.
    #[arg(short = 'p')]
    pub parsable: bool,
    /// Columns, separated by commas.
    #[arg(short = 'o', value_name = "COLUMN,...")]
    pub columns: Option<String>,
    /// Columns to sort by, separated by commas; `-COLUMN` for descending.
    #[arg(long, value_name = "COLUMN,...", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// JSON: the records, or one object for each row with -o or --sort.
    #[arg(short = 'j', long)]
    pub json: bool,
}

impl MigrationList {
    /// Returns the layout of a table, if the flags ask for one; -H alone does not.
    pub fn layout(&self) -> Option<Layout> {
        let waiting = || self.to_finalize.then(|| "vm,since,held,from,to".to_owned());
        let layout = Layout {
            no_header: self.no_header,
            parsable: self.parsable,
            columns: self.columns.clone().or_else(waiting),
            sort: self.sort.clone(),
            json: self.json,
            within: None,
        };
        let asks = self.parsable || layout.columns.is_some() || self.sort.is_some();
        asks.then_some(layout)
    }
}
