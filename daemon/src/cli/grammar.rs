// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What all grammars have in common: the flags of lists, errors in one line, completions, manual pages.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, Parser};
use clap_complete::Shell;

use super::screen::{self, Screen};
use super::table::Layout;
use crate::exit;

/// How a list is printed.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ListArgs {
    /// No header line.
    #[arg(short = 'H')]
    no_header: bool,
    /// Parsable: colons between values, no padding, no header; `:` and `\` in values get a `\`.
    #[arg(short = 'p')]
    parsable: bool,
    /// Columns, separated by commas.
    #[arg(short = 'o', value_name = "COLUMN,...")]
    columns: Option<String>,
    /// Columns to sort by, separated by commas; `-COLUMN` for descending.
    #[arg(short = 's', value_name = "COLUMN,...", allow_hyphen_values = true)]
    sort: Option<String>,
    /// JSON.
    #[arg(short = 'j', long)]
    json: bool,
}

impl ListArgs {
    /// Returns the layout that the flags ask for.
    pub fn layout(&self) -> Layout {
        Layout {
            no_header: self.no_header,
            parsable: self.parsable,
            columns: self.columns.clone(),
            sort: self.sort.clone(),
            json: self.json,
            within: None,
        }
    }
}

/// How a list is printed that has VMs or nodes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct NamedListArgs {
    #[command(flatten)]
    list: ListArgs,
    /// UUIDs in full, where a terminal has aliases and host names. Pipes, -p and -j have UUIDs.
    #[arg(short = 'l', long)]
    long: bool,
}

impl NamedListArgs {
    /// Returns the layout that the flags ask for.
    pub fn layout(&self) -> Layout {
        self.list.layout()
    }

    /// Returns true if names are shown in the place of uuids.
    pub fn shows_names(&self, screen: Screen) -> bool {
        screen.is_terminal && !self.long && !self.list.parsable && !self.list.json
    }
}

/// The commands that print what is made from the grammar; every program has them last.
#[derive(Debug, clap::Subcommand)]
pub enum Generated {
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the manual page, or write all of them into a directory.
    Man {
        /// Where to write the pages of all commands.
        dir: Option<PathBuf>,
    },
}

impl Generated {
    /// Returns what is printed.
    pub fn text<C: Parser>(&self) -> io::Result<String> {
        match self {
            Generated::Completions { shell } => Ok(completions::<C>(*shell)),
            Generated::Man { dir } => man::<C>(dir.as_deref()),
        }
    }
}

/// The examples of the commands that several programs have.
const EXAMPLES: [(&str, &str); 7] = [
    (
        "serve",
        "Examples:\n  NAME serve --config CONFIG\n  NAME serve --check-config --config FILE    check the file",
    ),
    ("ping", "Examples:\n  NAME ping\n  until NAME ping >/dev/null 2>&1; do sleep 1; done"),
    (
        "status",
        "Examples:\n  NAME status\n  NAME status | json waiting_for\n  NAME status -p -o field,value",
    ),
    (
        "approve",
        "Examples:\n  NAME approve 9f3c52a1b6d07e48\n\n\
         The id stands for exactly the records that `plan` listed, in exactly those versions, and lasts 15 minutes.\n\
         Every other check still runs before each write.",
    ),
    (
        "claim",
        "Examples:\n  \
         NAME claim                        a second machine has this node's uuid, and this one is the node\n  \
         NAME claim OLD-UUID               this machine was that node: it has a new main board\n  \
         NAME claim OLD-UUID --really      although CNAPI still knows the old node\n\n\
         The records of VMs here that name the old node get this one. It is kept across restarts.",
    ),
    ("completions", "Examples:\n  NAME completions bash > /etc/bash_completion.d/NAME"),
    ("man", "Examples:\n  NAME man | man -l -\n  NAME man /usr/share/man/man8"),
];

