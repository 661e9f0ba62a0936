// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Hostile input of all kinds: each is an error that names its source, the VM keeps its last good
//! object, no other VM is affected, and all recover by themselves.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{A, B, FakeNode, Served, xml};
use daemon::command::{Call, Commands, Output, Program, Run};
use serde_json::{Value, json};

/// One GiB that takes no disk.
fn sparse(path: &std::path::Path) {
    let file = File::create(path).unwrap();
    file.set_len(1 << 30).unwrap();
}

/// A VM whose files are hostile, with its last good object, beside another VM.
struct Scene {
    node: FakeNode,
    served: Served,
    good: Value,
    turn: u32,
}

impl Scene {
    async fn new() -> Self {
        let node = FakeNode::new();
        node.add_zone(A, "installed", None, "good");
        node.add_zone(B, "installed", None, "other");
        let served = node.serve_quiet().await;
        let good = shown(&served).await;
        Self { node, served, good, turn: 0 }
    }

    /// The VM cannot be read afresh: the answer and `/status` name the source, what is shown stays, and
    /// the other VM's news come as if nothing were wrong.
    async fn is_refused(&mut self, source: &str, name: &str) {
        let (status, body) = self.served.get(&format!("/vms/{A}?sync=true")).await;
        assert_eq!(status, 503, "{name}: {body}");
        assert!(body.contains(source), "{name}: {body}");
        let trouble = &self.served.json("/status").await["errors"][A];
        assert_eq!(trouble["source"], source, "{name}: {trouble}");
        assert_eq!(trouble["alias"], "good", "{name}: {trouble}");
        assert_eq!(shown(&self.served).await, self.good, "{name}");
        self.turn += 1;
        let tags = json!({ "turn": self.turn });
        self.node.tags(B, &tags);
        assert_eq!(self.served.json(&format!("/vms/{B}?sync=true")).await["tags"], tags);
    }

    async fn is_healed(&self, name: &str) {
        let (status, body) = self.served.get(&format!("/vms/{A}?sync=true")).await;
        assert_eq!(status, 200, "{name}: {body}");
        assert_eq!(self.served.json("/status").await["errors"].get(A), None, "{name}");
    }
}

