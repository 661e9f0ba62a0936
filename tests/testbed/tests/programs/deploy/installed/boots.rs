// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node's months: the Node.js agents, ours, a boot, another platform image, upstream's agents shar, ours again by our
//! shar, and none. After each step a table says which agents run, whose they are and with which settings, and what the
//! node must never lose is there.

use std::path::Path;

use simnode::NodeKind;

use super::super::packed::STAMP;
use super::super::{deploy, run};
use super::site::{ADOPTED, NEWER, Site, make_executable, of_upstream, out, package};

const MODE: &str = "{\"mode\": \"report\"}";

/// What an operator and the agents have put on the node.
const KEPT: [(&str, &str); 5] = [
    ("/opt/smartdc/agents/etc/net-agent.policy.json", MODE),
    ("/opt/smartdc/agents/etc/vm-agent.policy.json", MODE),
    ("/var/db/net-agent/holds.json", "[\"a hold\"]"),
    ("/var/db/migration-agent/trust/agent.key", "a key"),
    ("/var/db/migration-agent/migrations/m.json", "a record"),
];

/// Whose an agent is that SMF would run, by its start method.
fn owner(site: &Site, name: &str) -> &'static str {
    let fmri = format!("svc:/smartdc/agent/{name}:default");
    match site.state(&fmri).as_deref() {
        None => return "none",
        Some("online") => {}
        Some(_) => return "down",
    }
    let done = site.runs(&site.node.platform("svcprop"), &["-p", "start/exec", &fmri], &[]);
    if done.stdout.contains("build/node/bin/node") { "Node.js" } else { "ours" }
}

/// The table: the agents, whose each is, and the mode of those that have a policy.
fn table(site: &Site) -> String {
    let row = |name: &str| {
        let policy = site.agents(&format!("etc/{name}.policy.json"));
        let mode = match std::fs::read_to_string(policy) {
            Ok(text) if text.contains("report") => " report",
            Ok(_) => " on",
            Err(_) => "",
        };
        format!("{name}: {}{mode}", owner(site, name))
    };
    ADOPTED.map(row).join(", ")
}

/// Boots the node: what the platform has is laid, and our method of the boot runs as it is.
fn boots(site: &Site) {
    let mut laid = false;
    let boot = site.node.boot(|start| {
        if !laid {
            site.lay();
            laid = true;
        }
        let Some(method) = start.exec.strip_suffix("/smf/boot start") else { return Ok(true) };
        let method = site.node.path(&format!("{method}/smf/boot"));
        Ok(site.runs(&method, &["start"], &[]).code == Some(0))
    });
    let boot = boot.unwrap();
    assert_eq!(boot.refused, Vec::new());
}

/// A folder as upstream's agents shar unpacks it.
fn upstreams_shar(dir: &Path) -> std::path::PathBuf {
    let shar = dir.join("shar");
    std::fs::create_dir_all(shar.join("agents")).unwrap();
    for name in ["cn-agent", "net-agent", "vm-agent"] {
        let file = of_upstream(dir, name);
        std::fs::copy(&file, shar.join("agents").join(Path::new(&file).file_name().unwrap()))
            .unwrap();
    }
    let script = "#!/bin/bash\nset -e\nfor file in agents/*.tgz; do \
                  $HUB_ROOT/opt/smartdc/agents/bin/apm install $PWD/$file; done\n\
                  svcadm restart svc:/smartdc/agent/cn-agent:default\n";
    std::fs::write(shar.join("install.sh"), script).unwrap();
    make_executable(&shar.join("install.sh"));
    shar
}

