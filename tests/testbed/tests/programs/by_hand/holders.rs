// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Two migration-services on one PostgreSQL server: the holder of the lease stands still, or its connections do, or the
//! server's clock is wrong. Skipped with a word where PostgreSQL is not installed.

use std::time::Duration;

use rig::port::Port;
use rig::postgres::Cluster;
use rig::relay::Relay;
use rustix::process::Signal;
use sdc_clients::Http;
use sdc_clients::migrations::MigrationQuery;
use serde_json::{Value, json};
use testbed::lab::World;
use testbed::lab::asking::OWN_AGENT;
use testbed::process::Child;
use tokio::time::Instant;

use super::*;
use crate::common::{Lab, program, signal};

/// The term of the lab's lease.
const TERM: Duration = Duration::from_secs(3);

/// Two nodes with the VM that moves, and the first service, which holds the lease. Its ways to the agents are counted.
struct Site {
    lab: Lab,
    other: World,
    ways: Vec<Relay>,
}

/// The second service.
struct Second {
    client: Migrations,
    _child: Child,
    _ports: Vec<Port>,
}

impl Site {
    async fn start(cluster: &Cluster, database: &str) -> Site {
        let address = cluster.database(database).await;
        let (mut lab, other) = nodes(|options| {
            options.migration_service.insert("store".to_owned(), json!({ "postgres": address }));
        })
        .await;
        lab.end("migration-service", false).await.unwrap();
        let (mut ways, mut urls, mut port) = (Vec::new(), serde_json::Map::new(), 0);
        for world in [&*lab, &other] {
            let url = world.migration_agent_url();
            let agent: std::net::SocketAddr = url["https://".len()..].parse().unwrap();
            port = agent.port();
            let way = Relay::start(agent).unwrap();
            let cn = world.node().cn_uuid().to_owned();
            urls.insert(cn, json!(format!("https://{}", way.address())));
            ways.push(way);
        }
        let agents = json!({ "port": port, "urls": urls });
        lab.options().migration_service.insert("agents".to_owned(), agents);
        lab.start_migration_service().await.unwrap();
        provisioned(&mut lab).await;
        Site { lab, other, ways }
    }

