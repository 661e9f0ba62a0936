// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Our agents on the nodes of a mock data centre, by a double of sdcadm.

use std::sync::Mutex;

use daemon::command::{Output, Run};
use mocks::{cnapi, sapi};
use serde_json::Map;

use super::*;

const NODES: [&str; 2] =
    ["00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"];
const IMAGES: [(&str, &str); 2] = [
    ("migration-agent", "11111111-1111-5111-a111-111111111111"),
    ("net-agent", "22222222-2222-5222-a222-222222222222"),
];

/// sdcadm: what a node installs CNAPI shows; the link is moved unless that is left out.
struct Headnode {
    root: tempfile::TempDir,
    cnapi: cnapi::Store,
    sapi: sapi::Store,
    /// Nodes on which the script fails.
    broken: Mutex<Vec<&'static str>>,
    typed: Mutex<Vec<String>>,
}

impl Headnode {
    fn link(&self) -> PathBuf {
        self.root.path().join(LATEST.trim_start_matches('/'))
    }

    fn put(&self, node: &str, agents: &Value) {
        let sysinfo = json!({ "UUID": node, "SDC Agents": agents });
        self.cnapi.put_sysinfo(sysinfo.as_object().unwrap());
    }

    fn sdcadm(&self, args: &[String]) -> Result<(), String> {
        self.typed.lock().unwrap().push(args.join(" "));
        let (options, words): (Vec<&String>, Vec<&String>) =
            args.iter().partition(|word| word.starts_with("--"));
        let has = |name: &str| options.iter().any(|option| *option == name);
        assert_eq!((&words[0][..], &words[1][..]), ("experimental", "update-agents"));
        assert!(has("--yes"), "it would ask");
        let kept = self.link().with_file_name(Path::new(words[2]).file_name().unwrap());
        if !has("--skip-latest-symlink") {
            drop(std::fs::remove_file(self.link()));
            std::os::unix::fs::symlink(&kept, self.link()).unwrap();
        }
        let mut failed = Vec::new();
        for node in words[3..].iter().map(|word| word.as_str()) {
            if self.broken.lock().unwrap().contains(&node) {
                failed.push(node.to_owned());
                continue;
            }
            // The postinstall of an agent that SAPI does not know fails.
            assert!(self.service("migration-agent").is_some(), "it is made known first");
            let agents = IMAGES.map(|(name, image)| json!({ "name": name, "image_uuid": image }));
            self.put(node, &json!(agents));
        }
        if failed.is_empty() { Ok(()) } else { Err(format!("failed on {}", failed.join(", "))) }
    }

    fn service(&self, name: &str) -> Option<Map<String, Value>> {
        self.sapi.all().into_iter().find(|it| it.get("name") == Some(&json!(name)))
    }
}

impl Commands for Headnode {
    fn run(&self, call: Call) -> Run<'_> {
        assert_eq!(call.program, Program::Sdcadm);
        let (status, err) = match self.sdcadm(&call.args) {
            Ok(()) => (0, String::new()),
            Err(why) => (1, why),
        };
        Box::pin(async move { Ok(Output { status, stdout: Vec::new(), stderr: err.into_bytes() }) })
    }
}

struct World {
    head: Headnode,
    args: Args,
    _servers: (sapi::Server, cnapi::Server),
}

