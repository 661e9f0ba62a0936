// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node and its data centre for packages: real packages with programs that do nothing, the real scripts in them, the
//! doubles of apm, SMF and config-agent, and a SAPI on a socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use mocks::sapi;
use serde_json::json;
use simnode::agents::config_agent::{ConfigAgent, Pass};
use simnode::{CreateOptions, Node, NodeKind};
use testbed::process::{self, Finished};
use tokio::runtime::Runtime;

use super::super::super::common::program;
use super::super::packed::{STAMP, file, packed, stand_ins};
use super::super::table::{AGENTS, layout, packages};
use super::super::{LATE, run};
use super::namespace;

/// A later build.
pub const NEWER: &str = "main-20260203T040506Z-gabcdef1";

/// The agents of ours that SAPI knows.
pub const ADOPTED: [&str; 4] = ["net-agent", "vm-agent", "migration-agent", "fleet-agent"];

/// The folder with the packages of both builds; those of an earlier run are in its way.
static PACKED: LazyLock<PathBuf> = LazyLock::new(|| both("packages", stand_ins));
/// The same of the programs as they were built.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    both("built", |programs| {
        std::fs::create_dir(programs).unwrap();
        for name in named() {
            let (from, to) = (program().with_file_name(&name), programs.join(&name));
            let done = run("strip", &["-o", &to.to_string_lossy(), &from.to_string_lossy()]);
            assert_eq!(done.code, Some(0), "{}", done.stderr);
        }
    })
});

fn both(name: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let programs = dir.join("programs");
    fill(&programs);
    packed(&dir.join("out"), &programs, STAMP);
    packed(&dir.join("newer"), &programs, NEWER);
    dir
}

/// The programs of the table.
fn named() -> Vec<String> {
    layout().values().filter_map(|it| it.strip_prefix("bin/")).map(str::to_owned).collect()
}

/// Returns true if the programs of the packages were built.
pub fn are_built() -> bool {
    named().iter().all(|name| program().with_file_name(name).exists())
}

/// The file of a package for apm.
pub fn package(name: &str, stamp: &str) -> String {
    package_of(&PACKED, name, stamp)
}

fn package_of(dir: &Path, name: &str, stamp: &str) -> String {
    let package = packages().into_iter().find(|it| it.name == name).unwrap();
    let out = dir.join(if stamp == NEWER { "newer" } else { "out" });
    file(&out, &package, stamp).to_string_lossy().into_owned()
}

/// vminfod of the platform, and its start method.
pub const VMINFOD: &str = "/usr/vm/sbin/vminfod";
pub const METHOD: &str = "/usr/vm/smf/system-vminfod";

/// Where the kit for a live node lies.
pub fn kit(kind: NodeKind) -> &'static str {
    if kind.is_triton() { "/opt/smartdc/agents/lib/node_modules/hub" } else { "/opt/custom/hub" }
}

/// A node of a data centre.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub node: Node,
    pub sapi: sapi::Server,
    /// Its packages have the programs as they were built, and all that runs on it does so in a mount namespace.
    pub is_real: bool,
    runtime: Runtime,
}

impl Site {
    pub fn new() -> Site {
        Site::of(NodeKind::Compute)
    }

    pub fn of(kind: NodeKind) -> Site {
        Site::with(kind, false)
    }

