// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line.

mod args;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use daemon::cli::pages::FIELDS;
use daemon::cli::{self, Layout, Screen, UnknownColumn, Usage, ask};
use daemon::command::Spawned;
use daemon::config::{lower_uuid, parse_span};
use daemon::text::counted;
use daemon::{Fields, wall};
use jiff::{SignedDuration, Timestamp};
use sdc_clients::Jitter;
use sdc_clients::fleet::{
    Beat, COMPARED, Fleet, FleetError, FleetEvent, Follower, Wire, compare, forget, purge,
    stands_still, usage,
};
use serde_json::Value;

use self::args::{Cli, NAME, Verb};
use crate::config::Config;
use crate::filter::Filter;
use crate::names::{Names, find_vm};
use crate::nodes::Printed;
use crate::permissions::{Key, Keys, accounts};
use crate::story::sources::{self, Answers};
use crate::{changes, key, nodes, setup, story, streams, vms, watch};

/// A feed that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    match cli::parse::<Cli>(args) {
        Ok(cli) => cli::run(NAME, async { cli::ended(NAME, answer(cli).await) }),
        Err(code) => code,
    }
}

/// What is printed, and whether all is well.
type Answer = anyhow::Result<(String, bool)>;

async fn answer(cli: Cli) -> anyhow::Result<ExitCode> {
    let (text, is_well) = match cli.verb {
        Verb::Generated(asked) => (asked.text::<Cli>().context("the manual pages")?, true),
        Verb::Permissions { keys } => (accounts(&public_keys(Fields::load(&keys)?)?), true),
        Verb::Key { file } => (format!("{}\n", key::draw(&file)?), true),
        verb => {
            check_columns(&verb)?;
            let config = Config::load(&cli.config, &cli.server)?;
            match verb {
                Verb::Story { vm, since, url, list } => {
                    told(&config, &vm, since, url, &list.layout()).await?
                }
                verb => of_feed(&config, async |fleet| asked(verb, fleet, &config).await).await?,
            }
        }
    };
    let printed = cli::print(NAME, &text);
    Ok(if is_well { printed } else { ExitCode::from(daemon::exit::FAILED) })
}

/// Asks the feed; its errors say why there is no connection, where there is none.
async fn of_feed<T>(
    config: &Config,
    ask: impl AsyncFnOnce(&Fleet) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let fleet = Fleet::connect(&config.nats, NAME, Jitter::from_entropy()).await?;
    ask(&fleet).await.map_err(|error| match error.downcast::<FleetError>() {
        Ok(error) => fleet.explain(error).into(),
        Err(error) => error,
    })
}

/// What all sources tell of a VM, and whether each of them answered; the feed is one of them.
async fn told(
    config: &Config,
    typed: &str,
    since: Option<String>,
    url: Option<String>,
    layout: &Layout,
) -> Answer {
    let since = since.map(|text| before(wall::now(), &text)).transpose()?;
    let feed = of_feed(config, async |fleet| {
        let names = Names::of(&fleet.nodes().await?);
        let follower = synced(fleet, &Filter::default()).await?;
        let vm = find_vm(follower.mirror(), typed)?;
        let found = fleet.changes_of(&vm, since).await?;
        let copies = follower.mirror().find(&vm);
        let here = copies.iter().map(|copy| copy.cn.clone());
        let cns = here.chain(found.iter().map(|(_, message)| message.target.cn.clone())).collect();
        Ok((names, vm, Answers { told: story::of_feed(&found), cns, ..Answers::default() }))
    });
    let (names, vm, mut all) = match (feed.await, lower_uuid(typed)) {
        (Ok(found), _) => found,
        (Err(why), Ok(vm)) => {
            let silent = vec![format!("the feed does not answer: {why:#}")];
            (Names::default(), vm, Answers { silent, ..Answers::default() })
        }
        (Err(why), Err(_)) => return Err(why),
    };
    let uuid = vm.parse().context("the VM's uuid")?;
    all.and(sources::migrations(url, &vm, since, &names).await);
    all.and(
        sources::nodes(&Spawned::new(config.commands.clone()), &all.cns, uuid, since, &names).await,
    );
    for why in &all.silent {
        eprintln!("{NAME}: {}", cli::screen::visible(why));
    }
    let text = story::list(all.told, since, &names, layout, Screen::of_stdout())?;
    Ok((text, all.silent.is_empty()))
}