/// Returns a program's grammar, with the examples of the commands that several programs have.
fn grammar<C: Parser>() -> Command {
    let grammar = C::command();
    let name = grammar.get_name().to_owned();
    let config = grammar.get_arguments().find(|arg| arg.get_id() == "config");
    let config = config.and_then(|arg| arg.get_default_values().first());
    let config = config.map_or("FILE".into(), |path| path.to_string_lossy().into_owned());
    grammar.arg_required_else_help(true).mut_subcommands(|command| {
        let shared = EXAMPLES.iter().find(|(verb, _)| *verb == command.get_name());
        match shared.filter(|_| command.get_after_help().is_none()) {
            Some((_, text)) => {
                command.after_help(text.replace("NAME", &name).replace("CONFIG", &config))
            }
            None => command,
        }
    })
}

/// Prints why arguments are not run and returns the exit code: help and version go to stdout; an error is
/// one line on stderr (the parser's first paragraph; the rest is the usage) and code 2.
pub fn misuse(program: &str, text: &str, is_answer: bool) -> ExitCode {
    if is_answer {
        // A reader that went away is no failure.
        let _gone = screen::write(text);
        return ExitCode::SUCCESS;
    }
    eprintln!("{program}: {} (see --help)", first_paragraph(text));
    ExitCode::from(exit::USAGE)
}

/// Ends `--check-config` with success; prints the unknown keys.
pub fn valid_config(program: &str, unknown: &[String]) -> ExitCode {
    for key in unknown {
        eprintln!("{program}: warning: unknown key {key}");
    }
    // A reader that went away is no failure.
    let _gone = screen::write("configuration is valid\n");
    ExitCode::SUCCESS
}

fn first_paragraph(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let what = lines.join(" ").trim_start_matches("error: ").to_owned();
    // One name, or several.
    let tips = ["tip: a similar ", "tip: some similar "];
    let tip = |line| tips.iter().find_map(|tip| str::strip_prefix(str::trim(line), tip));
    let tip = text.lines().find_map(tip);
    let meant = tip.and_then(|tip| tip.split_once(": ")).map(|(_, name)| name);
    match meant {
        Some(name) => format!("{what}: did you mean {name}?"),
        None => what,
    }
}

/// Parses the arguments, which begin with the program's name. Options of a command may also stand before it.
pub fn parse<C: Parser>(args: impl Iterator<Item = OsString>) -> Result<C, ExitCode> {
    let args: Vec<OsString> = args.collect();
    let parsed = read(&args).or_else(|error| match error.kind() {
        ErrorKind::ArgumentConflict | ErrorKind::UnknownArgument => moved(&args).ok_or(error),
        _ => Err(error),
    });
    parsed.map_err(|error| match error.kind() {
        // The name alone, or that of a group.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{error}");
            ExitCode::from(exit::USAGE)
        }
        _ => {
            let text = negative(&args, &error).unwrap_or_else(|| error.to_string());
            misuse(C::command().get_name(), &text, !error.use_stderr())
        }
    })
}

