// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that does not answer, in each place of a migration, and one that is back: what `get` says is typed, and ends
//! that.

use daemon::needs::find;
use simnode::Node;
use testbed::moving::subject::VM;

use super::super::common::centre::Centre;
use super::super::common::until;

/// The states that are ended here.
pub const HERE: [&str; 5] = [
    "migration-source-silent",
    "migration-target-silent",
    "migration-copy-silent",
    "migration-old-silent",
    "migration-returned",
];

const AGENT: &str = "migration-agent";

impl Centre {
    async fn all(&self, commands: &[&str]) {
        for command in commands {
            self.good(&format!("sdc-migrate {command} {VM}")).await;
        }
    }

    /// Waits for the state, and types what `get` says is next.
    async fn follows(&self, state: &'static str) {
        assert!(HERE.contains(&state));
        until(state, async || self.state().await == Some(state)).await;
        let shown = self.good(&format!("sdc-migrate get {VM} 2>&1")).await;
        let next = shown.lines().find_map(|line| line.strip_prefix("Next: "));
        let next = next.unwrap_or_else(|| panic!("{state}: {shown}"));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (want, said) = (words(find(state).unwrap().command), words(next));
        assert_eq!(said.len(), want.len() + 1, "{state}: {shown}");
        for (want, said) in want.iter().zip(&said) {
            assert!(want == said || ["CN", "VM"].contains(&want.as_str()), "{state}: {shown}");
        }
        // The node was heard of a moment ago.
        assert_eq!(said.last().unwrap(), "--really", "{state}: {shown}");
        assert!(shown.contains("To see why, on cn-"), "{state}: {shown}");
        // In a script nothing asks.
        let yes = if next.contains("abort") { "" } else { " -y" };
        self.good(&format!("{next}{yes}")).await;
        assert_ne!(self.state().await, Some(state), "{next}");
    }

    /// The copy on a node that is back is deleted.
    async fn returns(&self) {
        let command = find("migration-returned").unwrap().command_for(&[("VM", VM)]);
        let alarms = async || self.good("migration-service status -j").await;
        until("it is back", async || alarms().await.contains(&command)).await;
        self.good(&command).await;
        let is_over = async || !alarms().await.contains(&command);
        until("it is over", is_over).await;
    }
}

/// The node of a VM loses its power: the zone does not run any more.
async fn off(node: &Node) {
    let node = node.clone();
    tokio::task::spawn_blocking(move || node.zone_halt(VM, 0).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M142 M270 M274
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_node_that_does_not_answer_and_one_that_is_back() {
    let mut centre = Centre::start().await;
    centre.all(&["begin", "sync"]).await;
    centre.other.end(AGENT, true).await.unwrap();
    centre.follows("migration-copy-silent").await;
    centre.other.start_migration_agent().await.unwrap();
    centre.there(&format!("vmadm delete {VM}")).await;

    centre.all(&["begin", "sync"]).await;
    centre.lab.end(AGENT, true).await.unwrap();
    off(centre.lab.node()).await;
    centre.follows("migration-source-silent").await;
    centre.lab.start_migration_agent().await.unwrap();
    centre.returns().await;

    // It is on the other node now.
    centre.all(&["begin", "sync", "switch"]).await;
    centre.other.end(AGENT, true).await.unwrap();
    centre.follows("migration-old-silent").await;
    centre.other.start_migration_agent().await.unwrap();
    centre.returns().await;

    centre.all(&["begin", "sync", "switch"]).await;
    centre.other.end(AGENT, true).await.unwrap();
    off(centre.other.node()).await;
    centre.follows("migration-target-silent").await;
    centre.other.start_migration_agent().await.unwrap();
    centre.returns().await;
    centre.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M270
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_target_whose_key_was_revoked_is_not_heard_though_it_answers() {
    let centre = Centre::start().await;
    centre.all(&["begin", "sync"]).await;
    let cn = centre.other.node().cn_uuid().to_owned();
    centre.good(&format!("sdc-migrate trust revoke -y {cn}")).await;
    centre.follows("migration-copy-silent").await;
    centre.stop().await;
}