/// Refuses a column that the command's table does not have, before the servers are asked.
fn check_columns(verb: &Verb) -> Result<(), UnknownColumn> {
    let (list, columns) = match verb {
        Verb::Nodes { list, .. } => (list, &nodes::COLUMNS[..]),
        Verb::Vms { list, .. } => (list, &vms::COLUMNS[..]),
        Verb::Vm { list, .. } => (list, &FIELDS[..]),
        Verb::Changes { list, .. } => (list, &changes::COLUMNS[..]),
        Verb::Story { list, .. } => (list, &story::COLUMNS[..]),
        Verb::Streams { list, nodes: true } => (list, &streams::OF_NODES[..]),
        Verb::Streams { list, .. } => (list, &streams::COLUMNS[..]),
        _ => return Ok(()),
    };
    list.layout().check(columns)
}

async fn asked(verb: Verb, fleet: &Fleet, config: &Config) -> Answer {
    let screen = Screen::of_stdout();
    if let Verb::Setup { vms_again } = verb {
        return Ok((setup::setup(fleet, &config.shape, vms_again).await?, true));
    }
    if let Verb::Streams { list, nodes: false } = verb {
        let led = fleet.led().await?;
        if led.iter().any(|(_, health)| health.is_err()) {
            return Ok((streams::list_led(&led, &list.layout(), screen)?, false));
        }
        let still = stands_still(fleet.jetstream()).await?;
        let health = fleet.health().await?;
        let mut differ = streams::Differ::new();
        for stream in COMPARED {
            differ.insert(stream, compare(fleet, stream).await?.count());
        }
        return Ok(streams::list(&health, &differ, still, &list.layout(), screen)?);
    }
    let beats = fleet.nodes().await?;
    let names = Names::of(&beats);
    Ok(match verb {
        Verb::Nodes { list, all_well, watch } => {
            let listed = async |beats: &[Beat]| -> anyhow::Result<Printed> {
                let mirror = synced(fleet, &Filter::default()).await?;
                Ok(nodes::list(beats, mirror.mirror(), all_well, &list.layout(), screen)?)
            };
            if watch {
                let again = async || anyhow::Ok(listed(&fleet.nodes().await?).await?.text);
                // A reader that went away ends it.
                let _gone = cli::again(NAME, screen, again).await?;
                return Ok((String::new(), true));
            }
            let printed = listed(&beats).await?;
            (printed.text, printed.needing == 0)
        }
        Verb::Vms { filter, all, list } => {
            let filter = Filter::of(&filter, &names)?;
            let follower = synced(fleet, &filter).await?;
            filter.check(follower.mirror())?;
            let ages = vms::Ages::of(&beats);
            let layout = list.layout();
            (vms::list(follower.mirror(), &filter, all, &names, &ages, &layout, screen)?, true)
        }
        Verb::Vm { vm, list } => {
            let follower = synced(fleet, &Filter::default()).await?;
            let uuid = find_vm(follower.mirror(), &vm)?;
            if follower.mirror().find(&uuid).is_empty() {
                anyhow::bail!(
                    "no node has the VM {uuid}; sdc-fleet changes {uuid} shows what it was"
                );
            }
            let ages = vms::Ages::of(&beats);
            vms::one(follower.mirror(), &uuid, &names, &ages, &list.layout(), screen)?
        }
        Verb::Watch { filter, json } => {
            let filter = Filter::of(&filter, &names)?;
            let mut follower = Follower::new(fleet, &filter.subjects(), Jitter::from_entropy());
            // A reader that went away ends it.
            let _gone = watch::watch(&mut follower, &filter, &names, json).await;
            (String::new(), true)
        }
        Verb::Changes { vm, since, list } => {
            let since = since.map(|text| before(wall::now(), &text)).transpose()?;
            let follower = synced(fleet, &Filter::default()).await?;
            let uuid = find_vm(follower.mirror(), &vm)?;
            let found = fleet.changes_of(&uuid, since).await?;
            (changes::list(&found, &names, &list.layout(), screen)?, true)
        }
        Verb::Streams { list, .. } => {
            let used = usage(fleet).await?;
            (streams::nodes(&used, &names, &list.layout(), screen)?, true)
        }
        Verb::Purge { node, yes } => {
            // One that was never heard may be named in whole.
            let cn = lower_uuid(&node).or_else(|_| names.find_node(&node))?;
            let name = names.node(&cn);
            let text = format!("All that the feed has of {name} is removed, its history for good.");
            if !ask::confirmed::<anyhow::Error>(&text, yes)? {
                return Ok((String::new(), false));
            }
            let client = config.nats.connect(NAME, Jitter::from_entropy()).await?;
            let removed = purge(fleet, &Wire::new(client, &config.nats), &cn).await?;
            (format!("removed {removed} messages of {name}\n"), true)
        }
        Verb::Forget { node } => {
            let cn = names.find_node(&node)?;
            let beat = beats.iter().find(|beat| beat.node.cn_uuid == cn);
            if beat.is_some_and(|beat| beat.is_up()) {
                anyhow::bail!("{} is heard: it would be on the feed again", names.node(&cn));
            }
            let client = config.nats.connect(NAME, Jitter::from_entropy()).await?;
            let vms = forget(fleet, &Wire::new(client, &config.nats), &cn).await?;
            (format!("forgot {} and {} of it\n", names.node(&cn), counted(vms, "VM", "VMs")), true)
        }
        Verb::Setup { .. }
        | Verb::Key { .. }
        | Verb::Permissions { .. }
        | Verb::Story { .. }
        | Verb::Generated(_) => (String::new(), true),
    })
}