/// Returns what is wrong with a value that the parser took for an option: `-2h`.
fn negative(args: &[OsString], error: &clap::Error) -> Option<String> {
    let is_negative = |arg: &&str| {
        arg.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let value = args.iter().filter_map(|arg| arg.to_str()).find(is_negative)?;
    let is_unknown = error.kind() == ErrorKind::UnknownArgument;
    is_unknown.then(|| format!("invalid value '{value}': it cannot be negative"))
}

fn read<C: Parser>(args: &[OsString]) -> Result<C, clap::Error> {
    let mut grammar = grammar::<C>();
    let mut found = grammar.try_get_matches_from_mut(args)?;
    C::from_arg_matches_mut(&mut found).map_err(|error| error.format(&mut grammar))
}

/// Parses the arguments with what stands before the command behind it.
fn moved<C: Parser>(args: &[OsString]) -> Option<C> {
    let grammar = C::command();
    let is_command = |arg: &OsString| grammar.get_subcommands().any(|it| it.get_name() == arg);
    let at = (1..args.len()).filter(|at| is_command(&args[*at]));
    at.map(|at| {
        let (before, rest) = args.split_at(at);
        [&before[..1], &rest[..1], &before[1..], &rest[1..]].concat()
    })
    .find_map(|args| read(&args).ok())
}

/// Returns the script that completes the program's commands in a shell.
pub fn completions<C: Parser>(shell: Shell) -> String {
    let mut grammar = grammar::<C>();
    let (name, mut script) = (grammar.get_name().to_owned(), Vec::new());
    clap_complete::generate(shell, &mut grammar, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the program's manual page (section 8); with a directory, writes the pages of all commands
/// there.
pub fn man<C: Parser>(dir: Option<&Path>) -> io::Result<String> {
    let page = |command: Command, title: &str| {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(command).title(title).section("8");
        man.render(&mut page).map(|()| page)
    };
    let mut grammar = grammar::<C>();
    let name = grammar.get_name().to_owned();
    let Some(dir) = dir else {
        return Ok(String::from_utf8_lossy(&page(grammar, &name)?).into_owned());
    };
    std::fs::create_dir_all(dir)?;
    grammar.build();
    for part in grammar.get_subcommands().filter(|part| part.get_name() != "help") {
        let title = format!("{name}-{}", part.get_name());
        std::fs::write(dir.join(format!("{title}.8")), page(part.clone(), &title)?)?;
    }
    std::fs::write(dir.join(format!("{name}.8")), page(grammar, &name)?)?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_offered() {
        #[derive(Debug, clap::Parser)]
        enum Verbs {
            Status,
        }
        let error = Verbs::try_parse_from(["x", "statsu"]).unwrap_err().to_string();
        assert_eq!(
            first_paragraph(&error),
            "unrecognized subcommand 'statsu': did you mean 'status'?"
        );
    }

    #[test]
    fn options_of_a_command_may_stand_before_it() {
        #[derive(Debug, clap::Parser)]
        #[command(args_conflicts_with_subcommands = true)]
        struct Cli {
            #[arg(long)]
            config: Option<String>,
            #[arg(long)]
            listen: bool,
            #[command(subcommand)]
            verb: Option<Verb>,
        }
        #[derive(Debug, clap::Subcommand)]
        enum Verb {
            Status {
                #[arg(long)]
                config: Option<String>,
                #[arg(long)]
                url: Option<String>,
            },
        }
        let parsed = |line: &str| parse::<Cli>(line.split(' ').map(OsString::from));
        for line in ["x --config status status", "x status --config status"] {
            let Some(Verb::Status { config, .. }) = parsed(line).unwrap().verb else {
                panic!("{line}")
            };
            assert_eq!(config.as_deref(), Some("status"), "{line}");
        }
        // One that the program itself does not have.
        let Some(Verb::Status { url, .. }) = parsed("x --url u status").unwrap().verb else {
            panic!("no status")
        };
        assert_eq!(url.as_deref(), Some("u"));
        assert!(parsed("x --nothing u status").is_err());
        assert_eq!(parsed("x --config status").unwrap().config.as_deref(), Some("status"));
        assert!(parsed("x --listen status").is_err());
    }

    #[test]
    fn a_program_without_arguments_runs_nothing() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[arg(long, default_value = "f")]
            config: String,
            #[command(subcommand)]
            verb: Option<Generated>,
        }
        let parsed = |line: &str| parse::<Cli>(line.split(' ').map(OsString::from));
        assert_eq!(parsed("x").unwrap_err(), ExitCode::from(exit::USAGE));
        assert_eq!(parsed("x --config g").unwrap().config, "g");
    }

    #[test]
    fn a_negative_span_is_a_wrong_value() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[arg(long = "for")]
            length: Option<String>,
        }
        let told = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            negative(&args, &read::<Cli>(&args).unwrap_err())
        };
        assert_eq!(told("x --for -2h").unwrap(), "invalid value '-2h': it cannot be negative");
        assert_eq!(told("x --for 2h --fore"), None);
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let text = "error: the following required arguments were not provided:\n  --reason <REASON>\n\nUsage: x";
        assert_eq!(
            first_paragraph(text),
            "the following required arguments were not provided: --reason <REASON>"
        );
    }
}
