// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Picks the program by the name it was started under, and the command by its arguments.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use daemon::cli::{self, Screen, screen};
use daemon::exit;

use super::args::{Cli, Command, NAME, ReachArgs, VmadmArgs};
use super::either::Either;
use super::problem::Problem;
use super::serve::{self, Companion};
use super::settings::Settings;
use super::stream::{self, StreamEnd};
use super::supply::FromDaemon;
use super::vmadm::{self, Plan, Printed};
use super::{check, follow, reads, show, vminfo, why};

/// Runs the program; `args` begin with the name it was started under.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    run_with(args, None)
}

/// As [`run`], with a page for `serve --console`.
pub fn run_with(args: impl Iterator<Item = OsString>, page: Option<Companion>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    cli::run(NAME, dispatch(args, page))
}

async fn dispatch(args: Vec<String>, page: Option<Companion>) -> ExitCode {
    let screen = Screen::of_stdout();
    let (program, rest) = match args.split_first() {
        Some((program, rest)) => (program.as_str(), rest),
        None => (NAME, args.as_slice()),
    };
    let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
    match name.as_deref() {
        Some("vminfo") => return as_vminfo(rest, screen).await,
        Some("vmadm") => return as_vmadm(program, rest, screen).await,
        _ => {}
    }
    let wants_help = rest.iter().skip(1).take_while(|arg| *arg != "--").any(|arg| arg == "--help");
    // clap does not know vmadm's options: it only shows their help.
    let grammar = match rest.first().map(String::as_str) {
        Some("list" | "lookup" | "get") if !wants_help => {
            return print(&reads::run(rest, NAME, screen).await);
        }
        Some(command @ ("list" | "lookup" | "get")) => vec![NAME, command, "--help"],
        _ => std::iter::once(NAME).chain(rest.iter().map(String::as_str)).collect(),
    };
    match cli::parse(grammar.into_iter().map(OsString::from)) {
        Ok(cli) => command(cli, screen, page).await,
        Err(code) => code,
    }
}

async fn command(cli: Cli, screen: Screen, page: Option<Companion>) -> ExitCode {
    let result = match cli.command {
        None => return serve::run(cli.serve, page).await,
        Some(Command::Serve(args)) => return serve::run(args, page).await,
        Some(Command::Ping(args)) => show::ping(&args, screen).await,
        Some(Command::Status(args)) => show::status(&args, screen).await,
        Some(Command::Vms(args)) => show::vms(&args, screen).await,
        Some(Command::Vm(args)) => show::vm(&args, screen).await,
        Some(Command::Events(args)) => follow::run(&args, screen).await.map(|()| String::new()),
        Some(Command::Why(args)) => why::run(&args, screen).await,
        Some(Command::Check(args)) => match check::run(&args, screen).await {
            Ok((text, good)) => {
                let written = print(&Printed { stdout: text, stderr: String::new(), code: 0 });
                return if good { written } else { ExitCode::from(exit::FAILED) };
            }
            Err(problem) => Err(problem),
        },
        Some(Command::Generated(asked)) => asked.text::<Cli>().map_err(Problem::from),
        // dispatch() handles these without clap, but for options that stand before them.
        Some(Command::List(vmadm)) => return read("list", vmadm, screen).await,
        Some(Command::Lookup(vmadm)) => return read("lookup", vmadm, screen).await,
        Some(Command::Get(vmadm)) => return read("get", vmadm, screen).await,
    };
    match result.and_then(|text| Ok(screen::write(&text)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => problem.report(NAME),
    }
}

/// `list`, `lookup` and `get` with vmadm's own options.
async fn read(command: &str, vmadm: VmadmArgs, screen: Screen) -> ExitCode {
    let args: Vec<String> = std::iter::once(command.to_owned()).chain(vmadm.args).collect();
    print(&reads::run(&args, NAME, screen).await)
}

/// The shipped `vminfo`.
async fn as_vminfo(args: &[String], screen: Screen) -> ExitCode {
    let plan = match vminfo::plan(args) {
        Ok(plan) => plan,
        Err(misuse) => return print(&misuse.printed()),
    };
    let daemon = match reach("vminfo") {
        Ok(supplier) => supplier.daemon,
        Err(code) => return code,
    };
    match vminfo::printer(&plan) {
        Some(printer) => shipped_events(&daemon, &printer, screen).await,
        None => {
            let result = vminfo::run(&plan, &daemon).await.map(|text| screen.harmless(&text));
            print(&Printed::of(result.map_err(vmadm::Failure::from), NAME))
        }
    }
}

/// The read-only part of the shipped `vmadm`.
async fn as_vmadm(program: &str, args: &[String], screen: Screen) -> ExitCode {
    let full = std::path::absolute(program).unwrap_or_else(|_| program.into());
    let full = full.to_string_lossy().into_owned();
    let plan = match vmadm::plan(args) {
        Ok(plan) => plan,
        Err(failure) => return print(&Printed::of(Err(failure), &full)),
    };
    let supplier = match reach("vmadm") {
        Ok(supplier) => supplier,
        Err(code) => return code,
    };
    if let Plan::Events(events) = &plan {
        return shipped_events(&supplier.daemon, &vmadm::printer(events), screen).await;
    }
    let result = vmadm::run(plan, &supplier).await.map(|text| screen.harmless(&text));
    print(&Printed::of(result, &full))
}

fn reach(program: &str) -> Result<Either, ExitCode> {
    let settings = Settings::of(&ReachArgs::default(), None).map_err(Problem::from);
    let found = settings.and_then(|settings| Ok(Either::of(&settings, program)?));
    found.map_err(|problem| problem.report(program))
}

/// Prints events as the shipped tools do, until the stream ends.
async fn shipped_events(
    daemon: &FromDaemon,
    printer: &vmadm::events::Printer,
    screen: Screen,
) -> ExitCode {
    let mut print = |line: &[u8]| printer.line(line).map(|text| screen.harmless(&text));
    match stream::follow(daemon, stream::events(), &mut print, &mut screen::write).await {
        StreamEnd::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        end => {
            eprintln!("{end}");
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Writes the output of a command. A closed stdout is not a failure.
fn print(printed: &Printed) -> ExitCode {
    let written = screen::write(&printed.stdout);
    eprint!("{}", printed.stderr);
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Problem::from(error).report(NAME)
        }
        _ => ExitCode::from(printed.code),
    }
}
