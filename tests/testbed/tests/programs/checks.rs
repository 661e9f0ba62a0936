// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub check` on the lab's node, which is as believed, and in worlds in which one belief is false.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use daemon::Shutdown;
use daemon::http::{Limits, Router, Server, listen, ok};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use testbed::process::Finished;

use super::common::{self, Lab};

impl Lab {
    /// Looks at the node; what this configuration says takes the place of what the others say.
    async fn check(&self, world: &Value, scratch: &Path) -> (Finished, Value) {
        let own = scratch.join("world.json");
        std::fs::write(&own, world.to_string()).unwrap();
        let (own, report) = (own.display().to_string(), scratch.join("report.json"));
        let (hub, report_path) = (self.config(), report.display().to_string());
        let services = json!({"napi": {"url": self.centre().napi.url()}, "vmapi": {"url": self.centre().vmapi.url()}});
        let agents = scratch.join("services.json");
        std::fs::write(&agents, services.to_string()).unwrap();
        let agents = agents.display().to_string();
        let args = [
            "@hub",
            "check",
            "--config",
            &own,
            "--config",
            &hub,
            "--config",
            &agents,
            "--watch",
            "300ms",
            "--report",
            &report_path,
        ];
        let done = common::run(&args).await;
        let report = std::fs::read_to_string(report).unwrap_or_default();
        (done, serde_json::from_str(&report).unwrap_or_default())
    }

    fn tool(&self, name: &str) -> String {
        self.node().tool(name).display().to_string()
    }
}

/// The numbers of the beliefs with this verdict.
fn with(report: &Value, verdict: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    let of = findings.filter(|finding| finding["verdict"] == verdict);
    of.map(|finding| finding["belief"].as_str().unwrap().to_owned()).collect()
}

/// Writes a program that does this.
fn script(scratch: &Path, name: &str, text: &str) -> String {
    let path = scratch.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Copies the files of a node.
fn copied(root: &Path, scratch: &Path) -> PathBuf {
    let copy = scratch.join("root");
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        std::fs::create_dir_all(copy.join(&folder)).unwrap();
        for entry in std::fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false if entry.file_type().unwrap().is_file() => {
                    let _bytes = std::fs::copy(root.join(&path), copy.join(&path)).unwrap();
                }
                false => {} // the hub's socket
            }
        }
    }
    copy
}

#[tokio::test] // B1–B6, B8–B10, B12–B14, B16, B18–B21
async fn the_labs_node_is_as_believed_and_the_report_names_nobody() {
    let lab = Lab::of(4).await;
    let scratch = tempfile::tempdir().unwrap();
    let (done, report) = lab.check(&json!({}), scratch.path()).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(with(&report, "false").is_empty(), "{report:#}");
    // Nobody runs vmadm, zpool and SMF below this root, and no configuration names the other services.
    assert_eq!(
        with(&report, "unknown"),
        ["B7", "B11", "B15", "B27", "B28", "B25", "B26", "B22", "B23", "B24", "B29"]
    );
    let text = report.to_string();
    for vm in lab.vms().await {
        for secret in [common::text(&vm, "uuid"), common::text(&vm, "alias"), "127.0.0.1"] {
            assert!(!text.contains(secret), "{secret} is in the report");
        }
    }
    lab.stop().await;
}

