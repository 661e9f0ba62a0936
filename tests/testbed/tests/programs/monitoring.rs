// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the programs tell a Prometheus: their metrics are the documented ones, and what is in `deploy/metrics`
//! asks for these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::timing::Clock;
use futures_util::future::BoxFuture;
use migration_service::{Addresses, Agents, Known, Peers, Service};
use sdc_clients::http::{HttpTransport, Transport};
use serde_json::json;
use store::Store;
use testbed::process;
use testbed::volapi::fuse::Fuse;
use testbed::volapi::peers::DataCentre;
use volapi::pages::Pages;
use volapi::updater::{self, Feed, News, Updater};

use super::common::{LATE, Lab, until};

/// The programs of a node, and how their metrics begin.
const PROGRAMS: [(&str, &str); 5] = [
    ("vminfod", "vminfod"),
    ("net-agent", "net_agent"),
    ("vm-agent", "vm_agent"),
    ("kvmd", "kvmd"),
    ("console", "console"),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The services of the data centre whose metrics are collected, too.
const VOLAPI: &str = "volapi";
const MIGRATIONS: &str = "migration-service";
/// A program of a node whose metrics have a page of their own.
const MIGRATION_AGENT: &str = "migration-agent";
const FLEET_AGENT: &str = "fleet-agent";

/// A lab with every program running; what each of them and the services tell.
async fn lab() -> (Lab, BTreeMap<&'static str, String>) {
    let mut lab = Lab::of(12).await;
    lab.fill().await;
    lab.start_agent().await.unwrap();
    lab.start_vm_agent().await.unwrap();
    lab.start_kvmd().await.unwrap();
    lab.start_console().await.unwrap();
    until("the first pass is over", async || lab.agent_status().await["pass"].as_u64() > Some(0))
        .await;
    let urls =
        [lab.vminfod_url(), lab.agent_url(), lab.vm_agent_url(), lab.kvmd_url(), lab.console_url()];
    let mut pages = BTreeMap::new();
    for ((name, _), url) in PROGRAMS.into_iter().zip(urls) {
        let (status, page) = get(&format!("{url}/metrics")).await;
        assert_eq!(status, 200, "{name}");
        let outside = url.replace("127.0.0.1", "127.0.0.2");
        until("the second address serves", async || {
            reqwest::get(format!("{outside}/metrics")).await.is_ok()
        })
        .await;
        let asked = reqwest::Client::new().get(format!("{outside}/metrics"));
        let answer = asked.header("Host", "cn1.dc.example").send().await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{name}: {kind}");
        let told = answer.text().await.unwrap();
        assert_eq!(names(&told), names(&page), "{name}");
        for path in ["", "ping", "status", "vms", "events", "plan", "ui", "metrics/x"] {
            assert_eq!(get(&format!("{outside}/{path}")).await.0, 404, "{name}: /{path}");
        }
        pages.insert(name, page);
    }
    lab.start_migration_agent().await.unwrap();
    for url in [lab.agent_url(), lab.vm_agent_url(), lab.migration_agent_status_url()] {
        let document: serde_json::Value =
            reqwest::get(format!("{url}/openapi.json")).await.unwrap().json().await.unwrap();
        assert!(document["components"]["schemas"]["AgentStatus"].is_object(), "{url}");
        let told = reqwest::get(format!("{url}/status")).await.unwrap();
        told.json::<sdc_clients::agent_status::AgentStatus>().await.unwrap();
    }
    let (status, page) = get(&format!("{}/metrics", lab.migration_agent_status_url())).await;
    assert_eq!(status, 200, "{page}");
    pages.insert(MIGRATION_AGENT, page);
    pages.insert(FLEET_AGENT, fleet_agent().await);
    pages.insert(VOLAPI, volapi().await);
    pages.insert(MIGRATIONS, migrations().await);
    (lab, pages)
}

/// What fleet-agent tells of an empty node.
async fn fleet_agent() -> String {
    use fleet_agent::{agent::Agent, config::Config, feed::memory, machine::Machine, parts::Parts};
    let (dir, cn) = (tempfile::tempdir().unwrap(), "c0000000-0000-4000-8000-000000000001");
    let config = serde_json::json!({"state_dir": dir.path(), "nats": {"servers": ["nats://127.0.0.1"]},
            "streams": {"make": true}});
    let config = Config::from_json(&config.to_string()).unwrap();
    let hub = Arc::new(mocks::hub::Hub::new(cn, 1));
    let http = sdc_clients::Http::with_transport("http://hub", "test", hub).unwrap();
    let feed = Arc::new(memory::Memory::default());
    let parts = Parts::new(config, cn.to_owned(), &Machine::drawn(), None, feed, &http);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let shutdown = daemon::Shutdown::new();
    let tasks = daemon::Tasks::new(shutdown.clone());
    let agent = Agent { parts, makes: None };
    agent.listen(listener, &tasks, &shutdown);
    let stop = shutdown.clone();
    tasks.spawn("agent", async move { agent.run(stop).await });
    let seen = std::cell::RefCell::default();
    until("the node is published", async || {
        let (_, page) = get(&url).await;
        // The line of its help says "1 while …".
        let is_published = page.contains("\nfleet_agent_publishing 1.0\n");
        seen.replace(page);
        is_published
    })
    .await;
    shutdown.trigger();
    seen.into_inner()
}

/// A feed that has listed VMAPI's VMs, of which there are none.
struct Listed(bool);

impl Feed for Listed {
    fn next(&mut self) -> BoxFuture<'_, News> {
        match std::mem::replace(&mut self.0, true) {
            false => Box::pin(std::future::ready(News::Listed(Vec::new()))),
            true => Box::pin(std::future::pending()),
        }
    }
}

