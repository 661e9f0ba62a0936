// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each manifest's method, started in a jail: the root of a simulated node with the images in it, the platform's
//! programs at the paths of its list and at no others, the shipped configuration, the default ports. Skipped with a
//! word where a user may not make namespaces.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use roxmltree::{Document, ParsingOptions};
use simnode::{CreateOptions, Node};

use super::super::common::program;
use super::table::{layout, packages};
use super::{block_on, deploy, filled, manifests, paths, run, text};
use testbed::process;

/// Longer than all methods take on a busy machine.
const LATE: Duration = Duration::from_secs(280);
/// The namespaces of the jail: root in it, mounts, a network and processes of its own.
const JAIL: [&str; 6] = ["-r", "-m", "-n", "-p", "-f", "--kill-child"];

/// The simulated programs of the platform, and what stands for them.
const SIMULATED: [(&str, &str); 9] = [
    ("/usr/sbin/zoneadm", "exec /node/bin/zoneadm \"$@\""),
    ("/usr/sbin/zfs", "exec /node/bin/zfs \"$@\""),
    ("/usr/sbin/sysevent", "exec /node/bin/sysevent \"$@\""),
    ("/usr/vm/sbin/fswatcher", "exec /node/bin/fswatcher \"$@\""),
    ("/usr/bin/kstat", "exec /node/platform/kstat \"$@\""),
    ("/usr/bin/svcs", "exec /node/platform/svcs \"$@\""),
    ("/usr/sbin/svcadm", "exec /node/platform/svcadm \"$@\""),
    ("/usr/sbin/vmadm", "exec /harness/testbed @vmadm \"$@\""),
    ("/usr/sbin/zpool", "echo 'zpool: not in this jail' >&2; exit 1"),
];

/// Where each configuration is that nobody ships as it is: filled in from the shipped template or example.
const CONFIGURED: [(&str, &str); 8] = [
    ("config/kvmd.json", "opt/smartdc/agents/etc/kvmd.config.json"),
    ("config/console.json", "opt/smartdc/agents/etc/console.config.json"),
    ("config/fleet-agent.json", "opt/smartdc/agents/etc/fleet-agent.config.json"),
    ("sapi/net-agent/template", "opt/smartdc/agents/etc/net-agent.config.json"),
    ("sapi/vm-agent/template", "opt/smartdc/agents/etc/vm-agent.config.json"),
    ("sapi/volapi/template", "opt/smartdc/volapi/etc/volapi.json"),
    ("config/migration-agent.json", "opt/smartdc/agents/etc/migration-agent.config.json"),
    ("config/migration-service.json", "opt/smartdc/migration-service/etc/config.json"),
];

/// The key of the node for the feed, which an operator draws. Its servers have no address in the jail, so that nothing
/// asks for the certificates of their authority.
const FEED_KEY: &str = "opt/smartdc/agents/etc/fleet-agent.nkey";

/// A service of a manifest.
struct Service {
    name: String,
    /// The start method's command line.
    start: String,
    seconds: String,
    /// The method is the program itself, which stays.
    is_child: bool,
}

fn service(manifest: &str) -> Service {
    let xml = text(manifest);
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&xml, options).unwrap();
    let all = || document.descendants();
    let start = all().find(|node| node.attribute("name") == Some("start")).unwrap();
    let of_start = |key: &str| start.attribute(key).unwrap().to_owned();
    Service {
        name: document.root_element().attribute("name").unwrap().to_owned(),
        start: of_start("exec"),
        seconds: of_start("timeout_seconds"),
        is_child: all().any(|node| node.attribute("value") == Some("child")),
    }
}

fn put(path: &Path, text: &str, mode: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Copies a program of this machine, and the libraries that it needs.
fn copy(root: &Path, from: &Path, to: &str) {
    let into = |to: &Path| root.join(to.strip_prefix("/").unwrap());
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir_all(into(to).parent().unwrap()).unwrap();
        std::fs::copy(from, into(to)).unwrap();
    };
    copy(from, Path::new(to));
    let listed = run("ldd", &[&from.to_string_lossy()]).stdout;
    for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(&Path::new(library).canonicalize().unwrap(), Path::new(library));
    }
}

