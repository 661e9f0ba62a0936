// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The pages of `deploy/` and `docs/core.md`: each command that stands there, in a block or in a sentence, is typed in
//! the lab and ends well, or it is typed by the test that is named here, or it stands on the list of what only SmartOS,
//! or another machine, has, with the reason. A command that is in none of these fails.

use std::net::TcpListener;

use rustix::process::Signal;
use testbed::process::{Child, Finished, run};

use super::*;
use crate::common::{LATE, Lab, program, until};

const PAGES: [&str; 6] = [
    "docs/core.md",
    "deploy/README.md",
    "deploy/FIRST-HOUR.md",
    "deploy/UPGRADE.md",
    "deploy/DATACENTER.md",
    "deploy/NAPI.md",
];

/// What the lab has in its `bin`.
const LAB: [&str; 14] = [
    "vminfod",
    "net-agent",
    "vm-agent",
    "kvmd",
    "hub",
    "testbed",
    "vmadm",
    "zfs",
    "zoneadm",
    "kstat",
    "svcprop",
    "sdc-migrate",
    "sdc-voladm",
    "migration-agent",
];

/// Where a command that is not typed here is typed: its beginning, the test's file, and a text that stands there.
const ELSEWHERE: [(&str, &str, &str); 15] = [
    ("hub node", "tests/testbed/tests/programs/kit.rs", "\"@hub\", \"node\""),
    ("hub setup agents", "hub/src/setup/agents/tests.rs", "sdcadm"),
    ("hub setup", "hub/src/setup/tests.rs", "a_move_that_is_killed_anywhere"),
    ("deploy/package OUT", "tests/testbed/tests/programs/deploy/packed.rs", "deploy/package"),
    ("deploy/shar OUT", "tests/testbed/tests/programs/deploy/installed/life.rs", "deploy/shar"),
    ("apm ", "tests/testbed/tests/programs/deploy/installed.rs", "apm"),
    ("tar -xzf", "tests/testbed/tests/programs/deploy/packed.rs", "tar"),
    ("cargo run -p testbed -- lab --core", "tests/testbed/tests/programs/hub.rs", "\"--core\""),
    ("cargo run -p testbed -- lab --era", "tests/testbed/tests/programs/napi.rs", "era"),
    ("sdc-migrate trust", "tests/testbed/tests/programs/trust/guide.rs", "docs/trust.md"),
    ("sdc-fleet ", "tests/testbed/src/fleet_feed/run.rs", "fleet"),
    ("vminfod serve", "tests/testbed/tests/programs/guides/deploy.rs", "the_canary_of_the_core"),
    ("net-agent serve", "tests/testbed/tests/programs/guides/deploy.rs", "the_canary_of_the_core"),
    (
        "net-agent plan --all --config",
        "tests/testbed/tests/programs/guides/deploy.rs",
        "the_canary_of_the_core",
    ),
    ("testbed shadow", "tests/testbed/tests/programs/shadow.rs", "\"shadow\""),
];

/// What is not typed anywhere: its beginning, and why.
const LEFT: [(&str, &str); 37] = [
    ("mkdir -p /opt/custom", "a folder, and a change to it"),
    ("scp ", "to another machine"),
    ("ssh ", "to another machine"),
    ("ps -o rss", "an option of a command that is typed with a process"),
    ("ls ", "looks at places that only a node has"),
    ("head -c 32 ", "encryption of ZFS: neither the lab nor zfs-fuse has it"),
    ("zfs destroy -r", "takes back what encryption of ZFS needs"),
    ("mount -F lofs", "illumos alone mounts a file on a file so; `hub node` does it in the double"),
    ("ldd ", "of a build for illumos"),
    ("elfedit ", "illumos's"),
    ("ppriv ", "privileges are illumos's"),
    ("cargo build", "the builds of packages and of testbed take many minutes"),
    ("BUILD_COMMIT=", "variables of a build"),
    ("svcadm disable", "SMF: tests/simnode/src/life has its rules, and the story of installs"),
    ("svcadm enable", "SMF: tests/simnode/src/life has its rules, and the story of installs"),
    ("svcadm restart", "SMF: tests/simnode/src/life has its rules, and the story of installs"),
    ("svccfg ", "SMF: the manifests are checked against its document type in tests"),
    ("svcs ", "SMF: the lab has what `status` says"),
    ("kstat -p", "illumos's own form; what is read is zone-kstats"),
    ("svcprop -p start/exec net-agent;", "SMF: the lab has vm-agent's alone"),
    ("sdcadm ", "Triton's: a double is in hub/src/setup/agents/tests.rs"),
    ("sapiadm ", "Triton's"),
    ("zlogin ", "illumos's zones; what it prints is read in hub/src/check/front.rs"),
    ("nats-server ", "needs its certificates; the feed's tests start servers"),
    ("zoneadm list", "named as what vminfod runs"),
    ("zfs list", "named as what vminfod runs"),
    ("vminfod list/lookup/get", "three names in one"),
    ("vminfod --check-config --config FILE", "the jail's start methods type it"),
    ("net-agent --check-config --config FILE", "the jail's start methods type it"),
    ("net-agent hold --reason TEXT [--vm UUID]", "a form, with its options"),
    ("hub check --report FILE", "typed with a file in checks.rs"),
    ("vminfod status --url", "of the second vminfod, in the canary"),
    ("vminfod events -s --url", "of the second vminfod: a stream without an end"),
    ("sdc-voladm check", "typed from docs/volumes.md"),
    ("kvmd status", "typed from docs/cli.md"),
    ("migration-agent status", "typed from docs/cli.md"),
    ("vmadm lookup nics.0.mac", "vmadm of the lab has no lookup by index"),
];

