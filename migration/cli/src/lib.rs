// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-migrate`: asks, orders and shows. What is printed is made by pure modules from records and events.
//!
//! A refusal of the service is `Error: MESSAGE` on stderr, as the shipped tool prints it; any other failure is one
//! line with the program's name.

#![forbid(unsafe_code)]

// Blank lines keep the modules in layer order.

mod evacuate;

mod history;

mod trust;

mod settings;

mod bulk;

mod act;

mod order;

mod watching;

mod ask;

mod services;

mod operator;

mod loss;

mod verify;

mod show;

mod next;

mod steps;

mod plain;

mod units;

mod names;

mod args;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::hosts::Hosts;
use daemon::cli::{self, Layout, Screen, TERMINAL, Usage, screen};
use daemon::exit;
use sdc_clients::migrations::{MigrationQuery, Options};

use self::args::{Cli, MigrationList, NAME, Placed, Reach, TrustVerb, Verb, Which};
use self::evacuate::{Evacuation, Wanted};
use self::names::Names;
use self::order::{Act, now, say};
use self::services::Services;
use self::show::{Shape, Style};
use migration_core::machine::{Action, Refusal};

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let colours = Screen::of_stdout();
    let screen = Screen { colour: colours.colour && !cli.no_ansi, ..colours };
    let style = Style { ansi: !cli.no_ansi, screen };
    cli::run(NAME, async {
        let done = answer(cli.verb, &cli.reach, style).await;
        done.unwrap_or_else(failed)
    })
}

/// Prints why a command failed.
fn failed(error: anyhow::Error) -> ExitCode {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        eprintln!("Error: {refusal}{}", next::after(&error));
        return ExitCode::from(exit::FAILED);
    }
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<sdc_clients::Error>());
    match refusal.filter(|refusal| refusal.status().is_some_and(|status| status >= 400)) {
        Some(refusal) => {
            eprintln!("Error: {}{}", refused(refusal), next::after(&error));
            ExitCode::from(exit::FAILED)
        }
        None => cli::finish(NAME, Err(error)),
    }
}

/// Returns the service's answer; of wrong parameters, which.
fn refused(refusal: &sdc_clients::Error) -> String {
    let text = |it: &serde_json::Value, key: &str| it[key].as_str().map(str::to_owned);
    let faults = refusal.errors().iter().filter_map(|it| {
        Some(format!("{}: {}", text(it, "field")?, text(it, "message").or(text(it, "code"))?))
    });
    let faults: Vec<String> = faults.collect();
    let all = match faults.is_empty() {
        true => refusal.message().to_owned(),
        false => format!("{} ({})", refusal.message(), faults.join(", ")),
    };
    screen::visible(&all)
}