/// Puts the images, the platform and the configuration into the node's root.
fn furnish(node: &Node) {
    let root = node.root();
    let platform = paths::platform();
    for (path, does) in SIMULATED {
        assert!(platform.contains(path), "{path} is not of the platform");
        put(&root.join(&path[1..]), &format!("#!/bin/sh\n{does}\n"), 0o755);
    }
    copy(&root, &program(), "/harness/testbed");
    for (from, to) in
        [("sh", "/bin/sh"), ("sleep", "/usr/bin/sleep"), ("timeout", "/harness/timeout")]
    {
        let from = ["/bin", "/usr/bin"].map(|dir| PathBuf::from(dir).join(from));
        copy(&root, from.iter().find(|path| path.exists()).unwrap(), to);
    }
    let smf = "SMF_EXIT_OK=0\nSMF_EXIT_ERR_FATAL=95\nSMF_EXIT_ERR_CONFIG=96\n";
    put(&root.join("lib/svc/share/smf_include.sh"), smf, 0o444);
    for folder in ["var/db", "var/run", "var/svc/log", "dev", "proc", "node", "log"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (place, source) in layout() {
        let place = root.join(place);
        if let Some(name) = source.strip_prefix("bin/") {
            // Not exec: the testbed's programs end with the process that started them.
            put(&place, &format!("#!/bin/sh\n/harness/testbed @{name} \"$@\"\n"), 0o555);
        } else if let Some(target) = source.strip_prefix("-> ") {
            std::os::unix::fs::symlink(target, place).unwrap();
        } else if let Some(file) =
            source.strip_prefix("deploy/").filter(|file| deploy(file).is_file())
        {
            let mode = deploy(file).metadata().unwrap().permissions().mode();
            put(&place, &text(file), mode | 0o555);
        }
    }
    CONFIGURED.iter().for_each(|(from, to)| put(&root.join(to), &filled(&text(from)), 0o644));
    let (testbed, key) = (program(), root.join(FEED_KEY));
    let args = ["@sdc-fleet", "key", &key.to_string_lossy()];
    let drawn = run(&testbed.to_string_lossy(), &args);
    assert_eq!(drawn.code, Some(0), "{}", drawn.stderr);
}

/// The lines that start a service and wait until it answers.
fn story(service: &Service) -> String {
    let Service { name, start, seconds, is_child } = service;
    let place =
        layout().into_iter().find(|(_, source)| *source == format!("bin/{name}")).unwrap().0;
    let ask = if name == "migration-service" { "status" } else { "ping" };
    let started = match is_child {
        true => format!("{start} >/log/{name} 2>&1 &"),
        false => format!(
            "/harness/timeout {seconds} {start} >/log/{name} 2>&1 || echo \"{name}: its method ended with $?\""
        ),
    };
    format!(
        "export SMF_FMRI=svc:/{name}:default\n{started}\nleft=60\n\
         until /{place} {ask} >/log/{name}.{ask} 2>&1; do\n\
         left=$((left - 1)); [ $left -gt 0 ] || {{ echo \"{name} does not answer\"; break; }}\nsleep 0.5\ndone\n"
    )
}

#[test]
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
fn each_manifests_method_returns_in_time_and_its_program_serves() {
    let can = run("unshare", &[&JAIL[..], &["sh", "-c", "ip link set lo up"]].concat());
    if can.code != Some(0) {
        eprintln!("skipped: no jail can be made here: {}", can.stderr.trim());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = CreateOptions {
        vms: 8,
        program: Some("/harness/testbed".into()),
        ..CreateOptions::new(dir.path().join("cn"))
    };
    let node = Node::create(&options).unwrap();
    furnish(&node);
    let sysinfo = std::fs::read_to_string(node.path("/tmp/.sysinfo.json")).unwrap();
    let sysinfo: serde_json::Value = serde_json::from_str(&sysinfo).unwrap();
    // vminfod is first, as SMF starts it; console asks the others.
    let mut services: Vec<Service> = manifests().iter().map(|name| service(name)).collect();
    services.sort_by_key(|service| (service.name != "vminfod", service.name == "console"));
    assert!(services.len() >= 8);
    let lines: String = services.iter().map(story).collect();
    put(
        &node.path("/story"),
        &format!("PATH=/usr/sbin:/usr/bin; export PATH\n{lines}echo 'the end'\n"),
        0o644,
    );
    let set_up = format!(
        "set -e\ncd '{}'\nip link set lo up\nip address add {}/24 dev lo\nmount --bind .. node\nmount --rbind /dev dev\n\
         mount -t proc proc proc\nexec chroot . /bin/sh /story\n",
        node.root().display(),
        sysinfo["Admin IP"].as_str().unwrap()
    );
    let jail = [&JAIL[..], &["sh", "-c", &set_up]].concat();
    let done = block_on(process::run(Path::new("/usr/bin/unshare"), &jail, LATE));
    let logs = || {
        let read = |name: &str| {
            std::fs::read_to_string(node.path(&format!("/log/{name}"))).unwrap_or_default()
        };
        services
            .iter()
            .map(|it| format!("--- {}\n{}\n", it.name, read(&it.name)))
            .collect::<String>()
    };
    assert_eq!(done.stdout, "the end\n", "{}{}", done.stderr, logs());
}

/// A program that has no alert and no scrape job, and why.
const UNWATCHED: [(&str, &str); 1] = [("console", "the page is optional")];

/// config-agent writes no file of these.
const OF_THE_PLATFORM: [&str; 3] = ["vminfod", "kvmd", "console"];

#[test]
fn each_program_of_a_manifest_is_packed_configured_collected_watched_rotated_and_documented() {
    let (jobs, alerts, page) =
        (text("metrics/prometheus.yml"), text("metrics/alerts.yml"), text("../docs/cli.md"));
    let ports = text("DATACENTER.md");
    let logs = packages().into_iter().flat_map(|package| package.files());
    let logs = logs.filter_map(|file| file.source.strip_prefix("deploy/").map(str::to_owned));
    let rotated: String =
        logs.filter(|file| file.starts_with("log/")).map(|it| text(&it)).collect();
    for manifest in manifests() {
        let Service { name, .. } = service(&manifest);
        let shipped = layout();
        let has = |source: &str| shipped.values().any(|known| known == source);
        assert!(
            has(&format!("bin/{name}")) && has(&format!("deploy/{manifest}")),
            "{name}: layout"
        );
        for help in ["man", "completions bash"] {
            assert!(has(&format!("run/{name} {help}")), "{name}: {help}");
        }
        let example = |kind: &str| has(&format!("deploy/config/{name}.{kind}"));
        let has_example = ["json", "policy.json", "kit.json"].into_iter().any(example);
        assert!(has_example, "{name}: an example");
        for file in ["manifest.json", "template"] {
            let is_shipped = has(&format!("deploy/sapi/{name}/{file}"));
            assert_ne!(is_shipped, OF_THE_PLATFORM.contains(&&*name), "{name}: SAPI's {file}");
        }
        assert!(page.contains(&format!("\n## {name}\n")), "{name}: docs/cli.md");
        assert!(ports.contains(&format!("\n| {name} | ")), "{name}: DATACENTER.md");
        let log = |line: &str| {
            line.contains("/var/svc/log/") && line.contains(&format!("-{name}:default.log"))
        };
        let zones = packages().into_iter().filter(|package| package.kind == "zone");
        let is_of_a_zone = zones.map(|zone| zone.name).any(|zone| zone == name);
        // setup.sh of a zone has it rotated.
        assert!(is_of_a_zone || rotated.lines().any(log), "{name}: its log is not rotated");
        if UNWATCHED.iter().all(|(known, _)| *known != name) {
            assert!(jobs.contains(&format!("- job_name: {name}\n")), "{name}: prometheus.yml");
            assert!(alerts.contains(&format!("up{{job=\"{name}\"}} == 0")), "{name}: alerts.yml");
        }
    }
}
