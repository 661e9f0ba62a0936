// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The packages for apm on an imitated node: what an installation, an update, the Node.js agent and the way back leave
//! of settings, uuids and services; what SAPI may answer; a death after any line.

#[cfg(target_os = "linux")] // namespaces
mod dead;
mod killed;
mod life;
#[cfg(target_os = "linux")] // namespaces
mod mounts;
mod namespace;
mod site;

use mocks::faults::{Action, Rule};
use serde_json::json;

use self::site::{ADOPTED, NEWER, Site, of_upstream, package};
use super::packed::STAMP;
use super::table::{AGENTS, packages};

const AGENT: &str = "svc:/smartdc/agent/net-agent:default";

#[test]
fn a_package_lies_where_the_table_says_and_its_services_run() {
    let site = Site::new();
    for package in packages().iter().filter(|it| it.is_for_apm()) {
        let before = site.files();
        site.installs(&site::package(&package.name, STAMP));
        let mut files = site.files();
        files.retain(|place, _| !before.contains_key(place));
        for (place, _) in package.elsewhere() {
            // The agents' manifests are seen at both ends of a mount.
            let site = place.replace("/opt/smartdc/agents/smf/", "/var/svc/manifest/site/");
            let found = files.remove(&place).or_else(|| files.remove(&site));
            assert!(found.is_some(), "{place} is missing");
        }
        let folder = format!("{}/", package.folder);
        files.retain(|place, _| !place.starts_with(&folder));
        assert!(files.is_empty(), "{}: the table does not have {files:?}", package.name);
    }
    for name in ADOPTED {
        for service in [name.to_owned(), format!("{name}-boot")] {
            let state = site.state(&format!("svc:/smartdc/agent/{service}:default"));
            assert_eq!(state.as_deref(), Some("online"), "{service}");
        }
    }
    let listed = site.node.agents_for_cnapi().unwrap();
    let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(
        names,
        ["fleet-agent", "hub", "hub-tools", "migration-agent", "net-agent", "vm-agent"]
    );
    // config-agent, started again by the packages, writes each configuration.
    let pass = site.configures();
    assert_eq!(pass.failed, Vec::<String>::new());
    let written = ADOPTED.map(|name| format!("{AGENTS}/etc/{name}.config.json"));
    let mut found = pass.written;
    found.sort();
    let mut written = written.to_vec();
    written.sort();
    assert_eq!(found, written);
    let config: serde_json::Value =
        serde_json::from_str(&site.read("etc/net-agent.config.json")).unwrap();
    assert_eq!(config["agent_uuid"], site.read("etc/net-agent").trim());
    // A boot takes the ramdisk; the services make it again.
    let boot = site.node.path(&format!("{AGENTS}/lib/node_modules/net-agent/smf/boot"));
    for _ in 0..2 {
        let done = site.runs(&boot, &["start"], &[]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    let rotated = std::fs::read_to_string(site.node.path("/etc/logadm.conf")).unwrap();
    let lines: Vec<&str> = rotated.lines().collect();
    assert!(
        lines[0].starts_with("net-agent -C 168 ") && lines[0].contains("$nodename"),
        "{rotated}"
    );
    assert!(lines.len() == 2 && lines[1].starts_with("smf_logs "), "{rotated}");
    assert!(site.node.path("/etc/bash/bash_completion.d/net-agent").symlink_metadata().is_ok());
}

#[test]
fn settings_and_uuids_stay_over_the_nodejs_agent_a_newer_one_and_back() {
    let site = Site::new();
    let upstream = of_upstream(site.dir.path(), "net-agent");
    site.installs(&upstream);
    let uuid = site.read("etc/net-agent");
    std::fs::write(site.agents("etc/net-agent.policy.json"), "{\"mode\": \"report\"}").unwrap();
    let holds = site.node.path("/var/db/net-agent/holds.json");
    std::fs::create_dir_all(holds.parent().unwrap()).unwrap();
    std::fs::write(&holds, "[]").unwrap();
    let setup = "svc:/smartdc/agent/net-agent-setup:default";
    for (file, is_ours) in [
        (package("net-agent", STAMP), true),
        (package("net-agent", NEWER), true),
        (package("net-agent", NEWER), true),
        (upstream.clone(), false),
        (package("net-agent", STAMP), true),
    ] {
        site.installs(&file);
        assert_eq!(site.read("etc/net-agent"), uuid, "{file}");
        assert_eq!(site.read("etc/net-agent.policy.json"), "{\"mode\": \"report\"}", "{file}");
        assert!(holds.exists(), "{file}");
        assert_eq!(site.state(AGENT).as_deref(), Some("online"), "{file}");
        assert_eq!(site.read("smf/net-agent.xml").contains("build/node"), !is_ours, "{file}");
        assert_eq!(site.state(setup).is_some(), !is_ours, "{file}: {setup}");
        assert_eq!(site.agents("smf/net-agent-setup.xml").exists(), !is_ours, "{file}");
        site.node.agents_for_cnapi().unwrap();
    }
    let instances = site.sapi.requests().iter().filter(|it| it.method == "POST").count();
    assert_eq!(instances, 1, "the instance of SAPI is not replaced");
    // Uninstalled, with what was configured left for whoever comes back.
    let done = site.apm(&["uninstall", "net-agent"], &[]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!((site.state(AGENT), site.agents("smf/net-agent.xml").exists()), (None, false));
    assert!(
        !site.agents("bin/net-agent").exists()
            && !site.node.path("/opt/smartdc/man/man8/net-agent.8").exists()
    );
    assert_eq!(site.read("etc/net-agent"), uuid);
}

#[test]
fn keys_in_the_old_place_of_migration_agent_are_moved() {
    let site = Site::new();
    let old = site.agents("etc/migration-agent");
    std::fs::create_dir_all(&old).unwrap();
    std::fs::write(old.join("agent.key"), "key").unwrap();
    site.installs(&package("migration-agent", STAMP));
    let key = site.node.path("/var/db/migration-agent/trust/agent.key");
    assert_eq!(std::fs::read_to_string(key).unwrap(), "key");
    assert_eq!(site.read("etc/migration-agent").trim().len(), 36);
    site.node.agents_for_cnapi().unwrap();
}

/// What is wrong, the path that answers so, and a word of the refusal.
fn odd_answers() -> Vec<(&'static str, &'static str, Action, &'static str)> {
    let ok = |body| Action::Status { status: 200, body: Some(body), retry_after: None };
    let service =
        |name: &str| json!({"uuid": "5e000000-0000-4000-8000-000000000001", "name": name});
    let services = "/services";
    vec![
        ("no service", services, ok(json!([])), "does not name one service"),
        (
            "two",
            services,
            ok(json!([service("net-agent"), service("net-agent")])),
            "does not name one",
        ),
        ("another", services, ok(json!([service("vm-agent")])), "does not name one"),
        (
            "no uuid",
            services,
            ok(json!([{"uuid": "$(touch /tmp/x)", "name": "net-agent"}])),
            "does not name one",
        ),
        ("lines", services, ok(json!([service("net-agent\nx")])), "does not name one"),
        (
            "an error",
            services,
            ok(json!({"code": "X", "message": "\u{1b}[2J"})),
            "does not name one",
        ),
        (
            "a text",
            services,
            Action::Garbage { text: "<html>\u{7}gateway".to_owned() },
            "does not name one",
        ),
        ("nothing", services, Action::EmptyBody, "does not name one"),
        ("a cut", services, Action::Cut, "does not answer"),
        (
            "down",
            "*",
            Action::Status { status: 503, body: None, retry_after: None },
            "does not answer",
        ),
        (
            "an instance of another",
            "/instances/*",
            ok(json!({"uuid": "x", "service_uuid": "y"})),
            "another service",
        ),
        (
            "no instance",
            "/instances",
            Action::Status { status: 409, body: None, retry_after: None },
            "does not take",
        ),
        (
            "forbidden",
            "/instances/*",
            Action::Status { status: 403, body: None, retry_after: None },
            "does not show",
        ),
    ]
}

#[test]
fn what_sapi_answers_is_refused_in_words_and_the_service_is_there_all_the_same() {
    let site = Site::new();
    let file = package("net-agent", STAMP);
    for (what, path, action, words) in odd_answers() {
        // A connection that is cut or a server that is down is tried ten times.
        let times = if words == "does not answer" { 10 } else { 1 };
        site.sapi.add_fault(Rule { path: Some(path.to_owned()), ..Rule::any(action) }.times(times));
        let done = site.apm(&["install", &file], &[]);
        assert_eq!(done.code, Some(1), "{what}: {}", done.stdout);
        let is_plain = done.stderr.chars().all(|it| it == '\n' || !it.is_control());
        assert!(done.stderr.contains(words) && is_plain, "{what}: {}", done.stderr);
        assert_eq!(site.state(AGENT).as_deref(), Some("online"), "{what}");
        assert!(!site.agents("etc/config-agent.d/net-agent.json").exists(), "{what}");
        site.node.agents_for_cnapi().unwrap();
    }
    // Once that is right, the same package again is all that it takes.
    site.installs(&file);
    assert!(site.agents("etc/config-agent.d/net-agent.json").exists());
    // Without SAPI nobody is asked.
    let asked = site.sapi.requests().len();
    let done = site.apm(&["install", &file], &[("NO_SAPI", "true")]);
    assert_eq!((done.code, site.sapi.requests().len()), (Some(0), asked), "{}", done.stderr);
}
