// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Thirty migrations at once, while both agents and the service are killed: no VM runs twice, none is lost, and one
//! verb ends each.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sdc_clients::vminfod::VmFields as _;
use serde_json::json;
use testbed::lab::World;

use super::*;

const VMS: u32 = 30;

/// So often somebody is killed, unless all is over before.
const KILLS: usize = 40;

/// The VM as it is on both nodes, where it is shown on exactly one.
fn shown(vm: &str, nodes: [&Node; 2]) -> Option<usize> {
    let is_shown = |node: &Node| Judge::new(vm).copy(node).is_some_and(|copy| !copy.hidden);
    match nodes.map(is_shown) {
        [true, false] => Some(0),
        [false, true] => Some(1),
        _ => None,
    }
}

fn runs(vm: &str, nodes: [&Node; 2]) -> usize {
    let runs = |node: &&Node| Judge::new(vm).copy(node).is_some_and(|copy| copy.running);
    nodes.iter().filter(|node| runs(node)).count()
}

/// Kills one of the three and starts it again.
async fn killed(rng: &mut StdRng, worlds: [&mut World; 2]) {
    let [first, second] = worlds;
    match rng.random_range(0..3) {
        0 => {
            first.end("migration-service", true).await.unwrap();
            first.start_migration_service().await.unwrap();
        }
        which => {
            let world = if which == 1 { first } else { second };
            world.end("migration-agent", true).await.unwrap();
            world.start_migration_agent().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")] // M10 M33
#[ignore = "minutes: thirty migrations and forty kills, by hand"]
async fn thirty_migrations_at_once_end_whoever_is_killed() {
    let (mut lab, mut other) = nodes(|options| options.vms = VMS).await;
    let client = lab.migrations().unwrap();
    let limit = json!({"max_running_migrations_per_cn": VMS});
    client.set(None, limit.as_object().unwrap()).await.unwrap();
    let vms: Vec<String> =
        lab.vms().await.iter().filter_map(|vm| vm.uuid().map(str::to_owned)).collect();
    let ran: Vec<usize> = vms.iter().map(|vm| runs(vm, [lab.node(), other.node()])).collect();
    let to = Some(other.node().cn_uuid().to_owned());
    let target =
        Options { override_server_uuid: to, migration_automatic: true, ..Options::default() };
    let mut begun = 0;
    for vm in &vms {
        match client.act(vm, "begin", &target).await {
            Ok(_) => begun += 1,
            Err(error) => println!("{vm} is not begun: {}", error.message()),
        }
    }
    assert!(begun * 10 >= vms.len() * 9, "{begun} of {} began", vms.len());

    let mut rng = StdRng::seed_from_u64(1);
    for nth in 0.. {
        if nth < KILLS {
            killed(&mut rng, [&mut lab, &mut other]).await;
        }
        let mut busy = 0;
        for vm in &vms {
            assert!(
                !both_run(vm, [lab.node(), other.node()]),
                "{vm} runs twice, after {nth} kills"
            );
            busy += usize::from(now(&client, vm).await.is_none());
        }
        if busy == 0 {
            println!("after {} kills nothing of {begun} migrations runs", KILLS.min(nth + 1));
            break;
        }
        assert!(nth < KILLS * 100, "{busy} migrations do not rest");
    }
    let mut moved = 0;
    for (vm, ran) in vms.iter().zip(ran) {
        let rest = client.get(vm).await.ok().map(|it| (it.phase, it.state, it.error));
        let told = match rest {
            Some(_) => ended(&client, vm, &["finalize", "abort", "switch", "finalize"]).await,
            None => Ok("nothing is left".to_owned()),
        };
        let copies = [lab.node(), other.node()].map(|node| Judge::new(vm).copy(node));
        let what = format!("{vm}: {rest:?}: {told:?}: {copies:?}");
        assert!(told.is_ok(), "{what}");
        assert_eq!(runs(vm, [lab.node(), other.node()]), ran, "{what}");
        moved += shown(vm, [lab.node(), other.node()]).expect(&what);
    }
    println!("{moved} of {} VMs are on the other node", vms.len());
    other.stop().await.unwrap();
    lab.stop().await;
}
