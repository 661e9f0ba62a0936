// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Picks the program by the name it was started under, and the command by its arguments.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use daemon::cli::{self, Screen, screen};
use daemon::exit;

use super::args::{Cli, Command, NAME, ReachArgs};
use super::client_config::ClientConfig;
use super::either::Either;
use super::serve::{self, Companion};
use super::stream;
use super::supply::{FromDaemon, SupplyError};
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
    let args = std::iter::once(NAME).chain(rest.iter().map(String::as_str));
    match cli::parse(args.map(OsString::from)) {
        Ok(cli) => command(cli, screen, page).await,
        Err(code) => code,
    }
}

async fn command(cli: Cli, screen: Screen, page: Option<Companion>) -> ExitCode {
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(args) => return cli::ended(NAME, serve::run(args, page).await),
        Command::Ping(args) => show::ping(&args, screen).await,
        Command::Status(args) => show::status(&args, screen).await,
        Command::Vms(args) => show::vms(&args, screen).await,
        Command::Vm(args) => show::vm(&args, screen).await,
        Command::Events(args) => follow::run(&args, screen).await.map(|()| String::new()),
        Command::Why(args) => why::run(&args, screen).await,
        Command::Check(args) => match check::run(&args, screen).await {
            Ok((stdout, good)) => {
                let code = if good { 0 } else { exit::FAILED };
                return print(&Printed { stdout, code, ..Printed::default() });
            }
            Err(error) => Err(error),
        },
        Command::Generated(asked) => asked.text::<Cli>().context("cannot write"),
        Command::List(args) => return print(&reads::list(args, screen).await),
        Command::Lookup(args) => return print(&reads::lookup(args, screen).await),
        Command::Get(args) => return print(&reads::get(args, screen).await),
    };
    match done {
        Ok(stdout) => print(&Printed { stdout, ..Printed::default() }),
        Err(error) => failed(NAME, error),
    }
}

/// Says why a command failed. The shipped tools' words for a daemon that is off are not ours.
fn failed(program: &str, error: anyhow::Error) -> ExitCode {
    let refused = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(SupplyError::Refused(url)) => Some(url),
        _ => None,
    });
    let plain = refused.map(|url| anyhow!("vminfod is not running: nothing answers on {url}"));
    cli::finish(program, Err(plain.unwrap_or(error)))
}

/// The shipped `vminfo`.
async fn as_vminfo(args: &[String], screen: Screen) -> ExitCode {
    let plan = match vminfo::plan(args) {
        Ok(plan) => plan,
        Err(printed) => return print(&printed),
    };
    let daemon = match reach("vminfo") {
        Ok(supplier) => supplier.daemon,
        Err(code) => return code,
    };
    if let vminfo::Plan::Events(printer) = &plan {
        return shipped_events(&daemon, printer, screen).await;
    }
    let result = vminfo::run(&plan, &daemon).await.map(|text| screen.harmless(&text));
    print(&Printed::of(result.map_err(vmadm::Failure::from), NAME))
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
    if let Plan::Events(printer) = &plan {
        return shipped_events(&supplier.daemon, printer, screen).await;
    }
    let result = vmadm::run(plan, &supplier).await.map(|text| screen.harmless(&text));
    print(&Printed::of(result, &full))
}

fn reach(program: &str) -> Result<Either, ExitCode> {
    let config = ClientConfig::of(&ReachArgs::default(), None).map_err(anyhow::Error::from);
    let found = config.and_then(|config| Ok(Either::of(&config, program)?));
    found.map_err(|error| failed(program, error))
}

/// Prints events as the shipped tools do, until the stream ends.
async fn shipped_events(
    daemon: &FromDaemon,
    printer: &vmadm::events::Printer,
    screen: Screen,
) -> ExitCode {
    let mut show = |line: &[u8]| Ok(screen::write(&screen.harmless(&printer.line(line)?))?);
    let Err(end) = stream::follow(daemon, stream::events(), &mut show).await;
    if end.is_closed_stdout() {
        return ExitCode::SUCCESS;
    }
    eprintln!("{end}");
    ExitCode::from(exit::FAILED)
}

/// Writes the output of a command. A closed stdout is not a failure.
fn print(printed: &Printed) -> ExitCode {
    let written = screen::write(&printed.stdout);
    eprint!("{}", printed.stderr);
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(NAME, anyhow::Error::from(error).context("cannot write"))
        }
        _ => ExitCode::from(printed.code),
    }
}
