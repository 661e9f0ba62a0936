// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Somebody works with `zfs` on the datasets of a VM that moves, in each phase, on either node.

mod crowd; // thirty migrations at once, under kill -9

mod holders; // who holds the lease, or the database of two services, stands still or has a wrong clock

mod reimaged; // a node is installed anew

use daemon::command::Program;
use migration_core::intent::End;
use sdc_clients::migrations::{Migration, Migrations, Options};
use simnode::Node;
use simnode::in_process::InProcess;
use testbed::moving::judge::Judge;
use testbed::moving::subject::VM;

use super::common::centre::{nodes, provisioned};
use super::common::until;

/// The number of the newest sync snapshot of the VM on a node.
fn newest(node: &Node) -> u32 {
    let (all, root) = (node.datasets().unwrap(), format!("zones/{VM}"));
    let number = |name: &str| name.split_once("@vm-migration-")?.1.parse::<u32>().ok();
    all.snapshots(&root).into_iter().filter_map(|row| number(&row.name)).max().unwrap()
}

/// Both copies run: the one that is looked at twice ran also when the other one did.
fn both_run(vm: &str, [one, two]: [&Node; 2]) -> bool {
    let runs = |node: &Node| Judge::new(vm).copy(node).is_some_and(|copy| copy.running);
    runs(one) && runs(two) && runs(one)
}

/// Runs `zfs` on a node; what it refuses was no attack.
fn zfs(node: &Node, line: &str) {
    let line = line.replace("VM", VM);
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let done = InProcess::new(node).answer(Program::Zfs, &words);
    assert_eq!(done.status, 0, "zfs {line}: {}", done.complaint());
}

/// Returns the record when nothing of it runs, or that there is none; nothing where the service does not say it.
async fn now(client: &Migrations, vm: &str) -> Option<Option<Migration>> {
    let record = match client.get(vm).await {
        Ok(record) => record,
        Err(error) => return error.is_not_found_resource().then_some(None),
    };
    let runs = ["running", "queued"].contains(&record.state.as_str())
        || record.other.get("journal").is_some_and(|it| it["finalize"] == true);
    (!runs).then_some(Some(record))
}

/// Waits until nothing of the migration runs.
async fn rested(client: &Migrations, vm: &str) -> Option<Migration> {
    until("the migration rests", async || now(client, vm).await.is_some()).await;
    now(client, vm).await.flatten()
}

/// Gives these commands, until one has ended the migration. Returns what each came to.
async fn ended(client: &Migrations, vm: &str, commands: &[&str]) -> Result<String, String> {
    let mut told = Vec::new();
    for action in commands {
        let (verb, option) = action.split_once(' ').unwrap_or((action, ""));
        let options = Options { force: option == "--force", ..Options::default() };
        if let Err(error) = client.act(vm, verb, &options).await {
            told.push(format!("{action}: {error}"));
            continue;
        }
        match rested(client, vm).await {
            Some(record) if record.state != "aborted" => {
                let why = record.error.unwrap_or_default();
                told.push(format!("{action}: {} {}: {why}", record.phase, record.state));
            }
            _ => {
                told.push((*action).to_owned());
                return Ok(told.join("; "));
            }
        }
    }
    Err(told.join("; "))
}

/// The attack: in which phase, on which node, what is done, and the commands of which one ends the migration.
type Attack = (&'static str, End, &'static str, &'static [&'static str]);

const ATTACKS: [Attack; 10] = [
    ("sync", End::Target, "destroy -r zones/VM", &["switch", "abort"]),
    // The copy without datasets: what is left is the VM.
    ("switch", End::Source, "destroy -r zones/VM", &["rollback", "rescue"]),
    ("sync", End::Source, "destroy zones/VM@SYNC", &["sync", "abort"]),
    ("sync", End::Target, "destroy zones/VM@SYNC", &["sync", "abort"]),
    (
        "sync",
        End::Target,
        "set zoned=off zones/VM/data; rename zones/VM zones/elsewhere",
        &["switch", "abort"],
    ),
    ("sync", End::Source, "rollback -r zones/VM@SYNC", &["switch", "finalize"]),
    ("sync", End::Target, "snapshot zones/VM@NEXT", &["switch", "finalize"]),
    (
        "switch",
        End::Source,
        "set zoned=off zones/VM/data; rename zones/VM zones/elsewhere",
        &["rollback", "rescue"],
    ),
    (
        "switch",
        End::Source,
        "destroy -r zones/VM@SYNC",
        &["rollback", "switch", "finalize --force"],
    ),
    (
        "switch",
        End::Target,
        "destroy -r zones/VM@SYNC",
        &["rollback", "switch", "finalize --force"],
    ),
];

/// Does these attacks, one after the other.
async fn attacked(attacks: &[Attack]) {
    let (mut lab, other) = nodes(|_| {}).await;
    provisioned(&mut lab).await;
    let client = lab.migrations().unwrap();
    let mut worlds = [lab.node().clone(), other.node().clone()];
    for (phase, end, line, commands) in attacks {
        let what = format!("{phase}, {end}, {line}");
        let to = Some(worlds[1].cn_uuid().to_owned());
        let target = Options { override_server_uuid: to, ..Options::default() };
        for action in ["begin", "sync", "switch"] {
            client.act(VM, action, &target).await.unwrap();
            let record = rested(&client, VM).await.unwrap();
            assert!(record.error.is_none(), "{what}: {action}: {:?}", record.error);
            if action == *phase {
                break;
            }
        }
        let node = if *end == End::Source { &worlds[0] } else { &worlds[1] };
        let [last, next] = [0, 1].map(|more| format!("vm-migration-{}", newest(node) + more));
        for line in line.split("; ") {
            zfs(node, &line.replace("SYNC", &last).replace("NEXT", &next));
        }
        let told = ended(&client, VM, commands).await;
        println!("{what}: {told:?}");
        let copies = || worlds.each_ref().map(|node| Judge::new(VM).copy(node));
        let up = || copies().map(|copy| copy.is_some_and(|it| it.running && !it.hidden));
        assert!(told.is_ok(), "{what}: {told:?}: {:?}", copies());
        assert_eq!(up().iter().filter(|up| **up).count(), 1, "{what}: {told:?}: {:?}", copies());
        if up()[1] {
            worlds.swap(0, 1);
        }
        for node in &worlds {
            let renamed = ["destroy", "-r", "zones/elsewhere"].map(str::to_owned);
            drop(InProcess::new(node).answer(Program::Zfs, &renamed));
        }
    }
    other.stop().await.unwrap();
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // M111
async fn a_copy_whose_datasets_somebody_destroys_is_aborted_or_left_behind_by_one_command() {
    attacked(&ATTACKS[..2]).await;
}

#[tokio::test(flavor = "multi_thread")] // M111
#[ignore = "minutes: the others of ten attacks, by hand"]
async fn whatever_somebody_does_with_zfs_one_command_ends_the_migration() {
    attacked(&ATTACKS[2..]).await;
}
