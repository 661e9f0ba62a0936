// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub node` on a simulated node, killed after each of its commands and run again; and the start method that it has
//! SMF run at each boot, in the order of the simulated boot and with real mounts.

#[cfg(target_os = "linux")] // namespaces
mod boots;

use std::path::{Path, PathBuf};

use serde_json::json;
use simnode::{CreateOptions, Node, NodeKind};
use testbed::process::Finished;

use super::common::{program, run};

const STANDALONE: &str = "/opt/custom/hub";
const OF_TRITON: &str = "/opt/smartdc/agents/lib/node_modules/hub";
const VMINFOD: &str = "/usr/vm/sbin/vminfod";
const METHOD: &str = "/usr/vm/smf/system-vminfod";
const CONFIG: &str = "/opt/smartdc/agents/etc/vminfod.config.json";
/// The commands that `hub node` runs, and where the double has them.
const COMMANDS: [(&str, &str); 7] = [
    ("mount", "platform"),
    ("umount", "platform"),
    ("svcs", "platform"),
    ("svcadm", "platform"),
    ("svccfg", "platform"),
    ("uname", "platform"),
    ("zoneadm", "bin"),
];

fn deployed(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A node with the kit in its place.
struct Bench {
    dir: tempfile::TempDir,
    node: Node,
    kit: &'static str,
}

impl Bench {
    fn new(kind: NodeKind) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let program = Some(program());
        let options =
            CreateOptions { vms: 6, kind, program, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options).unwrap();
        for (place, text) in [(VMINFOD, "the platform's"), (METHOD, "the platform's method")] {
            node.put_image(place, text.as_bytes(), 0o555).unwrap();
        }
        let kit = if kind.is_triton() { OF_TRITON } else { STANDALONE };
        let bench = Bench { dir, node, kit };
        bench.put("bin/vminfod", "#!/bin/sh\nexit 0\n");
        bench.put("bin/zone-kstats", &deployed("bin/zone-kstats"));
        for method in ["system-vminfod", "hub-node"] {
            bench.put(&format!("smf/{method}"), &deployed(&format!("smf/method/{method}")));
        }
        bench.put("smf/hub-node.xml.in", &deployed("smf/hub-node.xml.in"));
        bench
    }

    fn put(&self, name: &str, text: &str) {
        self.node.put(&format!("{}/{name}", self.kit), text.as_bytes(), 0o555).unwrap();
    }

    /// A program of the node that does this.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    }

    /// Runs `hub node VERB`; it is killed when its `kill`th command has ended.
    async fn hub(&self, verb: &str, kill: Option<u32>) -> Finished {
        let count = self.dir.path().join("count");
        std::fs::write(&count, "0").unwrap();
        let kill = kill.map_or_else(String::new, |it| it.to_string());
        let counted = |of: &Path| {
            format!(
                "'{}' \"$@\"\nended=$?\nn=$(($(cat '{1}') + 1))\necho $n >'{1}'\n\
                 [ $n != '{kill}' ] || kill -9 $PPID\nexit $ended",
                of.display(),
                count.display()
            )
        };
        let mut commands = serde_json::Map::new();
        for (name, folder) in COMMANDS {
            let tool = self.node.dir().join(folder).join(name);
            commands.insert(name.to_owned(), json!(self.script(name, &counted(&tool))));
        }
        let zoneadm = self.node.tool("zoneadm");
        let vmadm = format!("'{}' list -p -c | grep -v ^0: | cut -d: -f5", zoneadm.display());
        let vmadm = match self.dir.path().join("one-missing").exists() {
            true => format!("{vmadm} | sed 1d"),
            false => vmadm,
        };
        let vmadm = self.script("vmadm-list", &vmadm);
        commands.insert("vmadm".to_owned(), json!(self.script("vmadm", &counted(&vmadm))));
        let config = self.dir.path().join("node.json");
        let content = json!({"root": self.node.root(), "kit": self.kit, "commands": commands});
        std::fs::write(&config, content.to_string()).unwrap();
        run(&["@hub", "node", "--config", &config.display().to_string(), verb]).await
    }

    async fn does(&self, verb: &str) -> String {
        let done = self.hub(verb, None).await;
        assert_eq!(done.code, Some(0), "{verb}: {}{}", done.stdout, done.stderr);
        done.stdout
    }

    async fn refuses(&self, verb: &str) -> String {
        let done = self.hub(verb, None).await;
        assert_eq!(done.code, Some(1), "{verb}: {}{}", done.stdout, done.stderr);
        done.stderr
    }

    fn sees(&self, place: &str) -> String {
        self.node.seen(place).unwrap()
    }

    fn is_ours(&self) -> bool {
        let (a, b) = (self.sees(VMINFOD), self.sees(METHOD));
        let ours =
            (format!("{}/bin/vminfod", self.kit), format!("{}/smf/system-vminfod", self.kit));
        assert!((a == VMINFOD && b == METHOD) || (a, b) == ours, "half of it is laid");
        self.sees(VMINFOD) != VMINFOD
    }

    fn manifest(&self) -> String {
        let folder =
            if self.kit == OF_TRITON { "/opt/smartdc/agents/smf" } else { "/opt/custom/smf" };
        format!("{folder}/hub-node.xml")
    }
}

