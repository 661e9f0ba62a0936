// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node's months: what Triton sets up, ours, a boot, another platform image, upstream's agents shar, ours again by our
//! shar, and none. After each step a row says which programs run, whose they are and with which configuration; no file
//! of what an operator, an agent or SAPI has put on the node is lost or changed. `deploy/LIFE.md` has the tables.

use std::collections::BTreeMap;
use std::path::Path;

use simnode::NodeKind;

use super::super::packed::STAMP;
use super::super::{block_on, deploy, run, text};
use super::namespace;
use super::site::{
    ADOPTED, METHOD, NEWER, Site, VMINFOD, are_built, kit, make_executable, of_upstream,
};

const MODE: &str = "{\"mode\": \"report\"}";

/// What an operator and the agents have put on the node.
const KEPT: [(&str, &str); 7] = [
    ("/opt/smartdc/agents/etc/net-agent.policy.json", MODE),
    ("/opt/smartdc/agents/etc/vm-agent.policy.json", MODE),
    ("/opt/smartdc/agents/etc/kvmd.config.json", "{}"),
    ("/var/db/net-agent/holds.json", "[\"a hold\"]"),
    ("/var/db/migration-agent/trust/agent.key", "a key"),
    ("/var/db/migration-agent/migrations/m.json", "a record"),
    ("/var/svc/profile/site.xml", "<service_bundle type=\"profile\" name=\"site\"/>"),
];

/// The programs of the table.
const PROGRAMS: [&str; 7] =
    ["vminfod", "net-agent", "vm-agent", "migration-agent", "fleet-agent", "kvmd", "console"];

/// Whose a program is that SMF runs, and its configuration.
fn cell(site: &Site, name: &str) -> String {
    let group = if ADOPTED.contains(&name) { "smartdc/agent" } else { "system/smartdc" };
    let fmri = format!("svc:/{group}/{name}:default");
    match site.state(&fmri).as_deref() {
        None => return "-".to_owned(),
        Some("online") => {}
        Some(state) => return state.to_owned(),
    }
    let is_there = |place: &str| site.node.path(place).exists();
    if name == "vminfod" {
        let is_ours = site.node.seen(VMINFOD).unwrap() != VMINFOD;
        let config = if is_there(CONFIG) { "configured" } else { "as shipped" };
        return if is_ours { format!("hub's, {config}") } else { "platform's".to_owned() };
    }
    let exec = site.runs(&site.node.platform("svcprop"), &["-p", "start/exec", &fmri], &[]).stdout;
    let program = exec.trim().replace("\\ ", " ");
    let program = program.split(' ').next().unwrap_or_default();
    if program.contains("build/node/bin/node") {
        return "Node.js".to_owned();
    }
    assert!(is_there(program), "{name}: {program} is not there");
    let of = if ADOPTED.contains(&name) { name } else { "hub" };
    let version = site.read(&format!("lib/node_modules/{of}/package.json"));
    let whose = if version.contains(NEWER) { "newer" } else { "ours" };
    let policy = site.agents(&format!("etc/{name}.policy.json"));
    let mode = match std::fs::read_to_string(policy) {
        Ok(text) if text.contains("report") => "report",
        Ok(_) => "on",
        Err(_) => "configured",
    };
    match site.agents(&format!("etc/{name}.config.json")).exists() {
        true => format!("{whose}, {mode}"),
        false => format!("{whose}, waits"),
    }
}

const CONFIG: &str = "/opt/smartdc/agents/etc/vminfod.config.json";

/// The table, and what must stay as it is.
struct Life {
    site: Site,
    rows: Vec<String>,
    kept: BTreeMap<String, String>,
    /// A program that really runs was given a hold.
    is_held: bool,
}

impl Life {
    fn of(kind: NodeKind, is_real: bool) -> Life {
        let rows = vec![
            format!("| step | {} |", PROGRAMS.join(" | ")),
            format!("| --- |{}", " --- |".repeat(PROGRAMS.len())),
        ];
        Life { site: Site::with(kind, is_real), rows, kept: BTreeMap::new(), is_held: false }
    }

    /// A row, after this step. What was kept before is as it was.
    fn sees(&mut self, step: &str) {
        let cells: Vec<String> = PROGRAMS.iter().map(|name| cell(&self.site, name)).collect();
        self.rows.push(format!("| {step} | {} |", cells.join(" | ")));
        if self.site.is_real {
            self.answers(step, &cells);
        }
        let now = self.kept_now();
        for (place, text) in &self.kept {
            assert_eq!(now.get(place), Some(text), "{step}: {place}");
        }
        if self.site.node.info().kind.is_triton() {
            let listed = self.site.node.agents_for_cnapi();
            listed.unwrap_or_else(|what| panic!("{step}: CNAPI hears of no agent: {what}"));
        }
    }