    pub fn with(kind: NodeKind, is_real: bool) -> Site {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let sapi = runtime.block_on(sapi::Server::start("127.0.0.1:0".parse().unwrap())).unwrap();
        let metadata = serde_json::json!({
            "napi_domain": "napi.dc.example.com",
            "vmapi_domain": "vmapi.dc.example.com",
            "cnapi_domain": "cnapi.dc.example.com",
            "migration_service_url": "https://migration-service.dc.example.com:5320",
            "ufds_admin_uuid": "00000000-0000-4000-8000-0000000000ad",
        });
        let application = sapi.store().application("sdc", metadata);
        for name in ADOPTED {
            sapi.store().service(&application, name, "agent");
        }
        let dir = tempfile::tempdir().unwrap();
        let options =
            CreateOptions { program: Some(program()), ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&CreateOptions { vms: 0, kind, ..options }).unwrap();
        for place in [VMINFOD, METHOD] {
            node.put_image(place, b"#!/bin/sh\n", 0o555).unwrap();
        }
        if is_real {
            namespace::furnish(&node);
        }
        let site = Site { dir, node, sapi, is_real, runtime };
        site.node.boot(|_| Ok(true)).unwrap();
        site.lay();
        // The set-up of a headnode is over.
        let setup = site.node.path("/var/lib/setup.json");
        std::fs::create_dir_all(setup.parent().unwrap()).unwrap();
        std::fs::write(setup, "{\"complete\": true}").unwrap();
        site
    }

    /// What the platform's image and the set-up of a node have.
    pub fn lay(&self) {
        self.node.lay_agents(&self.sapi.addr().to_string()).unwrap();
        // A wait of a script takes no time.
        let sleep = self.node.platform("sleep");
        std::fs::write(&sleep, "#!/bin/sh\n").unwrap();
        make_executable(&sleep);
    }