/// What a volapi tells that is well.
async fn volapi() -> String {
    let (data_centre, store) = (DataCentre::new(&json!({})).unwrap(), Store::in_memory().unwrap());
    let service =
        testbed::volapi::running::start(&store, &data_centre, &Fuse::none()).await.unwrap();
    let state = Arc::new(updater::State::default());
    let updater = Updater {
        service: Arc::clone(&service),
        state: Arc::clone(&state),
        listen: Box::new(|| Box::new(Listed(false))),
    };
    tokio::spawn(updater.run());
    until("volapi follows VMs", async || state.follows()).await;
    let (probes, clock) = (Arc::default(), Clock::start());
    page(
        Arc::new(Pages { service, updater: state, probes, clock, kept: Default::default() })
            .routes(),
    )
    .await
}

/// What a migration-service without records tells.
async fn migrations() -> String {
    let transport: Arc<dyn Transport> = Arc::new(HttpTransport::new().unwrap());
    let nowhere = || "http://127.0.0.1:1".to_owned();
    let addresses = Addresses {
        vmapi: nowhere(),
        cnapi: nowhere(),
        napi: nowhere(),
        imgapi: nowhere(),
        papi: nowhere(),
    };
    let peers = Peers::new(&addresses, &transport).unwrap();
    let known = Known { port: 1, urls: BTreeMap::new() };
    let agents = Agents::new(known, peers.cnapi.clone(), transport);
    let (store, clock) = (Store::in_memory().unwrap(), migration_service::clock::Clock::System);
    let service = Service::open(&store, peers, agents, clock, &nowhere()).await.unwrap();
    page(migration_service::pages::router(service)).await
}

/// What these routes answer for metrics.
async fn page(routes: axum::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let (status, page) = get(&url).await;
    assert_eq!(status, 200, "{page}");
    page
}

async fn get(url: &str) -> (u16, String) {
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The names of a page's metrics, as they are asked for.
fn names(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| {
        let (name, kind) = line.split_once(' ').unwrap();
        match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        }
    };
    types.map(name).collect()
}

/// The names in the table below a heading.
fn documented(document: &str, heading: &str) -> BTreeSet<String> {
    let below = document.split(&format!("## {heading}\n")).nth(1).unwrap();
    let table = below.split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split(['{', '`']).next()).map(str::to_owned).collect()
}

/// `NAME{LABELS}` as its name and the pairs of its labels; Prometheus adds `job` and `instance`.
fn series(selector: &str) -> (String, BTreeSet<String>) {
    let (name, labels) = selector.split_once('{').unwrap_or((selector, "}"));
    let labels = labels.trim_end_matches('}').split(',').map(str::trim);
    let theirs = |label: &&str| {
        !label.is_empty() && !label.starts_with("job=") && !label.starts_with("instance=")
    };
    (name.to_owned(), labels.filter(theirs).map(str::to_owned).collect())
}

