// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that is cut off, and declared dead, while its VM runs: its migration-agent is stopped.

use rustix::process::Signal;
use sdc_clients::migrations::{Migrations, Options};
use serde_json::json;
use simnode::Node;
use testbed::lab::World;
use testbed::moving::judge::{Copy, Judge};
use testbed::moving::subject::VM;

use super::common::centre::{nodes, provisioned};
use super::common::{Lab, signal, until};

fn copy(node: &Node) -> Copy {
    Judge::new(VM).copy(node).unwrap()
}

/// Gives an order, and waits until the migration is in this state.
pub async fn done(client: &Migrations, action: &str, options: &Options, state: &str) {
    client.act(VM, action, options).await.unwrap();
    until(action, async || client.get(VM).await.is_ok_and(|it| it.state == state)).await;
}

/// Two nodes with a VM whose first sync is done, and the source's uuid. Agents ask the service after so long a silence.
pub async fn synced(ask_after: &str) -> (Lab, World, Migrations, String) {
    let (mut lab, other) = nodes(|options| {
        options.migration_agent.insert("ask_after".to_owned(), json!(ask_after));
    })
    .await;
    provisioned(&mut lab).await;
    let client = lab.migrations().unwrap();
    let [from, to] = [lab.node(), other.node()].map(|node| node.cn_uuid().to_owned());
    let target = Options { override_server_uuid: Some(to), ..Options::default() };
    done(&client, "begin", &target, "paused").await;
    done(&client, "sync", &Options::default(), "paused").await;
    (lab, other, client, from)
}

#[tokio::test(flavor = "multi_thread")] // F132 M100 M105
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_node_that_was_cut_off_and_declared_dead_stops_its_copy_when_it_is_back() {
    let (lab, other, client, from) = synced("1s").await;

    let agent = lab.pid("migration-agent").unwrap();
    signal(agent, Signal::STOP);
    // CNAPI of the lab was never sent a heartbeat: nobody knows when the node was last alive.
    let word = Options { source_dead: Some(from), ..Options::default() };
    let refused = client.act(VM, "switch", &word).await.unwrap_err();
    let why = refused.message();
    assert!(why.contains("has no heartbeat") && why.contains("use --really"), "{why}");
    done(&client, "switch", &Options { really: true, ..word }, "successful").await;
    for (node, what) in [(lab.node(), "the source"), (other.node(), "the target")] {
        let copy = copy(node);
        assert!(copy.running && !copy.hidden, "{what}: {copy:?}");
    }

    signal(agent, Signal::CONT);
    let is_down = |copy: Copy| !copy.running && copy.hidden && !copy.autoboot;
    until("its copy is stopped and hidden", async || is_down(copy(lab.node()))).await;
    // Somebody starts it by hand.
    lab.verbs().boot(VM).await.unwrap();
    until("it is stopped again", async || is_down(copy(lab.node()))).await;
    assert!(copy(other.node()).running && !copy(other.node()).hidden);
    other.stop().await.unwrap();
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // M48 M100
#[ignore = "a minute: `.ci/run` has it in its lane of programs"]
async fn a_node_that_was_cut_off_and_boots_starts_no_second_copy_while_smf_starts_its_agent() {
    for is_installed in [true, false] {
        let (mut lab, other, client, from) = synced("1s").await;
        lab.install_agents().unwrap();
        lab.goes_down().await.unwrap();
        let word = Options { source_dead: Some(from), really: true, ..Options::default() };
        done(&client, "switch", &word, "successful").await;
        if !is_installed {
            lab.uninstall_agent("migration-agent").unwrap();
        }
        let boot = lab.comes_up().await.unwrap();
        for agent in ["net-agent", "vm-agent"] {
            assert!(lab.pid(agent).is_some(), "{agent} is installed: {:?}", boot.started);
        }
        assert_eq!(lab.pid("migration-agent").is_some(), is_installed, "{:?}", boot.started);
        // Nothing else keeps the copy down.
        assert_eq!(boot.zones.iter().any(|zone| zone == VM), !is_installed, "{:?}", boot.zones);
        assert!(copy(other.node()).running && !copy(other.node()).hidden);
        if is_installed {
            let is_down = |copy: Copy| !copy.running && copy.hidden && !copy.autoboot;
            until("its copy is hidden", async || is_down(copy(lab.node()))).await;
        }
        other.stop().await.unwrap();
        lab.stop().await;
    }
}

/// The service's metrics say so of copies that run though they were replaced.
async fn alarm(lab: &Lab) -> bool {
    let page = reqwest::get(format!("{}/metrics", lab.migrations_status_url())).await.unwrap();
    let metrics = page.text().await.unwrap();
    metrics.contains("migration_service_migrations_replaced_running 1.0\n")
}

#[tokio::test(flavor = "multi_thread")] // M121
#[ignore = "two minutes: the service looks at a replaced copy once a minute"]
async fn a_replaced_copy_that_cannot_be_stopped_is_an_alarm_that_pages_until_it_is() {
    // The service is the first to see it.
    let (lab, other, client, from) = synced("5m").await;
    let agent = lab.pid("migration-agent").unwrap();
    signal(agent, Signal::STOP);
    let word = Options { source_dead: Some(from), really: true, ..Options::default() };
    done(&client, "switch", &word, "successful").await;
    assert!(!alarm(&lab).await, "its node is silent");
    let vmadm = lab.node().dir().join("bin/vmadm");
    let aside = vmadm.with_extension("aside");
    std::fs::rename(&vmadm, &aside).unwrap();
    signal(agent, Signal::CONT);
    until("the alarm pages", async || alarm(&lab).await).await;
    assert!(copy(lab.node()).running && copy(other.node()).running);
    std::fs::rename(&aside, &vmadm).unwrap();
    let is_down = |copy: Copy| !copy.running && copy.hidden && !copy.autoboot;
    until("its copy is stopped and hidden", async || is_down(copy(lab.node()))).await;
    until("the alarm is over", async || !alarm(&lab).await).await;
    assert!(copy(other.node()).running && !copy(other.node()).hidden);
    other.stop().await.unwrap();
    lab.stop().await;
}