/// The VM's object, without the time that healing changes.
async fn shown(served: &Served) -> Value {
    let mut vm = served.vm(A).await;
    vm.as_object_mut().unwrap().shift_remove("last_modified");
    vm
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_each_hostile_configuration_alone() {
    let mut scene = Scene::new().await;
    let good = xml(A, "good");
    let body = good.split_once("<zone ").unwrap().1;
    let bomb: String = (1..10)
        .map(|n| format!("<!ENTITY e{n} \"{}\">", format!("&e{};", n - 1).repeat(10)))
        .collect();
    let deep = |count: usize| "<a>".repeat(count) + &"</a>".repeat(count);
    let attributes: String = (0..300).map(|n| format!("a{n}='' ")).collect();
    let file = "file:///etc/passwd";
    let cases: Vec<(&str, String)> = vec![
        ("truncated", good[..good.len() / 2].to_owned()),
        ("truncated before the last tag", good.replace("</zone>", "")),
        (
            "entity bomb",
            format!("<!DOCTYPE zone [<!ENTITY e0 \"x\">{bomb}]><zone alias='&e9;' {body}"),
        ),
        (
            "external entity",
            format!("<!DOCTYPE zone [<!ENTITY e SYSTEM \"{file}\">]><zone a='&e;' {body}"),
        ),
        ("nested", good.replace("</zone>", &(deep(100_000) + "</zone>"))),
        ("an attribute twice", good.replace("brand=", "brand=\"lx\" brand=")),
        ("NUL in a value", good.replace("vm-version", "vm\0version")),
        ("NUL everywhere", "\0".repeat(4096)),
        ("NUL after the end", format!("{good}{}", "\0".repeat(64))),
        ("empty", String::new()),
        ("no XML", "{\"zone\":1}".to_owned()),
        ("two roots", format!("{good}<zone brand='lx'/>")),
        ("many attributes", good.replace("brand=", &format!("{attributes}brand="))),
    ];
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases = cases.into_iter().map(|(name, text)| (name, text.into_bytes()));
    let path = scene.node.path(&format!("/etc/zones/{A}.xml"));
    for (name, bytes) in cases.chain([("UTF-16", utf16)]) {
        std::fs::write(&path, bytes).unwrap();
        scene.is_refused("zone_xml", name).await;
        scene.node.write(&format!("/etc/zones/{A}.xml"), &good);
        scene.is_healed(name).await;
    }
    // Too large to be read, let alone parsed.
    sparse(&path);
    scene.is_refused("zone_xml", "1 GB").await;
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    scene.is_refused("zone_xml", "a directory").await;
    std::fs::remove_dir(&path).unwrap();
    scene.node.write(&format!("/etc/zones/{A}.xml"), &good);
    scene.is_healed("at last").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_no_link_below_a_zonepath() {
    let mut scene = Scene::new().await;
    let node = scene.node.clone();
    node.write("/root/secret.json", r#"{"customer_metadata":{"secret":"s3cr3t"}}"#);
    let zone = |rest: &str| node.path(&format!("/zones/{A}/{rest}"));

    for (file, source) in [
        ("config/tags.json", "config"),
        ("config/metadata.json", "config"),
        ("config/routes.json", "config"),
        ("lastexited", "lastexited"),
    ] {
        let _not_there = std::fs::remove_file(zone(file));
        symlink(node.path("/root/secret.json"), zone(file)).unwrap();
        scene.is_refused(source, file).await;
        std::fs::remove_file(zone(file)).unwrap();
        scene.is_healed(file).await;
    }
    // The whole directory elsewhere.
    std::fs::rename(zone("config"), zone("config.real")).unwrap();
    symlink(node.path("/root"), zone("config")).unwrap();
    node.write("/root/metadata.json", r#"{"customer_metadata":{"secret":"s3cr3t"}}"#);
    let (status, body) = scene.served.get(&format!("/vms/{A}?sync=true")).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("config") && body.contains("link"), "{body}");
    let all = scene.served.get("/vms").await.1;
    assert!(!all.contains("s3cr3t"));
    std::fs::remove_file(zone("config")).unwrap();
    std::fs::rename(zone("config.real"), zone("config")).unwrap();
    scene.is_healed("the directory").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_json_of_the_wrong_shape_alone() {
    let mut scene = Scene::new().await;
    let node = scene.node.clone();
    let path = |name: &str| format!("/zones/{A}/config/{name}.json");
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for (name, text) in [
        ("metadata", "null"),
        ("metadata", r#"{"hasOwnProperty":1}"#),
        ("tags", &deep),
        ("metadata", &deep),
    ] {
        node.write(&path(name), text);
        scene.is_refused("config", name).await;
        node.write(&path(name), "{}");
        scene.is_healed(name).await;
    }
    // A file that is too large keeps its last good value, and everything else goes on.
    sparse(&node.path(&path("tags")));
    let (status, body) = scene.served.get(&format!("/vms/{A}?sync=true")).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(shown(&scene.served).await, scene.good);
    let errors = scene.served.json("/status").await["errors"].to_string();
    assert!(errors.contains("larger than"), "{errors}");
    node.write(&path("tags"), "{}");
    scene.is_healed("1 GB").await;
    assert_eq!(scene.served.json("/status").await["errors"], json!({}));
    node.write(&format!("/zones/{A}/lastexited"), "soon 0\n");
    scene.is_refused("lastexited", "lastexited").await;
    node.write(&format!("/zones/{A}/lastexited"), "0 0\n");
    scene.is_healed("lastexited").await;

    // The node's own description concerns all: every object stays as it is.
    let before = scene.served.json("/vms").await;
    for text in ["[1]", "\"text\"", "7", "{\"UUID\":", ""] {
        node.write("/tmp/.sysinfo.json", text);
        let (status, body) = scene.served.get("/vms?sync=true").await;
        assert_eq!(status, 503, "{text}: {body}");
        assert!(body.contains("sysinfo"), "{text}: {body}");
        assert_eq!(scene.served.json("/vms").await, before, "{text}");
    }
}

/// A node whose commands print what the test sets.
struct Lying {
    node: FakeNode,
    lies: Mutex<HashMap<Program, Vec<u8>>>,
}

impl Commands for Lying {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let lie = self.lies.lock().unwrap().get(&call.program).cloned();
            let truth = self.node.run(call).await?;
            Ok(Output { stdout: lie.unwrap_or(truth.stdout), status: 0, stderr: Vec::new() })
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&self.node)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_empty_or_binary_output_changes_no_object() {
    let node = FakeNode::one();
    node.kstat(A, Some((7, 0, 1_767_261_600)));
    node.add_zone(B, "installed", None, "two");
    let commands = Arc::new(Lying { node: node.clone(), lies: Mutex::default() });
    let served = node.serve_through(node.quiet(), commands.clone()).await;
    let (_, before) = served.get("/vms").await;
    let truth = async |tool: Program, args: &[&str]| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        node.run(Call::new(tool, args, Duration::from_secs(1))).await.unwrap().stdout
    };
    let list = truth(Program::Zoneadm, &["list", "-p", "-c"]).await;
    let zfs = truth(Program::Zfs, &["list", "-d", "2"]).await;
    let non_utf8 = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() / 2;
        bytes[at] = 0xff;
        bytes
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 20].to_vec();
    let lies = [
        (Program::Zoneadm, "zoneadm", cut(&list)),
        (Program::Zoneadm, "zoneadm", list[..list.len() - 1].to_vec()),
        (Program::Zoneadm, "zoneadm", non_utf8(&list)),
        (Program::Zoneadm, "zoneadm", Vec::new()),
        (Program::Zfs, "zfs", cut(&zfs)),
        (Program::Zfs, "zfs", zfs[..zfs.len() - 1].to_vec()),
        (Program::Zfs, "zfs", Vec::new()),
        (Program::Zfs, "zfs", format!("{}\n", line_with_two_ats()).into_bytes()),
        (Program::Kstat, "kstat", b"[{\"data\":{\"zonena".to_vec()),
        (Program::Kstat, "kstat", b"[{\"data\":{\"zonename\":\"\xff\"}}]".to_vec()),
        (Program::Kstat, "kstat", Vec::new()),
        (Program::Kstat, "kstat", b"{}".to_vec()),
    ];
    for (tool, source, bytes) in lies {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        commands.lies.lock().unwrap().insert(tool, bytes);
        for path in ["/vms?sync=true".to_owned(), format!("/vms/{A}?sync=true")] {
            let (status, body) = served.get(&path).await;
            assert_eq!(status, 503, "{path} {source} {shown:?}: {body}");
            assert!(body.contains(source), "{path} {source} {shown:?}: {body}");
        }
        assert_eq!(served.get("/vms").await.1, before, "{source} {shown:?}");
        commands.lies.lock().unwrap().clear();
        let (status, body) = served.get("/vms?sync=true").await;
        assert_eq!((status, &body), (200, &before), "healed after {source} {shown:?}");
    }
}

fn line_with_two_ats() -> String {
    let name = format!("zones/{A}@a@b");
    ["-", "1", "-", &name, "-", "-", "-", "-", "-", "snapshot", "-", "0", "-", "-", "1", "-"]
        .join("\t")
}