/// Spans that are no commands.
const WORDS: [&str; 9] = [
    "compared: ",
    "fallback = ",
    "not found",
    "waiting for ",
    "missing privilege ",
    "server_name: ",
    "listen: ",
    "name: ",
    "vminfod list,",
];

/// Returns the commands of a page, the first of several on a line first, without the folder of a program.
fn commands(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut prose = String::new();
    for line in page.lines() {
        match line.strip_prefix("    ") {
            Some(code) => found.push(code.to_owned()),
            None => prose = prose + line + "\n",
        }
    }
    // A span may be broken by a line's end.
    found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    let one = |text: String| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\|", "|");
        let (word, rest) = text.split_once(' ')?;
        let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && !word.contains(['"', '<', '{'])
            && word != "GET"
            && !WORDS.iter().any(|it| text.starts_with(it))
            && !["tls", "cluster", "jetstream", "include"].contains(&word);
        let name = match word.starts_with('/') {
            true => word.rsplit('/').next().unwrap_or(word),
            false => word,
        };
        is_word.then(|| format!("{name} {rest}"))
    };
    found.into_iter().filter_map(one).collect()
}

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; .ci/run has it: cargo test -p testbed --test programs -- --ignored guides"]
async fn what_the_pages_of_a_deployment_show_is_typed_here_or_there_or_has_its_reason() {
    let known = Known::start().await;
    let (mut typed, mut wrong, mut before) = (0, Vec::new(), BTreeSet::new());
    for (name, line) in
        PAGES.iter().flat_map(|name| commands(&page(name)).into_iter().map(move |it| (name, it)))
    {
        if is_left(&line) || !before.insert(line.clone()) {
            continue;
        }
        let values = known.values(&line).await;
        let line = filled(&line, &values).replace("zones/VM", &format!("zones/{VM}"));
        let line = line.replace("alias=…", "alias=typed").replace("TEXT", "typed");
        if let Some(far) = far(&line) {
            known.bring(far).await;
        }
        let done = known.centre.typed(&line).await;
        typed += 1;
        if done.code != Some(0) {
            wrong.push(format!("{name}: {line}: {:?}: {}{}", done.code, done.stdout, done.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(typed >= 12, "{typed}");
    known.centre.stop().await;
}

fn is_left(line: &str) -> bool {
    ELSEWHERE.iter().any(|(begins, ..)| line.starts_with(begins))
        || LEFT.iter().any(|(begins, _)| line.starts_with(begins))
}

#[test]
fn no_command_of_a_deployment_is_in_neither_list() {
    let all: Vec<(&str, String)> = PAGES
        .iter()
        .flat_map(|name| commands(&page(name)).into_iter().map(move |line| (*name, line)))
        .collect();
    let is_typed = |line: &str| LAB.iter().any(|program| line.split(' ').next() == Some(program));
    let strange: Vec<String> = all
        .iter()
        .filter(|(_, line)| !is_left(line) && !is_typed(line))
        .map(|(name, line)| format!("{name}: {line}"))
        .collect();
    assert!(strange.is_empty(), "neither typed nor on a list:\n{}", strange.join("\n"));
    let is_used = |begins: &str| all.iter().any(|(_, line)| line.starts_with(begins));
    let lists = ELSEWHERE.iter().map(|(begins, ..)| begins).chain(LEFT.iter().map(|(it, _)| it));
    let unused: Vec<&&str> = lists.filter(|begins| !is_used(begins)).collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
    for (begins, file, text) in ELSEWHERE {
        assert!(page(file).contains(text), "{begins}: {file} does not have {text:?}");
    }
}

/// The canary: both files and both programs as the page has them, beside a lab whose NAPI has wrong records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_canary_of_the_core_shows_what_the_other_did_not_do_and_writes_nothing() {
    let mut lab = Lab::start(|options| options.speed = 600).await;
    // The Node.js agent's configuration is there; it did nothing.
    lab.start_agent().await.unwrap();
    lab.end("net-agent", false).await.unwrap();
    let wrongs = lab.fill().await;
    let core = page("docs/core.md");
    let custom = lab.dir().join("custom");
    std::fs::create_dir_all(&custom).unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (hub, status) = (free(), free());
    let agent = lab.node().dir().join("net-agent.json");
    let here = |text: &str| {
        text.replace("9091", &hub.to_string())
            .replace("5321", &status.to_string())
            .replace("/opt/custom/hub/bin/", &format!("{} @", program().display()))
            .replace("/opt/custom/net-agent/bin/", &format!("{} @", program().display()))
            .replace("/opt/custom", &custom.display().to_string())
            .replace("/opt/smartdc/agents/etc/net-agent.config.json", &agent.display().to_string())
    };
    let blocks: Vec<&str> = core.split("\n\n").filter(|it| it.starts_with("    ")).collect();
    let block = |begins: &str| {
        let block = blocks.iter().find(|it| it.trim().starts_with(begins));
        here(block.unwrap_or_else(|| panic!("{begins}")))
    };
    let (of_hub, canary) = (block("{\"commands\""), block("{\"mode\""));
    // The lab's own, as its node is elsewhere; what the page's has is the place of zone-kstats.
    assert!(serde_json::from_str::<Value>(&of_hub).unwrap()["commands"]["kstat"].is_string());
    std::fs::copy(lab.config(), custom.join("vminfod.json")).unwrap();
    // The waits are the lab's.
    let policy = std::fs::read_to_string(&agent).unwrap();
    let mut policy: Value = serde_json::from_str(&policy).unwrap();
    let canary: Value = serde_json::from_str(&canary).unwrap();
    assert_eq!(canary["mode"], "report");
    policy.as_object_mut().unwrap().extend(canary.as_object().unwrap().clone());
    std::fs::write(custom.join("canary.json"), policy.to_string()).unwrap();

    let serve = block("/opt/custom/hub/bin/vminfod serve");
    let lines: Vec<&str> = serve.lines().map(str::trim).collect();
    let bin = lab.node().dir().join("bin");
    let start = |line: &str| {
        let script = format!("export PATH={}:$PATH\nexec {line}", bin.display());
        Child::spawn("canary", Path::new("/bin/bash"), &["-c", &script]).unwrap()
    };
    let mut vminfod = start(lines[0]);
    until("the second vminfod answers", async || {
        lab_typed(&lab, &format!("vminfod ping --url http://127.0.0.1:{hub}")).await.code == Some(0)
    })
    .await;
    let mut net_agent = start(lines[1]);
    let plan = block("/opt/custom/net-agent/bin/net-agent plan");
    until("the plan has every NIC that was put in wrong", async || {
        let done = lab_typed(&lab, plan.trim()).await;
        let text = done.stdout.replace(':', "");
        let has = |mac: &sdc_clients::MacAddr| text.contains(&mac.to_string().replace(':', ""));
        done.code == Some(0) && wrongs.leaked.iter().chain(&wrongs.bare).all(has)
    })
    .await;
    let writes = lab.napi.requests().into_iter().filter(|it| it.method != "GET").count();
    assert_eq!(writes, 0, "a canary writes nothing");
    for child in [&mut net_agent, &mut vminfod] {
        child.signal(Signal::INT);
        let ended = tokio::time::timeout(LATE, child.wait()).await.expect("it ends");
        assert_eq!(ended.unwrap().code(), Some(0));
    }
    lab.stop().await;
}

async fn lab_typed(lab: &Lab, line: &str) -> Finished {
    let bin = lab.node().dir().join("bin");
    let script = format!("export PATH={}:$PATH\n{line}", bin.display());
    run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap()
}
