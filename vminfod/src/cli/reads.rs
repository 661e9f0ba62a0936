// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vminfod list|lookup|get`: our own flags, then vmadm's arguments. The objects come from the daemon
//! or, if it is off, from the node.

use std::path::PathBuf;
use std::time::Duration;

use daemon::cli::{Screen, names};
use daemon::exit;
use daemon::log::chain;
use sdc_clients::vminfod::VmFields as _;

use super::args::ReachArgs;
use super::either::Either;
use super::settings::Settings;
use super::supply::Supplier;
use super::vmadm::{self, Failure, Plan, Printed, nopt, usage};

/// Flags that vmadm does not have.
#[derive(Debug, Default)]
pub struct Own {
    reach: ReachArgs,
    root: Option<PathBuf>,
    direct: bool,
    wait: Option<Duration>,
    json: bool,
}

/// Removes our flags from the arguments after the command's name. Returns both.
pub fn take(command: &str, args: &[String]) -> Result<(Own, Vec<String>), String> {
    let mut own = Own::default();
    let mut rest = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if nopt::is_end(arg) {
            rest.push(arg.clone());
            rest.extend(args.by_ref().cloned());
            break;
        }
        let (name, given) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        match name {
            "--direct" if given.is_none() => own.direct = true,
            "-j" | "--json" if given.is_none() && command == "list" => own.json = true,
            "--url" | "--config" | "--root" | "--wait" => {
                let value = given.or_else(|| args.next().cloned());
                let value = value.ok_or_else(|| format!("{name} needs a value"))?;
                match name {
                    "--url" => own.reach.url = Some(value),
                    "--config" => own.reach.config = Some(value.into()),
                    "--root" => own.root = Some(value.into()),
                    _ => own.wait = Some(daemon::config::parse_span(&value)?),
                }
            }
            _ => rest.push(arg.clone()),
        }
    }
    Ok((own, rest))
}

/// Runs a command. `args` begin with its name.
pub async fn run(args: &[String], program: &str, screen: Screen) -> Printed {
    let command = args.first().map(String::as_str).unwrap_or_default();
    let (own, rest) = match take(command, args.get(1..).unwrap_or_default()) {
        Ok(taken) => taken,
        Err(wrong) => return wrong_usage(program, command, Some(wrong)),
    };
    let settings = match Settings::of(&own.reach, own.root.clone()) {
        Ok(settings) => settings,
        Err(error) => {
            return Printed::failed(format!("{program}: {}\n", chain(&error)), exit::USAGE);
        }
    };
    let result = objects(command, rest, &own, &settings, program).await;
    match result.map(|stdout| screen.harmless(&stdout)) {
        Err(Failure::Usage(message)) => wrong_usage(program, command, message),
        other => Printed::of(other, program),
    }
}

async fn objects(
    command: &str,
    rest: Vec<String>,
    own: &Own,
    settings: &Settings,
    program: &str,
) -> Result<String, Failure> {
    let supplier = Either { direct: own.direct, wait: own.wait, ..Either::of(settings, program)? };
    let typed = rest.first().filter(|_| command == "get" && rest.len() == 1).cloned();
    let args: Vec<String> = std::iter::once(command.to_owned()).chain(rest).collect();
    let plan = match (vmadm::plan(&args), typed) {
        (Err(not_a_uuid), Some(typed)) => {
            Plan::Get(named(&supplier, &typed).await?.ok_or(not_a_uuid)?)
        }
        (Ok(Plan::List(listing)), _) if own.json => Plan::List(listing.as_json()),
        (plan, _) => plan?,
    };
    vmadm::run(plan, &supplier).await
}

/// Returns the uuid of the VM that is meant by an alias or by the beginning of a uuid, if one VM is. vmadm
/// knows neither.
async fn named(supplier: &Either, typed: &str) -> Result<Option<String>, Failure> {
    let vms = supplier.objects(None).await?;
    let known: Vec<_> =
        vms.iter().filter_map(|vm| Some((vm.uuid()?, vm.alias().unwrap_or_default()))).collect();
    Ok(names::find(&known, typed).ok())
}

fn wrong_usage(program: &str, command: &str, message: Option<String>) -> Printed {
    let message = message.map(|text| text + "\n").unwrap_or_default();
    Printed::failed(message + &usage::own(program, command), exit::USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(command: &str, line: &str) -> (Own, String) {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (own, rest) = take(command, &args).unwrap();
        (own, rest.join(" "))
    }

    #[test]
    fn our_flags_are_taken_out_and_no_others() {
        let (own, rest) =
            taken("list", "-p --url=http://x --direct -o uuid --wait 5s state=running -j");
        assert_eq!(rest, "-p -o uuid state=running");
        assert_eq!(own.reach.url.as_deref(), Some("http://x"));
        assert_eq!((own.direct, own.json), (true, true));
        assert_eq!(own.wait, Some(Duration::from_secs(5)));
        let (own, rest) = taken("lookup", "-j -- --direct");
        assert_eq!((rest.as_str(), own.direct, own.json), ("-j -- --direct", false, false));
        assert!(take("list", &["--url".to_owned()]).is_err());
        assert!(take("list", &["--wait=soon".to_owned()]).is_err());
    }
}