    /// The packages of both builds for this node.
    pub fn packed(&self) -> &'static Path {
        if self.is_real { &BUILT } else { &PACKED }
    }

    /// The file of a package for this node.
    pub fn package(&self, name: &str, stamp: &str) -> String {
        package_of(self.packed(), name, stamp)
    }

    /// Runs lines on the node in a mount namespace, where it has the ports of a node or reaches SAPI.
    pub fn enters(&self, own_network: bool, env: &str, lines: &str) -> Finished {
        let seen = [self.dir.path(), self.packed()];
        self.runtime.block_on(namespace::run(&self.node, &seen, own_network, env, lines)).unwrap()
    }

    /// Runs a program of the node, with these variables beside what the node has.
    pub fn runs(&self, program: &Path, args: &[&str], env: &[(&str, &str)]) -> Finished {
        if self.is_real {
            let platform = self.node.dir().join("platform");
            let mut all = format!("PATH='{}':/usr/sbin:/usr/bin", platform.display());
            env.iter().for_each(|(key, value)| all.push_str(&format!(" {key}='{value}'")));
            // By the path that it has there.
            let below = program.strip_prefix(self.node.root());
            let place = below.map_or(program.to_owned(), |it| Path::new("/").join(it));
            let mut line = format!("exec '{}'", place.display());
            args.iter()
                .for_each(|arg| line.push_str(&format!(" '{}'", arg.replace('\'', "'\\''"))));
            return self.enters(false, &all, &line);
        }
        let path = format!("PATH={}:/usr/bin:/bin", self.node.dir().join("platform").display());
        let root = format!("HUB_ROOT={}", self.node.root().display());
        let env = env.iter().map(|(key, value)| format!("{key}={value}"));
        let mut all: Vec<String> = [path, root].into_iter().chain(env).collect();
        all.push(program.to_string_lossy().into_owned());
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        self.runtime.block_on(process::run(Path::new("/usr/bin/env"), &all, LATE)).unwrap()
    }

    pub fn apm(&self, args: &[&str], env: &[(&str, &str)]) -> Finished {
        self.runs(&self.node.path(&format!("{AGENTS}/bin/apm")), args, env)
    }

    pub fn installs(&self, file: &str) {
        let done = self.apm(&["install", file], &[]);
        assert_eq!(done.code, Some(0), "{file}: {}{}", done.stdout, done.stderr);
    }

    /// `hub node VERB` of the kit on this node.
    pub fn hub(&self, verb: &str) {
        if self.is_real {
            let line = format!("exec {}/bin/hub node {verb}", kit(self.node.info().kind));
            let done = self.enters(true, "", &line);
            assert_eq!(done.code, Some(0), "hub node {verb}: {}{}", done.stdout, done.stderr);
            return;
        }
        let vmadm = self.node.platform("vmadm-list");
        std::fs::write(&vmadm, "#!/bin/sh\n").unwrap();
        make_executable(&vmadm);
        let smf = ["mount", "umount", "svcs", "svcadm", "svccfg", "uname"];
        let mut commands: serde_json::Map<String, serde_json::Value> =
            smf.iter().map(|it| ((*it).to_owned(), json!(self.node.platform(it)))).collect();
        commands.insert("zoneadm".to_owned(), json!(self.node.tool("zoneadm")));
        commands.insert("vmadm".to_owned(), json!(vmadm));
        let kit = kit(self.node.info().kind);
        let config = self.dir.path().join("node.json");
        let content = json!({"root": self.node.root(), "kit": kit, "commands": commands});
        std::fs::write(&config, content.to_string()).unwrap();
        let args = ["@hub", "node", "--config", &config.to_string_lossy(), verb];
        let done = self.runs(&program(), &args, &[]);
        assert_eq!(done.code, Some(0), "hub node {verb}: {}{}", done.stdout, done.stderr);
    }

    /// The node boots: what the platform has is laid, and our methods of the boot run. None that is to start is missing.
    pub fn boots(&self) {
        let (mut laid, mut missing) = (false, Vec::new());
        let boot = self.node.boot(|start| {
            if !laid {
                self.lay();
                laid = true;
            }
            let place = start.exec.split(' ').next().unwrap_or_default();
            let method = self.node.path(place);
            if place.starts_with("/opt/") && !method.exists() && !place.contains("/build/node/") {
                missing.push(start.exec.clone());
                return Ok(false);
            }
            match place.rsplit('/').next() {
                Some("hub-node") if self.is_real => {
                    Ok(self.enters(true, "", &start.exec).code == Some(0))
                }
                Some("boot") => Ok(self.runs(&method, &["start"], &[]).code == Some(0)),
                Some("hub-node") => {
                    self.lays_the_mounts();
                    Ok(true)
                }
                _ => Ok(true),
            }
        });
        assert_eq!(boot.unwrap().refused, Vec::new());
        assert_eq!(missing, Vec::<String>::new(), "SMF starts what is not there");
    }

    /// What the start method of hub-node does where no boot has failed; `kit::boots` runs the real one.
    fn lays_the_mounts(&self) {
        let tried = std::fs::read_to_string(self.node.path("/var/db/hub/platforms"));
        let platform = format!("joyent_{}", self.node.running_platform().unwrap());
        if !tried.unwrap_or_default().lines().any(|line| line == platform) {
            return;
        }
        let kit = kit(self.node.info().kind);
        for (name, on) in [("bin/vminfod", VMINFOD), ("smf/system-vminfod", METHOD)] {
            let args = ["-F", "lofs", &format!("{kit}/{name}"), on];
            let done = self.runs(&self.node.platform("mount"), &args, &[]);
            assert_eq!(done.code, Some(0), "{}", done.stderr);
        }
    }

    /// A file of the agents, such as `etc/net-agent`.
    pub fn agents(&self, place: &str) -> PathBuf {
        self.node.path(&format!("{AGENTS}/{place}"))
    }

    pub fn read(&self, place: &str) -> String {
        let path = self.agents(place);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{place}: {error}"))
    }

    /// A pass of a config-agent that was just started.
    pub fn configures(&self) -> Pass {
        let agent = ConfigAgent::start(&self.node).unwrap();
        agent.pass(&self.node, |instance| self.sapi.store().config(instance))
    }

    /// The files and links below a folder of the node.
    pub fn below(&self, folder: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        walk(&self.node.path(folder), &self.node.root(), &mut found);
        found
    }

    /// What `svcs` says of a service; nothing where SMF does not know it.
    pub fn state(&self, fmri: &str) -> Option<String> {
        let svcs = self.node.platform("svcs");
        let done = self.runs(&svcs, &["-H", "-o", "state", fmri], &[]);
        (done.code == Some(0)).then(|| done.stdout.trim().to_owned())
    }

    /// The files and links of the node by their paths, without what passes by: links with their targets.
    pub fn files(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for folder in ["/opt", "/etc", "/var/svc"] {
            found.append(&mut self.below(folder));
        }
        let (root, dir) = (self.node.root(), self.dir.path());
        let as_on_a_node = |text: String| {
            text.replace(&*root.to_string_lossy(), "").replace(&*dir.to_string_lossy(), "DIR")
        };
        // SMF's repository is asked by its commands.
        found.retain(|place, _| !place.starts_with("/etc/svc/"));
        found.into_iter().map(|(place, text)| (place, as_on_a_node(text))).collect()
    }
}