/// The series of a page.
fn told(page: &str) -> Vec<(String, BTreeSet<String>)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| series(line.rsplit_once(' ').unwrap().0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_tell_what_is_documented_and_rules_ask_for_that() {
    let (lab, pages) = lab().await;
    let document = text("docs/monitoring.md");
    let common = documented(&document, "All programs");
    let mut known = BTreeSet::new();
    for (name, prefix) in PROGRAMS {
        let here = common.iter().map(|metric| metric.replace("PROGRAM", prefix));
        let wanted: BTreeSet<String> = here.chain(documented(&document, name)).collect();
        assert_eq!(names(&pages[name]), wanted, "{name}");
        known.extend(wanted);
    }
    known
        .extend([MIGRATION_AGENT, FLEET_AGENT, VOLAPI].iter().flat_map(|name| names(&pages[name])));
    known.extend(names(&pages[MIGRATIONS]));

    // What a rule is tested with is what a program prints, up to the values that differ from node to node.
    let tests = text("deploy/metrics/tests.yml");
    let all: Vec<_> = pages.values().flat_map(|page| told(page)).collect();
    let differ = |label: &String| ["version=", "commit="].iter().any(|key| label.starts_with(key));
    let mut seen = 0;
    for selector in tests.split("series: '").skip(1).filter_map(|rest| rest.split('\'').next()) {
        let (name, labels) = series(selector);
        let labels: BTreeSet<String> = labels.into_iter().filter(|label| !differ(label)).collect();
        let fits = |(told, with): &&(String, BTreeSet<String>)| {
            *told == name && labels == with.iter().filter(|label| !differ(label)).cloned().collect()
        };
        assert!(name == "up" || all.iter().any(|one| fits(&one)), "nobody prints {selector}");
        seen += 1;
    }
    assert!(seen > 60, "{seen} series");

    // Every rule has its test, and asks for what is documented, as the dashboard does.
    let rules = text("deploy/metrics/alerts.yml");
    let named = |text: &str, key: &str| -> BTreeSet<String> {
        text.split(key).skip(1).filter_map(|rest| rest.lines().next()).map(str::to_owned).collect()
    };
    assert_eq!(named(&rules, "- alert: "), named(&tests, "- name: "));
    for name in ["deploy/metrics/alerts.yml", "deploy/metrics/grafana.json"] {
        let asked = text(name);
        let words = asked.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let ours = |word: &&str| {
            let of_programs = PROGRAMS.iter().map(|(_, prefix)| *prefix);
            let mut prefixes =
                of_programs.chain(["process", VOLAPI, "migration_agent", "migration_service"]);
            prefixes.any(|prefix| word.starts_with(&format!("{prefix}_")))
        };
        let asked: BTreeSet<&str> =
            words.filter(ours).map(|word| word.trim_end_matches("_bucket")).collect();
        assert!(asked.len() > 20, "{name}: {asked:?}");
        let unknown: Vec<_> = asked.into_iter().filter(|word| !known.contains(*word)).collect();
        assert_eq!(unknown, Vec::<&str>::new(), "{name}");
    }
    lab.stop().await;
}

/// The rules about a node that is well, by the very numbers that it prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_well_raises_no_alert() {
    let (lab, pages) = lab().await;
    for (program, errors) in
        [("net-agent", "net_agent_errors_total"), ("vm-agent", "vm_agent_errors_total")]
    {
        assert!(pages[program].contains(&format!("\n{errors} 0\n")), "{}", pages[program]);
    }
    let promtool = Path::new("/usr/bin/promtool");
    if !promtool.exists() {
        eprintln!("skipped: promtool is not installed (Debian's package prometheus)");
        return lab.stop().await;
    }
    let mut tests = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n",
        file("deploy/metrics/alerts.yml").display()
    );
    for (name, page) in &pages {
        let lines = page.lines().filter(|line| !line.starts_with('#')).chain(["up 1"]);
        for (selector, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            let (metric, labels) = series(selector);
            let labels: String = labels.into_iter().map(|label| format!("{label},")).collect();
            let all = format!("{metric}{{{labels}job=\"{name}\",instance=\"cn1\"}}");
            tests += &format!("      - {{ series: '{all}', values: '{value}x100' }}\n");
        }
    }
    // A new agent may not write yet.
    tests += "    promql_expr_test:\n      - { expr: 'ALERTS', eval_time: 99m, exp_samples: [] }\n";
    let path = lab.dir().join("tests.yml");
    std::fs::write(&path, &tests).unwrap();
    let args = ["test", "rules", &path.to_string_lossy()];
    let done = process::run(promtool, &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    lab.stop().await;
}
