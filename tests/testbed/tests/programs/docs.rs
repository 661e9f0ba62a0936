// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands that the documents show, run as they stand there.

use std::path::Path;

use testbed::lab::seed::Wrongs;
use testbed::process::{self, Child};

use super::common::{LATE, Lab, line_with, said, text, until};

/// A lab with everything running, as `testbed lab` makes it.
async fn lab() -> (Lab, Wrongs) {
    let mut lab = Lab::start(|options| options.speed = 600).await;
    let wrongs = lab.fill().await;
    lab.start_agent().await.unwrap();
    lab.start_vm_agent().await.unwrap();
    (lab, wrongs)
}

pub fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands below a heading, up to the next heading of any depth.
fn section(document: &str, heading: &str) -> String {
    let mut lines =
        document.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    assert!(lines.next().is_some(), "no heading {heading:?}");
    lines.take_while(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The indented lines below a heading.
pub fn commands(document: &str, heading: &str) -> String {
    let section = section(document, heading);
    let found: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(!found.is_empty(), "no commands below {heading:?}");
    found.join("\n")
}

/// The blocks of indented lines that begin with one of these words, in their order.
fn blocks(document: &str, words: &[&str]) -> Vec<String> {
    let mut blocks = vec![Vec::new()];
    for line in document.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(code), Some(block)) => block.push(code),
            _ => blocks.push(Vec::new()),
        }
    }
    let is_command = |block: &Vec<&str>| {
        block.first().is_some_and(|first| words.iter().any(|word| first.starts_with(word)))
    };
    blocks.into_iter().filter(is_command).map(|block| block.join("\n")).collect()
}

/// The commands in the last column of the tables, with a real VM's UUID and NIC.
fn examples(document: &str, uuid: &str, mac: &str) -> Vec<String> {
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let last = rows.filter_map(|line| line.trim_end_matches([' ', '|']).rsplit_once(" | "));
    let code = last.filter_map(|(_, cell)| cell.strip_prefix('`')?.strip_suffix('`'));
    let programs = ["vminfod ", "net-agent ", "vm-agent ", "kvmd ", "console "];
    code.filter(|code| programs.iter().any(|program| code.starts_with(program)))
        .map(|code| code.replace("UUID", uuid).replace("MAC", mac))
        .collect()
}

/// Lines as somebody would type them whose `PATH` has the lab's tools; the first failure ends them.
fn typed(lab: &Lab, lines: &str) -> String {
    let bin = lab.node().dir().join("bin");
    format!("set -euo pipefail\nexport PATH={}:$PATH\n{lines}\n", bin.display())
}