#[tokio::test]
async fn it_is_tried_enabled_disabled_and_removed() {
    for kind in [NodeKind::Standalone, NodeKind::Compute, NodeKind::Headnode] {
        let bench = Bench::new(kind);
        assert!(bench.refuses("enable").await.contains("was not tried on joyent_20260601T000000Z"));
        assert!(bench.does("try").await.contains("until the next boot"));
        assert!(bench.is_ours());
        let config = std::fs::read_to_string(bench.node.path(CONFIG)).unwrap();
        assert!(config.contains(&format!("{}/bin/zone-kstats", bench.kit)), "{config}");
        let status = bench.does("status").await;
        assert!(status.contains("hub node enable was not run"), "{status}");
        assert!(bench.does("enable").await.contains("from the next boot"));
        let boot = bench.node.boot(|_| Ok(true)).unwrap();
        let at = |name: &str| boot.started.iter().position(|it| it.contains(name)).unwrap();
        assert!(at("/hub-node:") < at("/vminfod:"), "{:?}", boot.started);
        assert!(bench.node.path(CONFIG).exists(), "it is in a kept place");
        let status = bench.does("status").await;
        assert!(status.contains("next boot      the hub's vminfod\n"), "{status}");
        bench.does("disable").await;
        assert!(!bench.is_ours() && !bench.node.path(&bench.manifest()).exists());
        assert_eq!(bench.node.instance("hub-node").unwrap(), None);
        bench.does("enable").await;
        bench.does("remove").await;
        assert!(!bench.node.path("/var/db/hub").exists() && bench.node.path(CONFIG).exists());
        let boot = bench.node.boot(|_| Ok(true)).unwrap();
        assert!(!boot.started.iter().any(|it| it.contains("hub-node")), "{:?}", boot.started);
    }
}

#[tokio::test]
async fn what_does_not_work_goes_back_to_the_platforms_and_is_not_enabled() {
    let bench = Bench::new(NodeKind::Standalone);
    bench.put("bin/vminfod", "#!/bin/sh\necho 'nobody answers' >&2\nexit 1\n");
    let said = bench.refuses("try").await;
    assert!(
        said.contains("the platform's vminfod runs again") && said.contains("nobody answers"),
        "{said}"
    );
    assert!(!bench.is_ours());
    bench.refuses("enable").await;
    // It answers, and does not show each VM.
    bench.put("bin/vminfod", "#!/bin/sh\nexit 0\n");
    std::fs::write(bench.dir.path().join("one-missing"), "").unwrap();
    let said = bench.refuses("try").await;
    assert!(said.contains("1 zones are missing"), "{said}");
    assert!(!bench.is_ours());
    std::fs::remove_file(bench.dir.path().join("one-missing")).unwrap();
    // An operator's configuration is left as it is, and must name a program that is there.
    let own = json!({"commands": {"kstat": "/usr/vm/sbin/zone-kstats"}}).to_string();
    bench.node.put(CONFIG, own.as_bytes(), 0o600).unwrap();
    let said = bench.refuses("try").await;
    assert!(said.contains("set commands.kstat to /opt/custom/hub/bin/zone-kstats"), "{said}");
    assert_eq!(std::fs::read_to_string(bench.node.path(CONFIG)).unwrap(), own);
    std::fs::remove_file(bench.node.path(CONFIG)).unwrap();
    bench.does("try").await;
    // On another platform image it was not tried.
    bench.does("enable").await;
    let mut node = bench.node.clone();
    node.assign_platform("20270101T000000Z").unwrap();
    node.boot(|_| Ok(true)).unwrap();
    let status = bench.does("status").await;
    assert!(status.contains("was not tried on joyent_20270101T000000Z"), "{status}");
    // After a boot at which it did not answer.
    bench.node.put("/var/db/hub/failed", b"joyent_20270101T000000Z\n", 0o644).unwrap();
    assert!(bench.does("status").await.contains("did not answer at a boot of"));
    assert!(bench.refuses("enable").await.contains("hub node try tries it again"));
    bench.does("try").await;
    assert!(bench.does("status").await.contains("next boot      the hub's vminfod\n"));
    // A platform that is another one than the hub knows.
    std::fs::remove_file(bench.node.path(VMINFOD)).unwrap();
    std::os::unix::fs::symlink("vmadm", bench.node.path(VMINFOD)).unwrap();
    assert!(bench.refuses("try").await.contains("nothing can be mounted on it"));
}

#[tokio::test]
async fn a_verb_that_was_killed_after_any_of_its_commands_is_run_again() {
    for (verb, before, is_ours) in [
        ("try", &[][..], true),
        ("disable", &["try", "enable"], false),
        ("remove", &["try", "enable"], false),
    ] {
        for kill in 1.. {
            let bench = Bench::new(NodeKind::Compute);
            for verb in before {
                bench.does(verb).await;
            }
            if !before.is_empty() {
                // As after a boot that imported the service and laid the mounts.
                bench.node.boot(|_| Ok(true)).unwrap();
                bench.does("try").await;
            }
            let is_over = bench.hub(verb, Some(kill)).await.code == Some(0);
            bench.does(verb).await;
            assert_eq!(bench.is_ours(), is_ours, "{verb} killed after {kill} commands");
            let vminfod = bench.node.instance("vminfod").unwrap().unwrap();
            assert_eq!(vminfod.state, "online", "{verb} killed after {kill} commands");
            if is_over {
                assert!(kill > 3, "{verb} was never killed");
                break;
            }
        }
    }
}
