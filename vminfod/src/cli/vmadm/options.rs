// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The options of vmadm's commands: long names may be abbreviated, the last of one option counts, and
//! options stand anywhere among the operands. An unknown option is refused; the shipped program ignores it
//! together with the argument after it. Pure.

use clap::{Args, Command};

use super::outcome::Failure;

/// `list`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ListOptions {
    /// Columns (uuid,type,ram,state,alias): also nics.N.KEY, disks.N.KEY, tags.KEY.
    #[arg(short, long, value_name = "FIELD,...", allow_hyphen_values = true)]
    pub order: Option<String>,
    /// Order of the lines (ram,uuid); -FIELD is descending. Ties sort by uuid.
    #[arg(short, long, value_name = "FIELD,...", allow_hyphen_values = true)]
    pub sortby: Option<String>,
    /// Colons between the columns, and no header.
    #[arg(short, long)]
    pub parsable: bool,
    /// No header.
    #[arg(short = 'H', long, overrides_with = "header")]
    pub no_header: bool,
    /// A header, also with -p.
    #[arg(short = 'h', long, overrides_with = "no_header")]
    pub header: bool,
    /// Only VMs with this value; FIELD=~REGEXP matches a part, ignoring case.
    #[arg(value_name = "FIELD=VALUE")]
    pub filters: Vec<String>,
    #[command(flatten)]
    log: LogOptions,
}

/// `lookup`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct LookupOptions {
    /// JSON instead of UUIDs.
    #[arg(short, long)]
    pub json: bool,
    /// Exactly one VM must be found.
    #[arg(short = '1', long)]
    pub unique: bool,
    /// With -j: only these fields.
    #[arg(short, long, value_name = "FIELD,...", allow_hyphen_values = true)]
    pub output: Option<String>,
    /// Only VMs with this value, as for list.
    #[arg(value_name = "FIELD=VALUE")]
    pub filters: Vec<String>,
    #[command(flatten)]
    log: LogOptions,
}

/// `get`, `json`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct GetOptions {
    /// The VM.
    pub uuid: Option<String>,
    #[arg(hide = true)]
    rest: Vec<String>,
    #[command(flatten)]
    log: LogOptions,
}

/// `events`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct EventsOptions {
    #[arg(short, long)]
    pub full: bool,
    #[arg(short, long)]
    pub json: bool,
    #[arg(short, long)]
    pub ready: bool,
    pub uuid: Option<String>,
    #[arg(hide = true)]
    rest: Vec<String>,
    #[command(flatten)]
    log: LogOptions,
}

/// Options that are accepted and change nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
struct LogOptions {
    #[arg(short, long, hide = true)]
    verbose: bool,
    #[arg(short, long, hide = true)]
    debug: bool,
}

/// Parses the arguments after a command's name.
pub fn parse<O: Args>(args: &[String]) -> Result<O, Failure> {
    let command = Command::new("vmadm").no_binary_name(true).disable_help_flag(true);
    let command = O::augment_args(command).infer_long_args(true).args_override_self(true);
    let parsed = command.try_get_matches_from(args).and_then(|found| O::from_arg_matches(&found));
    parsed.map_err(|wrong| {
        let text = wrong.to_string();
        let line = text.lines().next().unwrap_or_default();
        Failure::Usage(Some(line.trim_start_matches("error: ").to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(line: &str) -> Result<ListOptions, Failure> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lines() {
        let text = |text: &str| Some(text.to_owned());
        let plain = ListOptions::default();
        let parsable = ListOptions { parsable: true, ..plain.clone() };
        let no_header = ListOptions { no_header: true, ..plain.clone() };
        let by_uuid = ListOptions { order: text("uuid"), ..plain.clone() };
        let filters = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        for (line, meaning) in [
            ("a=1 -p b=2", ListOptions { filters: filters(&["a=1", "b=2"]), ..parsable.clone() }),
            ("-pH", ListOptions { no_header: true, ..parsable.clone() }),
            ("-ph", ListOptions { header: true, ..parsable.clone() }),
            ("-H --header", ListOptions { header: true, ..plain.clone() }),
            ("--no-header", no_header.clone()),
            ("-h -H", no_header),
            ("--ord=uuid", by_uuid.clone()),
            ("-ouuid", by_uuid.clone()),
            ("-o a -o uuid", by_uuid),
            ("-s -ram,uuid", ListOptions { sortby: text("-ram,uuid"), ..plain.clone() }),
            ("-- -p", ListOptions { filters: filters(&["-p"]), ..plain }),
            ("--pars", parsable),
        ] {
            assert_eq!(list(line), Ok(meaning), "{line}");
        }
        assert!(list("-vd").is_ok());
        for line in ["-x y", "-o", "--quota"] {
            assert!(matches!(list(line), Err(Failure::Usage(Some(_)))), "{line}");
        }
    }

    #[test]
    fn flags_of_a_lookup_may_stand_together() {
        let LookupOptions { json, unique, .. } = parse(&["-1j".to_owned()]).unwrap();
        assert!(json && unique);
    }
}
