// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is in `deploy/`: the manifests obey SMF's document type, name only what the image
//! contains, the image installs into an empty root, and a configuration change never enables an
//! agent that an operator disabled.

mod installed;
#[cfg(target_os = "linux")] // namespaces
mod jail;
mod packed;
mod paths;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use roxmltree::{Document, Node, ParsingOptions};
use testbed::process::{self, Finished};

use self::table::layout;
use super::common::node;

/// Longer than packing the image takes on a busy machine.
const LATE: Duration = Duration::from_secs(900);

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn manifests() -> Vec<String> {
    let files = std::fs::read_dir(deploy("smf")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = files
        .map(|name| format!("smf/{}", name.to_string_lossy()))
        .filter(|name| name.ends_with(".xml"))
        .collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    names
}

/// Element, required attributes, and its children in order with how often each may stand.
type Rule = (&'static str, &'static [&'static str], &'static [(&'static str, char)]);

/// The rules of SMF's document type `service_bundle` for the elements used here, in our words.
const RULES: [Rule; 15] = [
    ("service_bundle", &["type", "name"], &[("service", '+')]),
    (
        "service",
        &["name", "version", "type"],
        &[
            ("create_default_instance", '?'),
            ("single_instance", '?'),
            ("restarter", '?'),
            ("dependency", '*'),
            ("dependent", '*'),
            ("method_context", '?'),
            ("exec_method", '*'),
            ("property_group", '*'),
            ("instance", '*'),
            ("stability", '?'),
            ("template", '?'),
        ],
    ),
    ("create_default_instance", &["enabled"], &[]),
    ("single_instance", &[], &[]),
    ("dependency", &["name", "grouping", "restart_on", "type"], &[("service_fmri", '+')]),
    ("dependent", &["name", "grouping", "restart_on"], &[("service_fmri", '+')]),
    ("service_fmri", &["value"], &[]),
    ("exec_method", &["type", "name", "exec", "timeout_seconds"], &[("method_context", '?')]),
    ("method_context", &[], &[("method_credential", '?')]),
    ("method_credential", &["user"], &[]),
    ("property_group", &["name", "type"], &[("propval", '*')]),
    ("propval", &["name", "value"], &[]),
    ("stability", &["value"], &[]),
    ("template", &[], &[("common_name", '1')]),
    ("common_name", &[], &[("loctext", '+')]),
];

/// Attributes that are one of a few words.
const WORDS: [(&str, &str, &[&str]); 6] = [
    ("service_bundle", "type", &["manifest", "profile", "archive"]),
    ("service", "type", &["service", "restarter", "milestone"]),
    ("dependency", "grouping", &["require_all", "require_any", "exclude_all", "optional_all"]),
    ("dependency", "restart_on", &["error", "restart", "refresh", "none"]),
    ("exec_method", "type", &["method", "monitor"]),
    ("stability", "value", &["Standard", "Stable", "Evolving", "Unstable", "External", "Obsolete"]),
];

fn faults(node: Node<'_, '_>, found: &mut Vec<String>) {
    let name = node.tag_name().name();
    if name == "loctext" {
        return;
    }
    let Some((_, attributes, order)) = RULES.iter().find(|rule| rule.0 == name) else {
        found.push(format!("<{name}> is not an element of a manifest"));
        return;
    };
    for attribute in attributes.iter().filter(|attribute| node.attribute(**attribute).is_none()) {
        found.push(format!("<{name}> has no {attribute}"));
    }
    for (_, attribute, words) in WORDS.iter().filter(|word| word.0 == name) {
        let value = node.attribute(*attribute).unwrap_or_default();
        if !words.contains(&value) {
            found.push(format!("<{name} {attribute}={value:?}> is none of {words:?}"));
        }
    }
    let children: Vec<Node<'_, '_>> = node.children().filter(Node::is_element).collect();
    let mut last = 0;
    for child in &children {
        let child = child.tag_name().name();
        match order.iter().position(|(known, _)| *known == child) {
            None => found.push(format!("<{child}> may not stand in <{name}>")),
            Some(at) if at < last => found.push(format!("<{child}> is too late in <{name}>")),
            Some(at) => last = at,
        }
    }
    for (known, often) in *order {
        let count = children.iter().filter(|child| child.tag_name().name() == *known).count();
        if (matches!(often, '1' | '+') && count == 0) || (matches!(often, '1' | '?') && count > 1) {
            found.push(format!("<{name}> has {count} of <{known}>"));
        }
    }
    children.into_iter().for_each(|child| faults(child, found));
}

fn check(xml: &str) -> Vec<String> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = match Document::parse_with_options(xml, options) {
        Ok(document) => document,
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    faults(document.root_element(), &mut found);
    found
}

#[test]
fn manifests_obey_the_document_type() {
    for name in manifests().into_iter().chain(["smf/boot.xml.in".to_owned()]) {
        let xml = text(&name);
        assert_eq!(check(&xml), Vec::<String>::new(), "{name}");
        // The rules can fail: damage of each kind is found.
        for (good, bad) in [
            ("type=\"manifest\"", "type=\"poem\""),
            ("timeout_seconds", "timeout"),
            ("<single_instance/>", "<single_instance/><single_instance/>"),
            ("<stability", "<dependency/><stability"),
            ("</service>", ""),
        ] {
            assert_ne!(check(&xml.replacen(good, bad, 1)), Vec::<String>::new(), "{name}: {bad}");
        }
    }
}

#[test]
fn services_have_the_names_and_limits_of_the_platform() {
    let service = |name: &str| {
        let xml = text(name);
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(&xml, options).unwrap();
        let find = |tag: &str, key: &str, value: &str, wanted: &str| {
            let mut all = document.descendants().filter(|node| node.has_tag_name(tag));
            let found = all.find(|node| value.is_empty() || node.attribute(key) == Some(value));
            found.and_then(|node| node.attribute(wanted)).unwrap_or_default().to_owned()
        };
        [
            find("service", "", "", "name"),
            find("exec_method", "name", "start", "timeout_seconds"),
            find("create_default_instance", "", "", "enabled"),
        ]
    };
    assert_eq!(service("smf/vminfod.xml"), ["system/smartdc/vminfod", "300", "true"]);
    // What a boot imports is enabled by its manifest alone: "not wanted yet" is said by the configuration.
    assert_eq!(service("smf/net-agent.xml"), ["smartdc/agent/net-agent", "30", "true"]);
    assert_eq!(service("smf/vm-agent.xml"), ["smartdc/agent/vm-agent", "30", "true"]);
    assert_eq!(
        service("smf/migration-agent.xml"),
        ["smartdc/agent/migration-agent", "120", "true"]
    );
    assert_eq!(service("smf/fleet-agent.xml"), ["smartdc/agent/fleet-agent", "30", "true"]);
    assert_eq!(service("smf/kvmd.xml"), ["system/smartdc/kvmd", "30", "true"]);
    assert_eq!(service("smf/console.xml"), ["system/smartdc/console", "30", "true"]);
    assert_eq!(service("smf/boot.xml.in"), ["smartdc/agent/@@NAME@@-boot", "60", "true"]);
    assert_eq!(
        service("smf/migration-service.xml"),
        ["smartdc/site/migration-service", "30", "false"]
    );
    assert_eq!(service("smf/volapi.xml"), ["smartdc/site/volapi", "30", "false"]);
}

/// Words of a text that are paths below one of the image's folders.
fn paths(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`<>()&;".contains(c));
    let ours = [
        "/usr/vm/",
        "/opt/smartdc/agents/",
        "/opt/smartdc/volapi/",
        "/opt/smartdc/migration-service/",
        "/etc/vminfod",
        "/etc/console",
    ];
    let paths = words.filter(|word| ours.iter().any(|folder| word.starts_with(folder)));
    paths.map(str::to_owned).collect()
}

#[test]
fn manifests_and_methods_name_only_what_the_image_has() {
    let layout = layout();
    // config-agent or an operator writes these.
    let elsewhere = [
        "agents/etc/kvmd.config",
        "agents/etc/console.config",
        "agents/etc/net-agent.config",
        "agents/etc/vm-agent.config",
        "agents/etc/fleet-agent.config",
        "agents/etc/migration-agent.config",
        "volapi/etc/volapi",
        "migration-service/etc/config",
    ]
    .map(|it| format!("/opt/smartdc/{it}.json"));
    let methods = layout.values().filter(|source| source.starts_with("deploy/smf/method/"));
    let methods = methods.map(|source| source.trim_start_matches("deploy/").to_owned());
    let configs = ["config/vminfod.json", "config/vminfod.kit.json"].map(str::to_owned);
    let templates = WITH_TEMPLATES.map(|program| format!("sapi/{program}/manifest.json"));
    let mut seen = 0;
    for name in manifests().into_iter().chain(methods).chain(configs).chain(templates) {
        for path in paths(&text(&name)).iter().filter(|path| !elsewhere.contains(path)) {
            assert!(layout.contains_key(path.trim_start_matches('/')), "{name} names {path}");
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen} paths");
    for source in layout.values().filter(|source| source.starts_with("deploy/")) {
        assert!(deploy(source.trim_start_matches("deploy/")).exists(), "{source}");
    }
}

/// The programs whose configuration config-agent writes.
const WITH_TEMPLATES: [&str; 6] =
    ["net-agent", "vm-agent", "migration-agent", "fleet-agent", "volapi", "migration-service"];

#[test]
fn the_templates_make_files_that_the_programs_accept() {
    WITH_TEMPLATES.into_iter().for_each(accepts_its_template);
    for (program, example) in [
        (&["@volapi"][..], "volapi"),
        (&["@migration-service", "serve"], "migration-service"),
        (&["@migration-agent"], "migration-agent"),
    ] {
        let example = deploy(&format!("config/{example}.json")).to_string_lossy().into_owned();
        accepts(&[program, &["--check-config", "--config", &example]].concat());
    }
}

fn accepts(args: &[&str]) {
    let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
    let done = block_on(process::run(Path::new(env!("CARGO_BIN_EXE_testbed")), &args, LATE));
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert!(!done.stderr.contains("unknown key"), "{}", done.stderr);
}

/// A template as config-agent fills it in.
fn filled(template: &str) -> String {
    let filled = template
        .replace("{{{vmapi_domain}}}", "vmapi.dc.example.com")
        .replace("{{{napi_domain}}}", "napi.dc.example.com")
        .replace("{{{cnapi_domain}}}", "cnapi.dc.example.com")
        .replace("{{{papi_domain}}}", "papi.dc.example.com")
        .replace("{{{imgapi_domain}}}", "imgapi.dc.example.com")
        .replace("{{{workflow_domain}}}", "workflow.dc.example.com")
        .replace("{{{migration_service_url}}}", "https://migration-service.dc.example.com:5320")
        .replace("{{{migration_upstream_vmapi}}}", "http://vmapi-real.dc.example.com")
        .replace("{{{fleet_servers}}}", "\"tls://nats0.example.com:4222\"")
        .replace("{{{auto.ADMIN_IP}}}", "127.0.0.1")
        .replace("{{{HUB_DATA_IN_USE}}}", "")
        .replace("{{{auto.ZONENAME}}}", "564d0b8e-6099-4c50-a1b1-0f0b30000003")
        .replace("{{{auto.SERVER_UUID}}}", "564d0b8e-6099-4c50-a1b1-0f0b30000001")
        .replace("{{{ufds_admin_uuid}}}", "930896af-bf8c-48d4-885c-6573a94b1853")
        .replace("{{{auto.INSTANCE_UUID}}}", "564d0b8e-6099-4c50-a1b1-0f0b30000002");
    assert!(!filled.contains("{{"), "{filled}");
    filled
}

fn accepts_its_template(agent: &str) {
    let filled = filled(&text(&format!("sapi/{agent}/template")));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.config.json");
    std::fs::write(&file, filled).unwrap();
    let (this, file) = (format!("@{agent}"), file.to_string_lossy().into_owned());
    let policy = deploy(&format!("config/{agent}.policy.json"));
    let policy = policy.exists().then(|| policy.to_string_lossy().into_owned());
    let policy = policy.iter().flat_map(|policy| ["--policy", policy]);
    let serve = (agent == "migration-service").then_some("serve");
    let args = [&*this].into_iter().chain(serve).chain(["--check-config", "--config", &file]);
    let args = args.chain(policy);
    accepts(&args.collect::<Vec<_>>());
}

#[test]
fn a_configuration_change_restarts_an_online_agent_and_enables_none() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path(), 0);
    for (program, service) in [
        ("net-agent", "agent/net-agent"),
        ("vm-agent", "agent/vm-agent"),
        ("fleet-agent", "agent/fleet-agent"),
        ("migration-agent", "agent/migration-agent"),
        ("volapi", "site/volapi"),
        ("migration-service", "site/migration-service"),
    ] {
        let fmri = format!("svc:/smartdc/{service}:default");
        let configured = || {
            let method = dir.path().join(format!("{program}-configured"));
            std::fs::copy(deploy("smf/method/configured"), &method).unwrap();
            let path = format!("PATH={}:/usr/bin:/bin", node.dir().join("platform").display());
            let done = run("/usr/bin/env", &[&path, "sh", &method.to_string_lossy()]);
            assert_eq!(done.code, Some(0), "{fmri}: {}{}", done.stdout, done.stderr);
            node.instance(&fmri).unwrap()
        };
        assert_eq!(configured(), None, "it is not installed");
        for state in ["disabled", "offline", "maintenance", "online"] {
            node.set_instance(&fmri, state).unwrap();
            let now = configured().unwrap();
            assert_eq!(
                (&*now.state, now.restarts),
                (state, u32::from(state == "online")),
                "{fmri}"
            );
        }
    }
}

fn run(program: &str, args: &[&str]) -> Finished {
    let path = match program.contains('/') {
        true => PathBuf::from(program),
        false => Path::new("/usr/bin").join(program),
    };
    block_on(process::run(&path, args, LATE))
}

fn block_on<T>(work: impl Future<Output = std::io::Result<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work).unwrap()
}