impl World {
    /// A data centre of upstream's agents, and a script of this kind.
    async fn new(kind: &str) -> World {
        let (sapi, cnapi) = (sapi::Store::default(), cnapi::Store::default());
        sapi.application("sdc", json!({}));
        let any = || "127.0.0.1:0".parse().unwrap();
        let root = tempfile::tempdir().unwrap();
        let shar = root.path().join(format!("agents-{kind}-main-20260101T000000Z-gabcdef1.sh"));
        let whole = if kind == "all" { "# whole\n" } else { "" };
        let named = IMAGES.map(|(name, image)| format!("# agent {name} {image}\n")).concat();
        let script = format!("#!/bin/bash\n{whole}{named}exit # a tar follows\n# agent x y\n");
        std::fs::write(&shar, script).unwrap();
        let servers = (
            sapi::Server::with_store(any(), sapi.clone()).await.unwrap(),
            cnapi::Server::with_store(any(), cnapi.clone()).await.unwrap(),
        );
        let args = Args {
            shar,
            server: Vec::new(),
            sapi: Some(servers.0.url()),
            cnapi: Some(servers.1.url()),
            dry_run: false,
            yes: true,
        };
        let (broken, typed) = Default::default();
        let head = Headnode { root, cnapi, sapi, broken, typed };
        let upstream = json!([{ "name": "net-agent", "image_uuid": "x" }]);
        NODES.iter().for_each(|node| head.put(node, &upstream));
        std::fs::create_dir_all(head.link().parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("agents-upstream.sh", head.link()).unwrap();
        World { head, args, _servers: servers }
    }

    async fn setup(&self) -> anyhow::Result<ExitCode> {
        setup(&self.args, &self.head, self.head.root.path()).await
    }

    fn typed(&self) -> Vec<String> {
        std::mem::take(&mut *self.head.typed.lock().unwrap())
    }

    fn latest(&self) -> String {
        let link = std::fs::read_link(self.head.link()).unwrap();
        link.file_name().unwrap().to_string_lossy().into_owned()
    }
}

#[tokio::test] // Z14
async fn agents_are_made_known_and_installed_where_they_are_not_and_twice_changes_nothing() {
    let mut world = World::new("hub").await;
    world.args.server = vec![NODES[1].to_owned()];
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    let typed = world.typed();
    assert!(typed.len() == 1 && typed[0].ends_with(NODES[1]), "{typed:?}");
    for name in OURS_ALONE {
        let service = world.head.service(name).unwrap();
        assert_eq!(
            (&service["type"], &service["params"]["tags"]["smartdc_role"]),
            (&json!("agent"), &json!(name))
        );
    }
    world.args.server.clear();
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    let typed = world.typed();
    assert!(typed[0].contains(NODES[0]) && !typed[0].contains(NODES[1]), "{typed:?}");
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert!(world.typed().is_empty());
    assert_eq!(world.latest(), "agents-upstream.sh", "new nodes need upstream's other agents");
    // Upstream's script again, and a node that comes later.
    world.head.put(NODES[0], &json!([{ "name": "net-agent", "image_uuid": "x" }]));
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert_eq!(world.typed().len(), 1);
}

#[tokio::test] // Z14
async fn new_nodes_get_a_whole_script_once_every_node_has_it() {
    let world = World::new("all").await;
    world.head.broken.lock().unwrap().push(NODES[0]);
    let failed = format!("{:#}", world.setup().await.unwrap_err());
    assert!(failed.contains(NODES[0]) && failed.contains("run this again"), "{failed}");
    assert_eq!(world.latest(), "agents-upstream.sh");
    world.head.broken.lock().unwrap().clear();
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert!(world.latest().starts_with("agents-all-"));
    world.typed();
    assert_eq!(world.setup().await.unwrap(), ExitCode::SUCCESS);
    assert!(world.typed().is_empty());
}

#[tokio::test] // Z8, Z14
async fn what_is_upstreams_or_unknown_is_refused_before_anything_is_done() {
    let mut world = World::new("hub").await;
    let application = world.head.sapi.application("other", json!({}));
    world.head.sapi.service(&application, "migration-agent", "agent");
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("migration-agent that is not ours"), "{refused}");
    assert!(world.head.service("fleet-agent").is_none());
    let world_of = World::new("hub").await;
    world.args =
        Args { server: vec!["00000000-0000-4000-8000-0000000000ff".to_owned()], ..world_of.args };
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("no node"), "{refused}");
    std::fs::write(&world.args.shar, "#!/bin/bash\nexit 0\n# agent a b\n").unwrap();
    let refused = world.setup().await.unwrap_err().to_string();
    assert!(refused.contains("names no agent of ours"), "{refused}");
    assert!(world.typed().is_empty());
}

#[tokio::test] // Z9
async fn a_dry_run_of_agents_does_nothing() {
    let mut world = World::new("all").await;
    world.args.dry_run = true;
    assert_eq!(world.setup().await.unwrap(), ExitCode::FAILURE, "something is left");
    assert!(world.typed().is_empty() && world.head.service("fleet-agent").is_none());
}

#[test] // Z14
fn each_step_has_its_way_back_and_a_node_that_is_away_is_something_left() {
    let images = IMAGES.map(|(name, image)| (name.to_owned(), image.to_owned())).into();
    let shar = Shar { file: "/var/tmp/agents-all-x.sh".to_owned(), is_whole: true, images };
    let seen = Seen {
        unknown: vec!["fleet-agent"],
        behind: vec!["a".to_owned(), "b".to_owned()],
        away: vec!["c".to_owned()],
        latest: Some("agents-1.sh".into()),
    };
    let left = steps(&seen, &shar, true);
    let backs: Vec<String> =
        left.iter().map(|step| step.back(&shar, seen.latest.as_deref())).collect();
    let before = "/usbkey/extra/agents/agents-1.sh --yes";
    let want = [
        "sdc-sapi /services/UUID -X DELETE".to_owned(),
        format!(
            "sdcadm experimental update-agents {before} --skip-latest-symlink a b; then sdc-oneachnode -n a,b \
             '/opt/smartdc/agents/bin/apm uninstall migration-agent'"
        ),
        format!("sdcadm experimental update-agents {before} --just-update-symlink"),
    ];
    assert_eq!(backs, want);
    assert_eq!(ended(&[], &seen), ExitCode::FAILURE);
}