async fn answer(verb: Verb, reach: &Reach, style: Style) -> anyhow::Result<ExitCode> {
    if let Verb::Generated(asked) = &verb {
        return Ok(cli::print(NAME, &asked.text::<Cli>().context("the manual pages")?));
    }
    if let Verb::Trust { proof, mut verb } = verb {
        // A name is looked up where CNAPI is known; a uuid needs no request.
        let services = Services::find(reach).ok().filter(|services| services.cnapi().is_ok());
        if let (Some(node), Some(services)) = (trust::node_of(&mut verb), &services) {
            *node = services.node(node).await?;
        }
        // People read the list, which has a line for each node.
        let hosts = match &services {
            Some(services)
                if style.screen.is_terminal && matches!(verb, TrustVerb::List { json: false }) =>
            {
                services.hosts().await
            }
            _ => Hosts::default(),
        };
        let way = services::way(reach, &proof)?;
        return trust::run(verb, &way, &hosts, style.screen).await;
    }
    let services = Services::find(reach)?;
    let waits = match &verb {
        Verb::Migrate { placed, .. } | Verb::Begin { placed } => !placed.no_wait,
        Verb::Sync { no_wait, .. } | Verb::Switch { no_wait, .. } => !no_wait,
        _ => true,
    };
    let act = Act { services: &services, style, waits };
    match verb {
        Verb::Get { vm, json } => get(&services, &vm, json, style).await,
        Verb::List(list_args) => list(&services, &list_args, style).await,
        Verb::History { vm, cn, since, owner, list } => {
            let asked = history::Query { vm, cn, since, owner };
            history::list(&services, asked, &list.layout(), style).await
        }
        Verb::Why { vm } => history::why(&services, &vm).await,
        Verb::Estimate { vm, cn, full } => act.print_estimate(&vm, cn.as_deref(), full).await,
        Verb::Migrate { placed, to } => {
            act.begin(&Placed { cn: placed.cn.clone().or(to), ..placed }, true).await
        }
        Verb::Begin { placed } => act.begin(&placed, false).await,
        Verb::Sync { vm, rate, .. } => act.sync(&vm, rate).await,
        Verb::Switch { vm, source_dead, really, force, rate, down, consent, .. } => {
            let (bwlimit, max_downtime) = (rate.bwlimit, down.max_downtime);
            let options = Options { really, force, bwlimit, max_downtime, ..Options::default() };
            act.switch(&vm, source_dead.as_deref(), options, consent).await
        }
        Verb::Pause { which, consent } => match &which.vm {
            Some(vm) => act.pause(vm).await,
            None => bulk::each(&act, &which, (Action::Pause, Options::default()), consent).await,
        },
        Verb::Abort { which, force, target_dead, really, consent } => match &which.vm {
            Some(vm) => {
                let options = Options { force, target_dead, really, ..Options::default() };
                act.abort(vm, options, consent).await
            }
            None => {
                let options = Options { force, ..Options::default() };
                bulk::each(&act, &which, (Action::Abort, options), consent).await
            }
        },
        Verb::Rollback { vm, discard, target_dead, really, consent } => {
            let options = Options { discard, target_dead, really, ..Options::default() };
            act.rollback(&vm, options, consent).await
        }
        Verb::Rescue { vm, really, consent } => act.rescue(&vm, really, consent).await,
        Verb::Finalize { which, force, source_dead, really, consent } => match &which.vm {
            Some(vm) => {
                let options = Options { force, source_dead, really, ..Options::default() };
                act.finalize(vm, options, consent).await
            }
            None => {
                let options = Options { force, ..Options::default() };
                bulk::each(&act, &which, (Action::Finalize, options), consent).await
            }
        },
        // It does not ask: --other and --really are the confirmation.
        Verb::Adopt { vm, other, really, proof, .. } => {
            let way = services::way(reach, &proof)?;
            act.adopt(&vm, other.as_deref(), really, &way).await
        }
        Verb::Watch { vm } => act.watch(&services.vm(&vm).await?, None).await,
        Verb::Schedule { placed, time } => act.schedule(&placed, &time).await,
        Verb::Unschedule { vm } => act.unschedule(&vm).await,
        Verb::Verify { vm, list } => {
            list.layout().check(&verify::COLUMNS)?;
            let vm = services.vm(&vm).await?;
            let compared = match services.migrations.verify(&vm).await {
                Err(error) => return Err(act.explained(&vm, error.into()).await),
                Ok(compared) => compared,
            };
            screen::write(&verify::table(&compared, &list.layout(), style.screen)?)?;
            let sentence = verify::sentence(&compared);
            if compared.equal {
                let layout = list.layout();
                let is_for_people = !layout.json && !layout.asks_for_table();
                return if is_for_people { say(sentence) } else { Ok(ExitCode::SUCCESS) };
            }
            eprintln!("{sentence}");
            Ok(ExitCode::from(exit::FAILED))
        }
        Verb::Evacuate { cn, back: true, consent, .. } => {
            let which = Which { cn: Some(cn), ..Which::default() };
            bulk::each(&act, &which, (Action::Rollback, Options::default()), consent).await
        }
        Verb::Evacuate {
            cn,
            dry_run,
            pause,
            release,
            list,
            consent,
            to,
            exclude,
            at_once,
            no_wait,
            ..
        } => {
            list.layout().check(&evacuate::COLUMNS)?;
            let mut excluded = BTreeSet::new();
            for vm in &exclude {
                excluded.insert(services.vm(vm).await?);
            }
            let to = match to {
                Some(to) => Some(services.node(&to).await?),
                None => None,
            };
            let wanted = Wanted { to, excluded, at_once };
            let mut evacuation = Evacuation::of(&services, &cn, style, wanted).await?;
            match (dry_run, pause, release) {
                (true, ..) => evacuation.dry_run(&list.layout()).await,
                (_, true, _) => evacuation.pause().await,
                (_, _, true) => evacuation.release().await,
                _ if no_wait => evacuation.ask_for(consent).await,
                _ => evacuation.run(&list.layout(), consent).await,
            }
        }
        Verb::Evacuations { list } => evacuate::list(&services, &list.layout(), style).await,
        Verb::Settings { cn } => settings::show(&services, cn.as_deref()).await,
        Verb::Set { key, value, cn } => {
            settings::set(&services, (key.as_deref(), value.as_deref()), cn.as_deref()).await
        }
        Verb::Instance { words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (vm, allowed) = match words[..] {
                ["allow", vm] | [vm, "allow_user_migrations", "true"] => (vm, true),
                ["disallow", vm] | [vm, "allow_user_migrations", "false"] => (vm, false),
                _ => {
                    let said = "it takes `allow VM`, `disallow VM` or `VM allow_user_migrations true|false`";
                    return Err(Usage(said.to_owned()).into());
                }
            };
            settings::allow_vm(&services, vm, allowed).await
        }
        Verb::AllowInstance { vm } => settings::allow_vm(&services, &vm, true).await,
        Verb::DisallowInstance { vm } => settings::allow_vm(&services, &vm, false).await,
        Verb::AllowCn { cn } => settings::allow_cn(&services, &cn, true).await,
        Verb::DisallowCn { cn } => settings::allow_cn(&services, &cn, false).await,
        Verb::Generated(_) | Verb::Trust { .. } => Ok(ExitCode::SUCCESS),
    }
}