/// Runs lines in one shell, to their end; what they printed.
async fn type_in(lab: &Lab, lines: &str) -> String {
    let script = typed(lab, lines);
    let done = process::run(Path::new("/bin/bash"), &["-c", &script], LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{lines}\n{}\n{}", done.stdout, done.stderr);
    done.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_node_works_as_written() {
    let (lab, _) = lab().await;
    let guide = document("docs/operator.md");
    let printed = type_in(&lab, &commands(&guide, "Look at a node")).await;
    assert!(printed.contains("\"numVms\""), "{printed}");
    type_in(&lab, &commands(&guide, "Read the brake")).await;
    let printed = type_in(&lab, &commands(&guide, "VMAPI and the node")).await;
    assert!(printed.contains("VMAPI knows what the node knows"), "{printed}");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readmes_changes_by_hand_are_seen_as_they_are_made() {
    let (mut lab, _) = lab().await;
    lab.start_kvmd().await.unwrap();
    let readme = section(&document("README.md"), "Try a change by hand");
    // The first block of indented lines starts a lab; this one is there already.
    let [start, block] = &blocks(&readme, &["cargo run", "export PATH="])[..] else {
        panic!("two blocks of commands: {readme}")
    };
    let (_, place) = start.split_once("--dir ").unwrap();
    let place = place.split(' ').next().unwrap();
    assert!(block.contains(&format!("{place}/bin")) && block.contains(&format!("{place}/root")));
    let block = block.replace(place, &lab.node().dir().to_string_lossy());
    // The followed stream has no end of its own: it is listened to until everything has come.
    let script = typed(&lab, &format!("{block}\necho every command ended well\nwait"));
    let mut shell = Child::spawn("shell", Path::new("/bin/bash"), &["-c", &script]).unwrap();
    let mut awaited = vec![
        "zone_state changed",
        "quota changed",
        "hostname",
        "\"waiting_for\"",
        "held ",
        "\"verdicts\"",
        "every command ended well",
    ];
    let mut printed = Vec::new();
    while !awaited.is_empty() {
        let line = tokio::time::timeout(LATE, shell.line()).await;
        let Ok(Some(line)) = line else { panic!("never came: {awaited:?} in {printed:#?}") };
        awaited.retain(|part| !line.contains(part));
        printed.push(line);
    }
    drop(shell);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_agent_runs_as_its_page_says() {
    let page = document("docs/agents.md");
    let [start, command] = &blocks(&page, &["cargo run"])[..] else { panic!("two: {page}") };
    let port = start.split_once("--vminfod-port ").unwrap().1.split(' ').next().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let ["cargo", "run", "-p", program, "--", url] = words[..] else { panic!("{command}") };
    let program = Path::new(env!("CARGO_BIN_EXE_testbed")).with_file_name(program);
    if !program.exists() {
        eprintln!("skipped: {} is not built (cargo test --workspace builds it)", program.display());
        return;
    }
    let (lab, _) = lab().await;
    assert_eq!(url, format!("http://127.0.0.1:{port}"), "the port that the page gives the lab");
    let mut agent = Child::spawn("boot-times", &program, &[lab.vminfod_url()]).unwrap();
    line_with(&mut agent, "in step with the node").await;
    type_in(
        &lab,
        "VM=$(vmadm list -H -o uuid state=running | head -n 1)\nvmadm stop $VM\nvmadm start $VM",
    )
    .await;
    line_with(&mut agent, "\"msg\":\"down\"").await;
    line_with(&mut agent, "\"msg\":\"running\"").await;
    lab.stop().await;
}

/// The text between a line that begins a block of this language and the line that ends it.
fn fenced<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    document.split(&begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_code_that_the_agents_page_shows_is_compiled() {
    let page = document("docs/agents.md");
    let files =
        ["examples/src/main.rs", "examples/src/bin/nic-states.rs", "sdc-clients/examples/vms.rs"];
    let sources = files.map(document);
    let shown = fenced(&page, "rust");
    assert_eq!(shown.len(), files.len());
    for block in shown {
        assert!(sources.iter().any(|source| source.contains(block)), "in no file:\n{block}");
    }
    // The crates are where the page says, and what else it names has the version that they use.
    let workspace = document("Cargo.toml");
    let manifest = fenced(&page, "toml").concat();
    let mut named = 0;
    for (name, value) in manifest.lines().filter_map(|line| line.split_once(" = ")) {
        let quoted = value.split('"').nth(1).unwrap();
        match quoted.strip_prefix("../smartos-hub/") {
            Some(folder) => {
                let manifest = document(&format!("{folder}/Cargo.toml"));
                // A crate's name is that of its library, which the page gives.
                assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{folder}");
            }
            None => {
                let same =
                    |line: &str| line.starts_with(&format!("{name} = {{ version = \"{quoted}"));
                assert!(workspace.lines().any(same), "{name} {quoted}");
            }
        }
        named += 1;
    }
    assert_eq!(named, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_is_followed_through_the_log_as_written() {
    let (lab, _) = lab().await;
    let guide = section(&document("docs/operator.md"), "Follow one change");
    let typed = blocks(&guide, &["VM="]).concat();
    // The guide's lines: TIME LEVEL vminfod: MESSAGE (FIELDS).
    let shown: Vec<&str> = guide
        .lines()
        .filter_map(|line| line.split_once(" vminfod: "))
        .collect::<Vec<_>>()
        .into_iter()
        .filter_map(|(_, rest)| rest.split(" (").next())
        .collect();
    assert!(shown.len() >= 4, "{guide}");
    let (set_up, look) = typed.rsplit_once('\n').unwrap();
    let vm = set_up.lines().next().unwrap();
    // Another reading of the VM at the same moment, as for a view of net-agent, has lines among these:
    // then another change is followed.
    for quota in 7..40 {
        let change = set_up.replace("quota=7g", &format!("quota={quota}g"));
        assert!(quota == 7 || change != set_up);
        type_in(&lab, &change).await;
        for _ in 0..20 {
            // `grep` fails until the first commit is there.
            let printed = type_in(&lab, &format!("{vm}\n{{ {look}; }} || true")).await;
            let lines = printed.lines().map(|line| serde_json::from_str(line).unwrap());
            let told: Vec<serde_json::Value> = lines.collect();
            let told: Vec<&str> = told.iter().filter_map(|line| line["msg"].as_str()).collect();
            if told == shown {
                return lab.stop().await;
            }
        }
    }
    panic!("the log never tells a change as written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_story_of_a_migration_by_hand_keeps_the_nics_word_by_word() {
    let (mut lab, wrongs) = lab().await;
    let passed = |status: &serde_json::Value| status["pass"].as_u64() > Some(0);
    until("the first pass is over", async || passed(&lab.agent_status().await)).await;

    let guide = document("docs/operator.md");
    let story = commands(&guide, "Migrate a VM by hand without losing its NICs");
    let printed = type_in(&lab, &format!("{story}\necho \"moved $MAC\"")).await;
    let mac = printed.lines().last().unwrap().strip_prefix("moved ").unwrap().parse().unwrap();
    assert!(wrongs.live.contains(&mac), "{mac} was a NIC of a live VM");
    assert!(printed.contains("moving to another node"), "the hold was listed:\n{printed}");

    // The agent has every occasion to do wrong now: a start of its own with a fresh list of NAPI's,
    // and fresh views of the node.
    lab.end("net-agent", false).await.unwrap();
    lab.start_agent().await.unwrap();
    until("a new agent has compared everything", async || {
        let now = lab.agent_status().await;
        passed(&now) && now["resyncs"].as_u64() >= Some(2)
    })
    .await;
    let nics = lab.nics().await.unwrap();
    assert!(nics.iter().any(|nic| nic.mac == mac), "{mac} is gone");
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_event_stream_answers_as_written() {
    let (lab, _) = lab().await;
    let page = document("docs/events.md");
    let blocks = blocks(&page, &["M=", "E=", "curl "]);
    assert!(blocks.len() >= 5, "{blocks:#?}");
    // All in one shell, as they build on each other. The first stream has no end of its own, and
    // curl calls it a failure that it was made to end: any other failure counts.
    let curl = "curl() { command curl --max-time 2 \"$@\" || [ $? = 28 ] || return 1; }";
    let lines = blocks.join("\necho \"== $M\"\n");
    let here = lines.replacen("http://127.0.0.1:9090", &lab.vminfod_url(), 1);
    assert_ne!(here, lines);
    let printed = type_in(&lab, &format!("{curl}\n{here}")).await;
    let told: Vec<&str> = printed.split("== http").collect();
    let first = |at: usize, part: &str| {
        let text = told[at].lines().find(|line| line.starts_with(['{', '[']));
        assert!(text.is_some_and(|text| text.contains(part)), "{at}: {part}: {:?}", told[at]);
    };
    assert_eq!(told.len(), blocks.len(), "{printed}");
    first(0, r#""type":"ready""#);
    first(1, r#""type":"resume""#);
    first(2, r#""code":"Gone""#);
    first(3, r#""type":"ready""#);
    assert!(told[3].lines().any(|line| line.starts_with('[')), "{}", told[3]);
    first(4, r#""type":"ack""#);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_reference_asks_as_written() {
    let (lab, _) = lab().await;
    let page = document("docs/http-vminfod.md");
    let lines = blocks(&page, &["curl "]).join("\n");
    let here = lines.replace("http://127.0.0.1:9090", &lab.vminfod_url());
    let vm = "VM=$(vmadm list -H -o uuid state=running | head -n 1)";
    let printed = type_in(&lab, &format!("{vm}\n{here}")).await;
    for part in ["\"read_ms_ago\"", "\"fields\"", "\"sysinfo\"", "\"zoneadm\"", "\"zfs\""] {
        assert!(printed.contains(part), "{part}");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_vminfod_runs_beside_the_one_in_place_as_written() {
    let (lab, _) = lab().await;
    let guide = commands(&document("deploy/UPGRADE.md"), "Side by side first");
    let [serve, shadow] = &guide.lines().collect::<Vec<_>>()[..] else { panic!("{guide}") };
    let config = lab.config();
    // Its configuration is that of the one in place: the socket, and an address for metrics.
    let read: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&config).unwrap()).unwrap();
    assert!(read["metrics"]["listen"].is_string() && read.get("socket").is_none(), "{read}");
    let installed = "/opt/smartdc/agents";
    let serve = serve.replace(&format!("{installed}/etc/vminfod.config.json"), &config);
    let serve = serve.replace(&format!("{installed}/bin/"), "").replace(":9091", ":0");
    assert!(serve.contains(&config) && serve.ends_with(":0"), "{serve}");
    let script = typed(&lab, &format!("exec {serve}"));
    let mut beside = Child::spawn("beside", Path::new("/bin/bash"), &["-c", &script]).unwrap();
    let address = said(&mut beside, "listening").await["address"].as_str().unwrap().to_owned();
    let shadow = shadow.replace("127.0.0.1:9091", &address);
    let shadow = shadow.replace("http://127.0.0.1:9090", &lab.vminfod_url());
    let shadow = shadow.replace("testbed ", &format!("{} ", env!("CARGO_BIN_EXE_testbed")));
    let printed = type_in(&lab, &format!("{shadow} --every 200ms --times 3")).await;
    assert_eq!(printed, "compared: 0 differences\n");
    let socket = format!("unix:{}", lab.node().root().join("var/run/vminfod/hub.sock").display());
    beside.stop(LATE).await.unwrap();
    type_in(&lab, &format!("vminfod ping --url {socket}\nhub check --watch 300ms")).await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_does_what_its_page_says() {
    let (mut lab, wrongs) = lab().await;
    lab.start_kvmd().await.unwrap();
    lab.start_console().await.unwrap();
    let vms = lab.vms().await;
    let uuid = text(&vms[0], "uuid");
    let mac = wrongs.live.iter().next().unwrap().to_string();
    let examples = examples(&document("docs/cli.md"), uuid, &mac);
    assert!(examples.len() >= 28, "{examples:#?}");
    for example in &examples {
        // What follows the node has no end of its own.
        let line = match example.contains(" events") || example.contains(" watch") {
            true => format!("timeout --preserve-status -s INT 3 {example} || [ $? = 130 ]"),
            false => example.replace("/tmp/man8", &lab.dir().join("man8").to_string_lossy()),
        };
        type_in(&lab, &line).await;
    }
    lab.stop().await;
}