    fn kept_now(&self) -> BTreeMap<String, String> {
        let folders = ["/opt/smartdc/agents/etc", "/var/svc/profile", "/var/db"];
        // Programs that really run write into the last one.
        let folders = &folders[..if self.site.is_real { 2 } else { 3 }];
        let mut all: BTreeMap<String, String> =
            folders.iter().flat_map(|folder| self.site.below(folder)).collect();
        // What the kit remembers is of a platform image.
        all.retain(|place, _| !place.starts_with("/var/db/hub/"));
        all
    }

    /// The start methods of what SMF runs are run as it runs them: the programs of ours answer, whoever is not there
    /// does not, and net-agent still has the hold that it was given first.
    fn answers(&mut self, step: &str, cells: &[String]) {
        let ours = |cell: &str| ["hub's", "ours", "newer"].iter().any(|it| cell.starts_with(it));
        let mut lines = String::new();
        // migration-agent asks vminfod for the node's address; the platform's is a stand-in here.
        let asked = if ours(&cells[0]) { 4 } else { 3 };
        for (name, cell) in PROGRAMS.iter().zip(cells).take(asked).filter(|(_, cell)| ours(cell)) {
            let (folder, method) = match *name {
                "vminfod" => ("/usr/vm/sbin", METHOD.to_owned()),
                _ => (
                    "/opt/smartdc/agents/bin",
                    format!("/opt/smartdc/agents/lib/node_modules/{name}/smf/{name}"),
                ),
            };
            lines.push_str(&format!(
                "{method} start >/tmp/{name}.log 2>&1 || echo \"{name} ended with $?\"\nleft=60\n\
                 until {folder}/{name} ping >/tmp/{name}.ping 2>&1; do left=$((left - 1)); [ $left -gt 0 ] || \
                 {{ echo '{name} does not answer'; cat /tmp/{name}.*; break; }}; sleep 0.5; done\n"
            ));
            if *name == "net-agent" && cell.starts_with("ours") && !self.is_held {
                lines.push_str("net-agent hold --reason 'a test' >/dev/null || echo 'no hold'\n");
                self.is_held = true;
            } else if *name == "net-agent" {
                lines.push_str("net-agent holds | grep -q 'a test' || echo 'the hold is lost'\n");
            }
        }
        let done =
            self.site.enters(true, "PATH=/usr/sbin:/usr/bin:/opt/smartdc/agents/bin", &lines);
        assert_eq!((done.code, &*done.stdout), (Some(0), ""), "{step}: {}", done.stderr);
    }

    /// From now on nothing of what is there may be lost.
    fn keeps(&mut self) {
        self.kept = self.kept_now();
    }

    fn boots(&mut self, step: &str) {
        self.site.boots();
        self.sees(step);
    }

    fn other_platform(&mut self) {
        self.site.node.assign_platform("20260901T000000Z").unwrap();
        self.boots("another platform image, a boot");
        self.site.hub("try");
        self.sees("`hub node try`");
    }