#[tokio::test] // B1–B28
async fn a_belief_that_is_false_is_named() {
    let lab = Lab::of(4).await;
    let dir = tempfile::tempdir().unwrap();
    let (zoneadm, zfs, kstat) = (lab.tool("zoneadm"), lab.tool("zfs"), lab.tool("kstat"));
    let (sysevent, fswatcher) = (lab.tool("sysevent"), lab.tool("fswatcher"));
    let mut nth = 0;
    let mut command = |name: &str, text: String| {
        nth += 1;
        json!({"commands": {name: script(dir.path(), &format!("{name}-{nth}"), &text)}})
    };
    let node = lab.node().root().to_path_buf();
    let mut copy = 0;
    let mut files = |change: &dyn Fn(&Path)| {
        copy += 1;
        let root = copied(&node, &dir.path().join(format!("copy-{copy}")));
        change(&root);
        json!({"root": root})
    };
    let xml =
        std::fs::read_dir(node.join("etc/zones")).unwrap().map(|entry| entry.unwrap().file_name());
    let xml = xml.into_iter().find(|name| name.to_string_lossy().ends_with(".xml")).unwrap();
    let append = |path: PathBuf, text: &str| {
        let old = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, old + text).unwrap();
    };
    let zone = "00000000-0000-4000-8000-00000000dead";
    let (napi, vmapi) = (lab.centre().napi.url(), lab.centre().vmapi.url());
    let (shutdown, any) = (Shutdown::new(), (std::net::Ipv4Addr::LOCALHOST, 0).into());
    let (listener, agent) = listen(any).await.unwrap();
    let expired =
        json!({"certificate": {"until": "2026-01-01T00:00:00Z", "needs": "it has expired"}});
    let answer = move || std::future::ready(ok(&expired));
    let server = Server::new(Limits::default(), shutdown.clone()).under_any_name();
    let serving = tokio::spawn(server.serve(listener, Router::new().fallback(answer)));
    let worlds: Vec<(&str, &str, Value)> = vec![
        ("a program is not there", "B1", json!({"commands": {"zfs": "/nonexistent/zfs"}})),
        (
            "a listing that was cut off",
            "B2",
            command("zoneadm", format!("{zoneadm} \"$@\" | head -c -9")),
        ),
        (
            "a row of three columns",
            "B2",
            command("zoneadm", format!("{zoneadm} \"$@\" | sed '2s/:running.*//'")),
        ),
        ("zoneadm fails", "B2", command("zoneadm", "exit 1".to_owned())),
        ("no global zone", "B2", command("zoneadm", format!("{zoneadm} \"$@\" | sed 1d"))),
        (
            "a zone that is listed alone",
            "B3",
            command(
                "zoneadm",
                format!(
                    "{zoneadm} \"$@\"; echo '-:{zone}:installed:/zones/{zone}:{zone}:lx:excl:99'"
                ),
            ),
        ),
        (
            "a zone that the index has alone",
            "B3",
            files(&|root| {
                append(
                    root.join("etc/zones/index"),
                    &format!("{zone}:installed:/zones/{zone}:{zone}\n"),
                )
            }),
        ),
        (
            "a configuration that was cut off",
            "B4",
            files(&|root| {
                std::fs::write(root.join("etc/zones").join(&xml), "<zone name=").unwrap();
            }),
        ),
        (
            "tags that are no object",
            "B5",
            files(&|root| {
                let zone = root.join("zones").join(xml.to_string_lossy().trim_end_matches(".xml"));
                std::fs::create_dir_all(zone.join("config")).unwrap();
                std::fs::write(zone.join("config/tags.json"), "[").unwrap();
            }),
        ),
        (
            "a new main board",
            "B25",
            files(&|root| {
                std::fs::create_dir_all(root.join("var/db/vm-agent")).unwrap();
                let kept = json!({"version": 1, "cn_uuid": zone}).to_string();
                std::fs::write(root.join("var/db/vm-agent/memory.json"), kept).unwrap();
            }),
        ),
        ("kstats that are no JSON", "B6", command("kstat", "echo zones:0:x".to_owned())),
        (
            "kstats of no zone",
            "B6",
            command("kstat", format!("{kstat} \"$@\" | sed -n '1,2p;$p' | sed '2s/,$//'")),
        ),
        (
            "sysinfo without a uuid",
            "B8",
            files(&|root| {
                std::fs::write(root.join("tmp/.sysinfo.json"), r#"{"Hostname": "x"}"#).unwrap();
            }),
        ),
        (
            "a row in a dataset's field",
            "B9",
            command("zfs", format!("{zfs} \"$@\" | sed '2s/\\t/\\n/'")),
        ),
        ("a dataset that comes twice", "B9", command("zfs", format!("{zfs} \"$@\" | sed 2p"))),
        (
            "snapshots that cannot be listed",
            "B10",
            command(
                "zfs",
                format!(
                    "case \"$*\" in *snapshot,*|*'-t snapshot'*) exit 2 ;; esac; exec {zfs} \"$@\""
                ),
            ),
        ),
        (
            "pools in words",
            "B11",
            command("zpool", "printf 'zones\\t1.5T\\t1T\\tONLINE\\n'".to_owned()),
        ),
        (
            "events that never begin",
            "B12",
            command(
                "sysevent",
                format!("case \"$*\" in *status*) exec sleep 60 ;; esac; exec {sysevent} \"$@\""),
            ),
        ),
        (
            "events that are no JSON",
            "B13",
            command(
                "sysevent",
                format!(
                    "case \"$*\" in *EC_zfs*) echo hello; exec sleep 60 ;; esac; exec {sysevent} \"$@\""
                ),
            ),
        ),
        (
            "a helper that cannot watch",
            "B14",
            command("fswatcher", format!("{fswatcher} \"$@\" | sed -u 's/SUCCESS/FAIL/'")),
        ),
        ("another net-agent in the place of ours", "B27", {
            let mut world = files(&|root| {
                let etc = root.join("opt/smartdc/agents/etc");
                std::fs::create_dir_all(&etc).unwrap();
                std::fs::write(etc.join("net-agent.policy.json"), "{}").unwrap();
            });
            let text = "echo '/a/node/bin/node\\\\ /a/net-agent.js'";
            world["commands"] = json!({"svcprop": script(dir.path(), "svcprop", text)});
            world
        }),
        (
            "a manifest that no boot imports",
            "B28",
            files(&|root| {
                let smf = root.join("opt/smartdc/agents/lib/node_modules/net-agent/smf");
                std::fs::create_dir_all(smf.join("manifests")).unwrap();
                std::fs::write(smf.join("boot"), "").unwrap();
                std::fs::write(smf.join("manifests/net-agent.xml.in"), "").unwrap();
            }),
        ),
        (
            "a service in maintenance",
            "B15",
            command("svcs", "echo 'maintenance svc:/system/smartdc/vminfod:default'".to_owned()),
        ),
        (
            "two of a service",
            "B15",
            command(
                "svcs",
                "for i in default old; do echo \"online svc:/system/smartdc/vminfod:$i\"; done"
                    .to_owned(),
            ),
        ),
        (
            "another program on the hub's port",
            "B16",
            json!({"listen": napi.trim_start_matches("http://")}),
        ),
        (
            "the hub of another node",
            "B16",
            files(&|root| {
                let path = root.join("tmp/.sysinfo.json");
                let text = std::fs::read_to_string(&path).unwrap();
                std::fs::write(&path, text.replace(lab.node().cn_uuid(), zone)).unwrap();
            }),
        ),
        ("a vmadm that knows other VMs", "B7", command("vmadm", format!("echo {zone}"))),
        (
            "a socket that is a file",
            "B17",
            json!({"socket": {"path": script(dir.path(), "hub.sock", "")}}),
        ),
        ("a certificate that has expired", "B26", json!({"status": {"listen": agent.to_string()}})),
        ("a CNAPI that is none", "B22", json!({"cnapi": {"url": napi}})),
        ("an IMGAPI that is none", "B23", json!({"imgapi": {"url": napi}})),
        ("a PAPI that is none", "B24", json!({"papi": {"url": napi}})),
        ("a NAPI that is none", "B18", json!({"napi": {"url": vmapi}})),
        ("a VMAPI that is none", "B20", json!({"vmapi": {"url": napi}})),
    ];
    assert!(worlds.len() >= 20);
    // Most of a run is a wait for events that do not come: several runs wait beside each other.
    let looked = stream::iter(worlds).map(async |(world, belief, config)| {
        let scratch = tempfile::tempdir().unwrap();
        (world, belief, lab.check(&config, scratch.path()).await)
    });
    let mut looked = looked.buffer_unordered(6);
    while let Some((world, belief, (done, report))) = looked.next().await {
        assert_eq!(done.code, Some(1), "{world}: {done:?}");
        let named = with(&report, "false");
        assert!(
            named.iter().any(|it| it == belief),
            "{world}: {named:?}, not {belief}: {report:#}"
        );
    }
    drop(looked);
    shutdown.trigger();
    serving.await.unwrap();
    lab.stop().await;
}