fn before(now: Timestamp, text: &str) -> Result<Timestamp, Usage> {
    let span = parse_span(text).map_err(|reason| Usage(format!("--since: {reason}")))?;
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    Ok(now.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A follower whose mirror is complete.
async fn synced(fleet: &Fleet, filter: &Filter) -> anyhow::Result<Follower> {
    let mut follower = Follower::new(fleet, &filter.subjects(), Jitter::from_entropy());
    let complete = async {
        let mut last = None;
        loop {
            match follower.next().await {
                FleetEvent::Synced => return Ok(()),
                // Another server may answer.
                FleetEvent::Lost(FleetError::Away(_)) => {}
                // What is missing does not come by waiting.
                FleetEvent::Lost(error) if last.as_ref() == Some(&error) => return Err(error),
                FleetEvent::Lost(error) => last = Some(error),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, complete).await.context("the feed does not answer")??;
    Ok(follower)
}

fn public_keys(mut fields: Fields) -> anyhow::Result<Keys> {
    let is_key = |key: &str| {
        key.starts_with('U') && key.len() == 56 && key.bytes().all(|it| it.is_ascii_alphanumeric())
    };
    let mut keys = Keys {
        operators: fields.texts("operators"),
        readers: fields.texts("readers"),
        nodes: Vec::new(),
    };
    for (name, all) in [("operators", &keys.operators), ("readers", &keys.readers)] {
        if !all.iter().all(|key| is_key(key)) {
            fields.fault(name, "expected public keys of users (U…)");
        }
    }
    let given = fields.get("nodes").cloned().unwrap_or_default();
    for (cn, key) in given.as_object().into_iter().flatten() {
        let key: Option<Key> = key.as_str().filter(|key| is_key(key)).map(str::to_owned);
        match (lower_uuid(cn), key) {
            (Ok(cn), Some(key)) => keys.nodes.push((cn, key)),
            _ => fields
                .fault(&format!("nodes.{cn}"), "expected a uuid and a public key of a user (U…)"),
        }
    }
    if !matches!(given, Value::Object(_) | Value::Null) {
        fields.fault("nodes", "expected an object from a node's uuid to its public key");
    }
    fields.finish()?;
    Ok(keys)
}