    fn tried_and_enabled(&mut self) {
        self.site.hub("try");
        self.site.hub("enable");
        self.sees("`hub node try`, `hub node enable`");
        self.boots("a boot");
    }
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
    let out = site.packed().join("out");
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

fn runs_upstream(site: &Site, shar: &Path) {
    let script = format!("cd '{}' && ./install.sh", shar.display());
    let done = site.runs(Path::new("/bin/bash"), &["-c", &script], &[]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// The life of a node of a data centre.
fn of_triton(kind: NodeKind, is_real: bool) -> Life {
    let mut life = Life::of(kind, is_real);
    let upstream = upstreams_shar(life.site.dir.path());
    runs_upstream(&life.site, &upstream);
    life.sees("as Triton sets it up");
    // What the agents keep is theirs to write where they run.
    for (place, text) in KEPT.into_iter().filter(|it| !is_real || !it.0.starts_with("/var/db/")) {
        life.site.node.put(place, text.as_bytes(), 0o600).unwrap();
    }
    ADOPTED.iter().for_each(|name| life.site.installs(&life.site.package(name, STAMP)));
    life.site.installs(&life.site.package("hub", STAMP));
    assert_eq!(life.site.configures().failed, Vec::<String>::new());
    life.keeps();
    life.sees("`apm install` of each package of ours");
    life.tried_and_enabled();
    life.other_platform();
    // Without a word, the Node.js agents are back; those that upstream does not know stay.
    runs_upstream(&life.site, &upstream);
    life.sees("upstream's agents shar");
    life.boots("a boot");
    let ours = shar(&life.site, None);
    runs_shar(&life.site, Path::new(&ours));
    life.sees("our shar");
    life.boots("a boot");
    assert!(life.site.state("svc:/smartdc/agent/net-agent-setup:default").is_none());
    // For new nodes: upstream's shar with two agents of ours in it.
    runs_upstream(&life.site, &upstream);
    let both = shar(&life.site, Some(&upstream));
    runs_shar(&life.site, Path::new(&both));
    life.sees("upstream's shar, then the one with ours in it");
    life.site.installs(&life.site.package("net-agent", NEWER));
    life.site.installs(&life.site.package("hub", NEWER));
    life.sees("`apm install` of a newer net-agent and hub");
    life.boots("a boot");
    for name in ADOPTED.into_iter().chain(["hub"]) {
        let done = life.site.apm(&["uninstall", name], &[]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
    life.boots("`apm uninstall` of each, a boot");
    life
}

/// The life of a node without Triton: the kit alone.
fn of_standalone(is_real: bool) -> Life {
    let mut life = Life::of(NodeKind::Standalone, is_real);
    life.sees("as it is delivered");
    let unpack = |site: &Site, stamp| {
        let custom = site.node.path("/opt/custom").to_string_lossy().into_owned();
        let done = run("tar", &["-xzf", &site.package("hub", stamp), "-C", &custom]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    };
    unpack(&life.site, STAMP);
    life.sees("the kit unpacked into `/opt/custom`");
    let (place, text) = KEPT[KEPT.len() - 1];
    life.site.node.put(place, text.as_bytes(), 0o600).unwrap();
    life.tried_and_enabled();
    life.keeps();
    life.other_platform();
    unpack(&life.site, NEWER);
    life.boots("a newer kit unpacked over it, a boot");
    life.site.hub("remove");
    std::fs::remove_dir_all(life.site.node.path(kit(NodeKind::Standalone))).unwrap();
    life.boots("`hub node remove`, its folder removed, a boot");
    life
}

/// The document has the table of this life.
fn is_documented(title: &str, life: &Life) {
    let table = life.rows.join("\n");
    println!("{title}\n\n{table}\n");
    let page = text("LIFE.md");
    let section = page.split("\n## ").find(|it| it.starts_with(title)).unwrap_or_default();
    assert!(section.contains(&table), "deploy/LIFE.md, {title}, has not what was seen:\n{table}");
}

#[test]
fn what_runs_on_a_compute_node_after_each_step_is_what_the_document_says() {
    let life = of_triton(NodeKind::Compute, false);
    is_documented("A compute node", &life);
    let page = text("LIFE.md");
    for (place, _) in KEPT {
        let folder = place.rsplit_once('/').unwrap().0;
        assert!(page.contains(folder), "deploy/LIFE.md does not name {folder}");
    }
}

#[test]
fn a_headnode_lives_as_a_compute_node_does() {
    let life = of_triton(NodeKind::Headnode, false);
    is_documented("A compute node", &life);
}

#[test]
fn what_runs_on_a_node_without_triton_after_each_step_is_what_the_document_says() {
    is_documented("A node without Triton", &of_standalone(false));
}

/// Returns true if the programs as they were built can run here; if not, it says why.
fn is_real_here() -> bool {
    let missing = block_on(async { Ok(namespace::missing().await) });
    match missing {
        Some(why) => eprintln!("skipped: no namespace can be made here: {why}"),
        None if !are_built() => {
            eprintln!("skipped: not all is built (cargo build --workspace --bins builds it)");
        }
        None => return true,
    }
    false
}

#[test]
#[ignore = "minutes, and needs the built programs: `.ci/run` has it in its lane of the installed"]
fn the_packages_as_built_answer_in_a_mount_namespace_after_each_step_and_know_their_holds() {
    if is_real_here() {
        is_documented("A compute node", &of_triton(NodeKind::Compute, true));
    }
}

#[test]
#[ignore = "a minute, and needs the built programs: `.ci/run` has it in its lane of the installed"]
fn the_kit_as_built_answers_in_a_mount_namespace_after_each_step() {
    if is_real_here() {
        is_documented("A node without Triton", &of_standalone(true));
    }
}
