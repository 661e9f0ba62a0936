// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Keys that are revoked while their connections are open: of a node, of volapi, of an operator, on each port.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::http::Duplex;
use sdc_clients::identity::Identity;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use trust::{Admits, Holder, Keeper};

use super::super::common::centre::Centre;
use super::super::common::{cut, is_refused};
use super::*;

/// A connection that is kept is open for at least as long as nothing is revoked.
const OPEN: Duration = Duration::from_millis(300);

/// A key that is let in for `who`.
async fn let_in(lab: &Lab, who: &str, identity: Identity) -> Arc<Holder> {
    use std::io::Write as _;
    let dir = lab.dir().join(format!("key-of-{who}"));
    std::fs::create_dir(&dir).unwrap();
    let holder = Holder::new(Admits::Known);
    let url = format!("https://{}", lab.centre().migrations.trust);
    let keeper = Keeper::new(&holder, &url, (identity, "test"), &dir);
    let token = good(lab, &format!("sdc-migrate trust token {who}")).await;
    let mut file = std::fs::OpenOptions::new();
    file.write(true).create_new(true).mode(0o600);
    file.open(keeper.token_file()).unwrap().write_all(token.as_bytes()).unwrap();
    if let Err(waits) = keeper.once().await {
        let waits = waits.to_string();
        let key = waits.rsplit(' ').next().unwrap();
        good(lab, &format!("sdc-migrate trust approve {who} --key {key}")).await;
        keeper.once().await.unwrap();
    }
    holder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M190
async fn a_second_after_it_is_revoked_no_key_is_honoured_on_any_port() {
    // As installed: the agent asks once a minute what was revoked, if nobody tells it.
    let mut lab = Lab::start(|options| options.vms = 1).await;
    lab.start_migration_service().await.unwrap();
    lab.start_migration_agent().await.unwrap();
    until("the agent is in", async || certificate(&lab).await["needs"].is_null()).await;
    let other = uuid::Uuid::from_u128(0x00c0_b1e5_0000_4000_8000_0000_0000_0009);
    let server = json!({"uuid": other, "setup": true, "sysinfo": {"UUID": other}});
    lab.centre().cnapi.store().put_server(server.as_object().unwrap().clone());

    let agent = Identity::Agent(lab.node().cn_uuid().parse().unwrap());
    let orders: SocketAddr =
        lab.migration_agent_url().trim_start_matches("https://").parse().unwrap();
    let ports = [
        ("the service", lab.centre().migrations.trust, Identity::Service),
        ("an agent's orders", orders, agent),
        ("an agent's streams", lab.migration_data_address(), agent),
    ];
    for (who, identity) in [
        ("operator".to_owned(), Identity::Operator),
        ("volapi".to_owned(), Identity::Volapi),
        (other.to_string(), Identity::Agent(other)),
    ] {
        let holder = let_in(&lab, &who, identity).await;
        let mut kept: Vec<(&str, Box<dyn Duplex>)> = Vec::new();
        for (port, at, to) in ports {
            let stream = TcpStream::connect(at).await.unwrap();
            let mut stream = trust::connect(&holder, stream, to).await.unwrap();
            assert!(timeout(OPEN, stream.read_u8()).await.is_err(), "{who} is let in: {port}");
            kept.push((port, stream));
        }
        // What this machine needs now for a command, before it begins and after it has been answered.
        let begun = tokio::time::Instant::now();
        good(&lab, "sdc-migrate trust list").await;
        let machine = begun.elapsed();
        let key = holder.live().unwrap().about.key.clone();
        good(&lab, &format!("sdc-migrate trust revoke -y {who} --key {key}")).await;
        for (port, is_cut) in cut(kept, machine).await {
            assert!(is_cut, "{who}, {port}: open a second and {machine:?} after it was revoked");
        }
        for (port, at, to) in ports {
            assert!(is_refused(&holder, at, to).await, "{who}, {port}: a new connection");
        }
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M125, M193
async fn what_a_revoked_node_leaves_open_is_ended_by_one_verb_each() {
    let vm = testbed::moving::subject::VM;
    let mut centre = Centre::start().await;
    let cn = centre.other.node().cn_uuid().to_owned();
    let before = centre.stopped("before.redb").await;
    centre.lab.start_migration_service().await.unwrap();
    centre.good(&format!("sdc-migrate begin -y -n {cn} {vm}")).await;

    // The store is lost, and the key of the node with the new copy is revoked: nobody is asked there.
    centre.restored(&before).await;
    centre.good(&format!("sdc-migrate trust revoke -y {cn}")).await;
    let runs = async || centre.good(&format!("vmadm get {vm}")).await.contains("\"running\"");
    let refused = centre.bad(&format!("sdc-migrate adopt {vm}")).await;
    assert!(refused.contains("sdc-migrate adopt --other CN"), "{refused}");
    let listed = async || centre.good("sdc-migrate list -H -p -o uuid,state").await;
    let is = async |state: &str| listed().await.contains(&format!("{vm}:{state}"));
    assert!(!listed().await.contains(vm));
    centre.good(&format!("sdc-migrate adopt --other {cn} {vm}")).await;
    assert!(is("paused").await && runs().await, "{}", listed().await);
    // The copy there is not deleted, and keeps nothing here from going on.
    centre.good(&format!("sdc-migrate abort --force -y {vm}")).await;
    until("it is over", async || !listed().await.contains(vm) || is("aborted").await).await;
    assert!(runs().await);
    // It is no target before it is let in again.
    let refused = centre.bad(&format!("sdc-migrate begin -y -n {cn} {vm}")).await;
    assert!(refused.contains("revoked"), "{refused}");
    centre.stop().await;
}