/// Makes a shar by `deploy/shar`; returns its file.
fn shar(site: &Site, upstream: Option<&Path>) -> String {
    let out = out();
    // Not into the packages of the other tests.
    let own = site.dir.path().join("out");
    std::fs::create_dir_all(&own).unwrap();
    for entry in std::fs::read_dir(&out).unwrap().flatten() {
        if entry.path().extension().is_some_and(|it| it == "tgz") {
            std::fs::copy(entry.path(), own.join(entry.file_name())).unwrap();
        }
    }
    let mut args =
        vec![deploy("shar").to_string_lossy().into_owned(), own.to_string_lossy().into_owned()];
    args.extend(upstream.map(|it| it.to_string_lossy().into_owned()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let made = run("bash", &args);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    made.stdout.trim().to_owned()
}

fn runs_shar(site: &Site, file: &Path) {
    let temporary = site.dir.path().to_string_lossy().into_owned();
    let done =
        site.runs(Path::new("/bin/bash"), &[&file.to_string_lossy()], &[("TMPDIR", &temporary)]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// What is checked after each step, whatever the table says.
fn is_whole(site: &Site, step: &str, uuids: &[String]) {
    for (place, text) in KEPT {
        assert_eq!(
            std::fs::read_to_string(site.node.path(place)).unwrap(),
            text,
            "{step}: {place}"
        );
    }
    let now: Vec<String> = ADOPTED.iter().map(|name| site.read(&format!("etc/{name}"))).collect();
    assert_eq!(now, uuids, "{step}: the instances' uuids");
    site.node.agents_for_cnapi().unwrap_or_else(|what| panic!("{step}: {what}"));
}

#[test]
fn agents_and_what_they_know_outlive_boots_platforms_and_upstreams_shar() {
    for kind in [NodeKind::Compute, NodeKind::Headnode] {
        let mut site = Site::of(kind);
        let upstream = upstreams_shar(site.dir.path());
        runs_upstream(&site, &upstream);
        assert_eq!(
            table(&site),
            "net-agent: Node.js, vm-agent: Node.js, migration-agent: none, fleet-agent: none"
        );

        for (place, text) in KEPT {
            let path = site.node.path(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        ADOPTED.iter().for_each(|name| site.installs(&package(name, STAMP)));
        site.installs(&package("hub", STAMP));
        assert_eq!(site.configures().failed, Vec::<String>::new());
        let uuids: Vec<String> =
            ADOPTED.iter().map(|name| site.read(&format!("etc/{name}"))).collect();
        let ours = "net-agent: ours report, vm-agent: ours report, migration-agent: ours, fleet-agent: ours";
        let is = |site: &Site, step: &str, wanted: &str| {
            assert_eq!(table(site), wanted, "{kind:?}: {step}");
            is_whole(site, step, &uuids);
        };
        is(&site, "installed", ours);

        boots(&site);
        is(&site, "booted", ours);
        assert!(site.node.path("/etc/bash/bash_completion.d/net-agent").symlink_metadata().is_ok());
        let rotated = std::fs::read_to_string(site.node.path("/etc/logadm.conf")).unwrap();
        assert!(
            rotated.contains("net-agent -C 168") && rotated.ends_with("/var/svc/log/*.log\n"),
            "{rotated}"
        );

        site.node.assign_platform("20260901T000000Z").unwrap();
        boots(&site);
        is(&site, "another platform", ours);

        // Without a word, the Node.js agents are back; those that upstream does not know stay.
        runs_upstream(&site, &upstream);
        let theirs = "net-agent: Node.js report, vm-agent: Node.js report, migration-agent: ours, fleet-agent: ours";
        is(&site, "upstream's shar", theirs);
        boots(&site);
        is(&site, "upstream's shar and a boot", theirs);

        runs_shar(&site, Path::new(&shar(&site, None)));
        is(&site, "our shar", ours);
        boots(&site);
        is(&site, "our shar and a boot", ours);
        assert!(site.state("svc:/smartdc/agent/net-agent-setup:default").is_none());

        // For new nodes: upstream's shar with two agents of ours in it.
        runs_upstream(&site, &upstream);
        runs_shar(&site, Path::new(&shar(&site, Some(&upstream))));
        is(&site, "upstream's shar with ours in it", ours);
        assert_eq!(owner(&site, "cn-agent"), "Node.js");
        site.installs(&package("net-agent", NEWER));
        is(&site, "a newer one", ours);

        for name in ADOPTED {
            let done = site.apm(&["uninstall", name], &[]);
            assert_eq!(done.code, Some(0), "{}", done.stderr);
        }
        boots(&site);
        is(
            &site,
            "uninstalled",
            "net-agent: none report, vm-agent: none report, migration-agent: none, fleet-agent: none",
        );
    }
}

fn runs_upstream(site: &Site, shar: &Path) {
    let script = format!("cd '{}' && ./install.sh", shar.display());
    let done = site.runs(Path::new("/bin/bash"), &["-c", &script], &[]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}