async fn get(
    services: &Services,
    typed: &str,
    json: bool,
    style: Style,
) -> anyhow::Result<ExitCode> {
    let vm = services.vm(typed).await?;
    let migration = match services.migrations.get(&vm).await {
        Err(error) if error.is_not_found_resource() => {
            if let Some(known) = services.known(&vm).await {
                eprintln!("{known}");
            }
            return Err(error.into());
        }
        got => got?,
    };
    Ok(match json {
        true => {
            let text = format!("{:#}\n", serde_json::to_value(&migration)?);
            cli::print(NAME, &style.screen.harmless(&text))
        }
        false => {
            // Scripts read what the shipped tool prints.
            let hosts = match style.ansi && style.screen.is_terminal {
                true => services.hosts().await,
                false => Hosts::default(),
            };
            let code = cli::print(NAME, &show::get(&migration, &hosts, now(), style));
            // Scripts read stdout, which is as the shipped tool prints it.
            if let Some(next) = next::step(&migration, Some(typed)) {
                eprintln!("{next}");
            }
            code
        }
    })
}

async fn list(
    services: &Services,
    asked: &MigrationList,
    style: Style,
) -> anyhow::Result<ExitCode> {
    if asked.watch {
        return cli::again(NAME, style.screen, async || listed(services, asked, style).await).await;
    }
    Ok(cli::print(NAME, &listed(services, asked, style).await?))
}

/// Returns the text of a list.
async fn listed(
    services: &Services,
    asked: &MigrationList,
    style: Style,
) -> anyhow::Result<String> {
    let is_any = asked.all || ["all", "any"].contains(&asked.state.as_str());
    let mut states = vec![match asked.to_finalize {
        true => Some("successful"),
        false => (!is_any).then_some(asked.state.as_str()),
    }];
    states.extend(is_any.then_some(Some("aborted")));
    let mut nodes = Vec::new();
    for cn in asked.nodes.iter().chain(&asked.cn) {
        let node = services.any_node(Some(cn)).await?;
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    nodes.extend(nodes.is_empty().then_some(None));
    let mut migrations = Vec::new();
    for state in states {
        for node in &nodes {
            let query = MigrationQuery {
                state: state.map(str::to_owned),
                source_server_uuid: node.clone(),
                ..MigrationQuery::default()
            };
            migrations.extend(services.migrations.list(&query).await?);
        }
    }
    // Scripts read what the shipped tool prints.
    let is_for_people = style.ansi && style.screen.is_terminal && !asked.long && !asked.json;
    let columns = match asked.watch {
        true => "vm,phase,state,since,from,to,progress,rate,eta,waits_for",
        false => "vm,phase,state,since,from,to,waits_for",
    };
    let of_people = Layout {
        columns: Some(columns.to_owned()),
        no_header: asked.no_header,
        within: Some(TERMINAL),
        ..Layout::default()
    };
    Ok(match asked.layout().or_else(|| (is_for_people || asked.watch).then_some(of_people)) {
        Some(layout) => {
            // A column that does not exist is refused before names are requested.
            show::table(&[], &Names::default(), &layout, now(), style)?;
            let names = match show::asks_for_names(&layout) {
                true => services.names(&migrations).await,
                false => Names::default(),
            };
            show::table(&migrations, &names, &layout, now(), style)?
        }
        None if asked.json => {
            let text = format!("{:#}\n", serde_json::to_value(&migrations)?);
            style.screen.harmless(&text)
        }
        None => {
            let shape = Shape { long: asked.long, no_header: asked.no_header };
            show::list(&migrations, &shape, now(), style)
        }
    })
}