fn walk(dir: &Path, root: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = format!("/{}", path.strip_prefix(root).unwrap().display());
        if path.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            found.insert(name, format!("-> {}", target.display()));
        } else if path.is_dir() {
            walk(&path, root, found);
        } else {
            let text = std::fs::read(&path).unwrap();
            found.insert(name, String::from_utf8_lossy(&text).into_owned());
        }
    }
}

pub fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a package of the Node.js agent of this name, which does what its scripts do; returns its file.
pub fn of_upstream(dir: &Path, name: &str) -> String {
    let folder = dir.join(name);
    std::fs::create_dir_all(folder.join("npm")).unwrap();
    std::fs::create_dir_all(folder.join("bin")).unwrap();
    let manifest = |service: &str| {
        format!(
            "<service_bundle type=\"manifest\" name=\"{service}\"><service name=\"smartdc/agent/{service}\" \
             type=\"service\" version=\"1\"><create_default_instance enabled=\"true\"/><exec_method type=\"method\" \
             name=\"start\" exec=\"/opt/smartdc/agents/lib/node_modules/{name}/build/node/bin/node {service}\" \
             timeout_seconds=\"60\"/></service></service_bundle>"
        )
    };
    let json = format!(
        "{{\"name\": \"{name}\", \"version\": \"2.2.0-master-20250301T000000Z-g0000000\", \"bin\": {{\"{name}\": \
         \"bin/{name}\"}}, \"scripts\": {{\"postinstall\": \"npm/postinstall.sh\", \"postuninstall\": \
         \"npm/postuninstall.sh\"}}}}"
    );
    let post = format!(
        "#!/bin/bash\nset -e\ncd \"$npm_config_smfdir\"\nfor it in {name} {name}-setup; do cp $OLDPWD/$it.xml .; \
         svccfg import $npm_config_smfdir/$it.xml; done\n[ -f $npm_config_etc/{name} ] || uuid -v4 \
         >$npm_config_etc/{name}\n"
    );
    // It leaves its service NAME-setup behind.
    let after = format!(
        "#!/bin/bash\nsvcadm disable -s svc:/smartdc/agent/{name}:default\nsvccfg delete svc:/smartdc/agent/{name}\n\
         rm -f $npm_config_smfdir/{name}.xml\n"
    );
    for (place, text) in [
        ("package.json", json),
        ("image_uuid", "11111111-1111-4111-8111-111111111111\n".to_owned()),
        ("npm/postinstall.sh", post),
        ("npm/postuninstall.sh", after),
        (&format!("{name}.xml"), manifest(name)),
        (&format!("{name}-setup.xml"), manifest(&format!("{name}-setup"))),
        (&format!("bin/{name}"), "#!/usr/node/bin/node\n".to_owned()),
    ] {
        std::fs::write(folder.join(place), text).unwrap();
    }
    ["npm/postinstall.sh", "npm/postuninstall.sh"]
        .iter()
        .for_each(|it| make_executable(&folder.join(it)));
    let tarball = dir.join(format!("{name}-master-20250301T000000Z-g0000000.tgz"));
    let tarball = tarball.to_string_lossy().into_owned();
    let made = run("tar", &["-czf", &tarball, "-C", &dir.to_string_lossy(), name]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    tarball
}