    /// Starts the second service, at ports of its own; it reaches the agents by themselves.
    async fn second(&self) -> Second {
        let dir = self.lab.dir();
        let config = std::fs::read_to_string(dir.join("cn/migration-service.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        let ports: Vec<Port> = (0..3).map(|_| Port::local().unwrap()).collect();
        let at = |nth: usize| json!(ports[nth].address().to_string());
        config["listen"] = at(0);
        config["status"]["listen"] = at(1);
        config["trust"]["listen"] = at(2);
        config["control_socket"] = json!(dir.join("second.sock"));
        config["agents"].as_object_mut().unwrap().remove("urls");
        let file = dir.join("second.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let args = ["@migration-service", "serve", "--config", &file.to_string_lossy()];
        let mut child = Child::spawn("the second service", &program(), &args).unwrap();
        child.ignore();
        let http = Http::new(&ports[0].url(), OWN_AGENT).unwrap();
        let client = Migrations::new(http.without_retries());
        let all = MigrationQuery::default();
        until("the second service answers", async || client.list(&all).await.is_ok()).await;
        Second { client, _child: child, _ports: ports }
    }

    /// How often the first service has turned to an agent.
    fn asked(&self) -> usize {
        self.ways.iter().map(Relay::connections).sum()
    }

    /// Waits for this while no moment is seen at which both copies run.
    async fn until<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        until(what, || {
            assert!(!both_run(VM, [self.lab.node(), self.other.node()]), "{what}: both copies run");
            holds()
        })
        .await;
    }

    /// Gives a command, and waits for its end.
    async fn done(&self, client: &Migrations, action: &str) {
        let to = Some(self.other.node().cn_uuid().to_owned());
        let target = Options { override_server_uuid: to, ..Options::default() };
        client.act(VM, action, &target).await.unwrap();
        self.until(action, async || now(client, VM).await.is_some()).await;
        let error = now(client, VM).await.flatten().and_then(|record| record.error);
        assert!(error.is_none(), "{action}: {error:?}");
    }

    /// The VM runs on one node, shown there alone.
    fn is_up_on(&self, nth: usize) {
        let copies = [self.lab.node(), self.other.node()].map(|node| Judge::new(VM).copy(node));
        let up = copies.map(|it| it.is_some_and(|copy| copy.running && !copy.hidden));
        assert_eq!(up, [nth == 0, nth == 1], "{copies:?}");
    }

    /// What the first service has logged.
    fn log(&self) -> String {
        std::fs::read_to_string(self.lab.dir().join("cn/migration-service.log")).unwrap()
    }

    async fn stop(self) {
        self.other.stop().await.unwrap();
        self.lab.stop().await;
    }
}

/// A command is being carried out.
async fn runs(client: &Migrations, phase: &str) -> bool {
    client.get(VM).await.is_ok_and(|it| it.phase == phase && it.state == "running")
}

#[tokio::test(flavor = "multi_thread")] // M33
#[ignore = "a minute: two services and PostgreSQL, by hand"]
async fn a_holder_that_is_stopped_asks_no_agent_anything_when_it_is_woken() {
    let Some(cluster) = Cluster::start().await else { return };
    let site = Site::start(&cluster, "migrations").await;
    let first = site.lab.migrations().unwrap();
    for action in ["begin", "sync"] {
        site.done(&first, action).await;
    }
    first.act(VM, "switch", &Options::default()).await.unwrap();
    site.until("the switch runs", async || runs(&first, "switch").await).await;
    let holder = site.lab.pid("migration-service").unwrap();
    signal(holder, Signal::STOP);
    let other = site.second().await;
    let second = &other.client;
    site.until("the second service ends it", async || now(second, VM).await.is_some()).await;
    site.is_up_on(1);
    second.act(VM, "rollback", &Options::default()).await.unwrap();
    site.until("the rollback runs", async || runs(second, "rollback").await).await;
    let asked = site.asked();
    signal(holder, Signal::CONT);
    site.until("the first knows", async || site.log().contains("lost the lease")).await;
    site.until("the rollback is over", async || now(second, VM).await.is_some()).await;
    site.is_up_on(0);
    assert_eq!(site.asked(), asked, "the first has asked agents since");
    site.stop().await;
}

/// The processes of a database's connections.
fn backends(database: &str) -> Vec<u32> {
    let what = format!("postgres: store {database} ");
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_one = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|it| it.starts_with(&what))
    };
    all.filter_map(|it| it.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

#[tokio::test(flavor = "multi_thread")] // M33
#[ignore = "a minute: two services and PostgreSQL, by hand"]
async fn a_holder_whose_connections_stand_still_boots_nothing_twice() {
    let Some(cluster) = Cluster::start().await else { return };
    let database = format!("still{}", std::process::id());
    let site = Site::start(&cluster, &database).await;
    let first = site.lab.migrations().unwrap();
    for action in ["begin", "sync"] {
        site.done(&first, action).await;
    }
    for (action, up) in [("switch", 1), ("rollback", 0)] {
        first.act(VM, action, &Options::default()).await.unwrap();
        site.until(action, async || runs(&first, action).await).await;
        let still = backends(&database);
        assert!(!still.is_empty());
        for pid in &still {
            signal(*pid, Signal::STOP);
        }
        let (began, second) = (Instant::now(), site.second().await);
        site.until("two terms pass", async || began.elapsed() > 2 * TERM).await;
        for pid in &still {
            signal(*pid, Signal::CONT);
        }
        site.until(action, async || now(&second.client, VM).await.is_some()).await;
        let error = now(&second.client, VM).await.flatten().and_then(|record| record.error);
        assert!(error.is_none(), "{action}: {error:?}");
        site.is_up_on(up);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")] // M33
#[ignore = "a minute: two services, PostgreSQL and faketime, by hand"]
async fn a_database_whose_clock_is_a_day_wrong_boots_nothing_twice() {
    let Some(cluster) = Cluster::with_clock().await else { return };
    let site = Site::start(&cluster, "migrations").await;
    let first = site.lab.migrations().unwrap();
    let second = site.second().await;
    for action in ["begin", "sync"] {
        site.done(&first, action).await;
    }
    for (action, by, up) in [("switch", "+1d", 1), ("rollback", "-1d", 0)] {
        second.client.act(VM, action, &Options::default()).await.unwrap();
        site.until(action, async || runs(&second.client, action).await).await;
        cluster.put_clock(by);
        site.until(action, async || now(&second.client, VM).await.is_some()).await;
        let error = now(&second.client, VM).await.flatten().and_then(|record| record.error);
        assert!(error.is_none(), "{action} {by}: {error:?}");
        site.is_up_on(up);
    }
    cluster.put_clock("+0");
    for action in ["begin", "sync", "switch"] {
        site.done(&first, action).await;
    }
    site.is_up_on(1);
    site.stop().await;
}
