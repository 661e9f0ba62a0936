// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every command that the reference of the command line and the guides show, typed in one lab of two nodes with
//! volumes; each ends with the status that is documented. What cannot run there says why, in a comment beside it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sdc_clients::vminfod::VmFields as _;
use serde_json::Value;
use testbed::moving::subject::VM;
use tokio::time::Instant;

use super::common::centre::{Centre, OWNER, PROGRAMS};

mod deploy;

/// The documents, in the order in which they are typed.
const DOCUMENTS: [&str; 6] = [
    "docs/cli.md",
    "docs/operator.md",
    "docs/night.md",
    "docs/monitoring.md",
    "docs/migration.md",
    "docs/volumes.md",
];

/// What else the documents show of what the lab has. A line that begins with another word is no command.
const OTHERS: [&str; 7] = ["sdc-vmapi", "sdc-napi", "vmadm", "curl", "export", "cargo", "triton"];

/// What takes longer is printed.
const SLOW: Duration = Duration::from_secs(2);

/// The words of a comment that say that what follows, or stands before it in a table, is not typed here, and why.
const LEFT: &str = "not typed in the lab: ";
/// The same, below a heading, for all up to the next one.
const SECTION: &str = "this section is ";
/// The same for what ends with another status than 0.
const EXIT: &str = "exit status ";

/// Something that a document has people type.
#[derive(Debug)]
struct Shown {
    place: String,
    lines: String,
    exit: i32,
    /// Why it is not typed in the lab.
    left: Option<String>,
}

fn comment(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")
}

fn is_command(line: &str) -> bool {
    let word = line.split(' ').next().unwrap_or_default();
    let is_variable = word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase())
    });
    PROGRAMS.contains(&word) || OTHERS.contains(&word) || is_variable
}

/// What stands behind a command, three blanks from it, is said of it.
fn bare(line: &str) -> &str {
    line.split("   ").next().unwrap_or_default()
}

impl Shown {
    fn new(place: String, lines: String, said: Option<&str>) -> Shown {
        let left = said.and_then(|said| said.strip_prefix(LEFT)).map(str::to_owned);
        let exit = said.and_then(|said| said.strip_prefix(EXIT)?.split(':').next()?.parse().ok());
        assert!(said.is_none() || left.is_some() || exit.is_some(), "{place}: {said:?}");
        Shown { place, lines, exit: exit.unwrap_or(0), left }
    }
}

/// Returns the commands of a document: indented blocks, of those with prompts the lines behind these, and the last
/// column of tables.
fn shown(name: &str, document: &str) -> Vec<Shown> {
    let (mut found, mut block) = (Vec::new(), Vec::new());
    let (mut said, mut of_section) = (None, None);
    for (at, line) in document.lines().chain([""]).enumerate() {
        if let Some(code) = line.strip_prefix("    ") {
            block.push(code);
            continue;
        }
        let place = format!("{name}:{}", at + 1 - block.len());
        let lines: Vec<&str> = std::mem::take(&mut block);
        let of_block = said.or(of_section);
        let prompted: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
        if !prompted.is_empty() {
            let typed = prompted.iter().map(|line| (*line).to_owned());
            found.extend(typed.map(|line| Shown::new(place.clone(), line, of_block)));
        } else if lines.first().is_some_and(|line| is_command(line)) {
            let typed: Vec<&str> = lines.iter().map(|line| bare(line)).collect();
            found.push(Shown::new(place, typed.join("\n"), of_block));
        }
        if line.starts_with("| ") {
            let cell = line.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
            let (code, said) = match cell.split_once(" <!--") {
                Some((code, rest)) => (code, comment(&format!("<!--{rest}")).map(str::to_owned)),
                None => (cell, None),
            };
            let code = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
            if let Some(code) = code.filter(|code| is_command(code) && !code.contains('`')) {
                found.push(Shown::new(
                    format!("{name}:{}", at + 1),
                    code.to_owned(),
                    said.as_deref(),
                ));
            }
        }
        if line.starts_with('#') {
            of_section = None;
        }
        if !line.is_empty() {
            said = comment(line);
            of_section = said.and_then(|said| said.strip_prefix(SECTION)).or(of_section);
            said = said.filter(|said| !said.starts_with(SECTION));
        }
    }
    found
}

/// Returns a line with what its words in capitals stand for. A word ends at a blank, a slash or a quotation mark.
fn filled(line: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    for part in line.split_inclusive([' ', '/', '"', '\n', '\'', '=', ',', '?']) {
        let word = part.trim_end_matches([' ', '/', '"', '\n', '\'', '=', ',', '?']);
        let end = &part[word.len()..];
        let is_name = end.starts_with('=') && line.contains(&format!("{word}=$("));
        match values.iter().find(|(name, _)| *name == word).filter(|_| !is_name) {
            Some((_, value)) => text += value,
            None => text += word,
        }
        text += end;
    }
    text
}

/// Somebody at a terminal is asked, and says yes.
fn confirmed(lines: &str) -> String {
    let line = |line: &str| {
        let asks = [
            "sdc-voladm restart",
            "sdc-voladm update",
            "sdc-voladm delete",
            "sdc-migrate rollback --discard",
        ];
        let is_asked = asks.iter().any(|it| line.starts_with(it)) && !line.ends_with(" -y");
        format!("{line}{}", if is_asked { " -y" } else { "" })
    };
    lines.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns what a document says to SMF in its text: a verb and a service.
fn to_smf(document: &str) -> Vec<String> {
    let quoted = document.split("`svcadm ").skip(1).filter_map(|rest| rest.split('`').next());
    let whole = quoted.map(|words| words.split_whitespace().collect::<Vec<_>>());
    whole.filter(|words| words.len() == 2).map(|words| words.join(" ")).collect()
}

/// How far a migration has to be before a command of it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Not,
    Begun,
    Synced,
    Scheduled,
    Switched,
}

fn far(line: &str) -> Option<Far> {
    let mut words = line.split(' ').filter(|word| !word.starts_with('-'));
    if words.next() != Some("sdc-migrate") {
        return None;
    }
    Some(match words.next()? {
        "migrate" | "begin" | "estimate" | "schedule" | "instance" | "disallow-cn" | "evacuate" => {
            Far::Not
        }
        "sync" | "abort" | "get" | "watch" => Far::Begun,
        "unschedule" => Far::Scheduled,
        "switch" | "verify" => Far::Synced,
        "finalize" | "rollback" => Far::Switched,
        _ => return None,
    })
}

/// What the words in capitals stand for.
struct Known {
    centre: Centre,
    /// A running VM of the first node, and the MAC of a NIC of it.
    sample: (String, String),
}

impl Known {
    async fn start() -> Known {
        let mut centre = Centre::start().await;
        centre.lab.start_kvmd().await.unwrap();
        centre.lab.start_console().await.unwrap();
        let vm = centre.lab.pick("running").await;
        let sample = (vm.uuid().unwrap().to_owned(), vm.macs()[0].to_string());
        Known { centre, sample }
    }

    async fn good(&self, lines: &str) -> String {
        self.centre.good(lines).await
    }

    async fn record(&self) -> Option<Value> {
        let done = self.centre.typed(&format!("sdc-migrate get -j {VM}")).await;
        (done.code == Some(0)).then(|| serde_json::from_str(&done.stdout).unwrap())
    }

    /// Brings the migration of the VM so far.
    async fn bring(&self, wanted: Far) {
        let one = self.record().await;
        let state = one.as_ref().map(|one| one["state"].as_str().unwrap_or_default().to_owned());
        let is_synced = one.as_ref().is_some_and(|one| one["num_sync_phases"].as_u64() > Some(0));
        match (state.as_deref(), wanted) {
            (Some("successful"), Far::Switched) => return,
            (Some("successful"), _) => {
                drop(self.good(&format!("sdc-migrate finalize -y {VM}")).await)
            }
            (Some("scheduled"), Far::Scheduled) => return,
            (Some(_), Far::Not | Far::Scheduled) => {
                drop(self.good(&format!("sdc-migrate abort --force -y {VM}")).await);
            }
            (Some(_), Far::Begun) => return,
            (Some(_), Far::Synced) if is_synced => return,
            _ => {}
        }
        if wanted == Far::Not {
            return;
        }
        if wanted == Far::Scheduled {
            drop(self.good(&format!("sdc-migrate schedule {VM} '2 days'")).await);
            return;
        }
        if self.record().await.is_none() {
            drop(self.good(&format!("sdc-migrate begin {VM}")).await);
        }
        if wanted != Far::Begun {
            drop(self.good(&format!("sdc-migrate sync {VM}")).await);
        }
        if wanted == Far::Switched {
            drop(self.good(&format!("sdc-migrate switch {VM}")).await);
        }
    }

    /// Types what the documents say to SMF, and sees that the program does it.
    async fn smf(&self, wrong: &mut Vec<String>) {
        let documents = DOCUMENTS.map(|name| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
            std::fs::read_to_string(path).unwrap()
        });
        let said: BTreeSet<String> = documents.iter().flat_map(|text| to_smf(text)).collect();
        assert!(said.len() >= 5, "{said:?}");
        for words in said {
            let (verb, name) = words.split_once(' ').unwrap();
            let (follows, wanted) = match verb {
                "disable" => {
                    (format!("! {name} ping && svcadm enable -s {name}"), "is not running")
                }
                _ => (format!("{name} ping"), "pong"),
            };
            // With `-s` it waits for what is looked at then.
            let done = self.centre.typed(&format!("svcadm {verb} -s {name} && {follows}")).await;
            let said = done.stdout + &done.stderr;
            if done.code != Some(0) || !said.contains(wanted) {
                wrong.push(format!("svcadm {words}: {:?}: {said}", done.code));
            }
        }
    }

    /// The values of the words in capitals now.
    async fn values(&self, lines: &str) -> Vec<(&'static str, String)> {
        let here = self.centre.lab.node().cn_uuid().to_owned();
        let there = self.centre.other.node().cn_uuid().to_owned();
        let vm = self.centre.lab.vmapi.store().get(VM).unwrap();
        let other = if vm["server_uuid"] == here.as_str() { &there } else { &here };
        let volume = match lines.contains("VOLUME") || lines.contains("OWNER") {
            true => self.centre.volume("data").await,
            false => String::new(),
        };
        let uuid = match lines.split(' ').next() {
            // A package of PAPI for storage VMs.
            Some("sdc-pkgadm") => "aaaa0010-1111-4111-8111-000000000010",
            Some("sdc-migrate" | "migration-agent") => VM,
            _ => &self.sample.0,
        };
        vec![
            ("UUID", uuid.to_owned()),
            ("VM", VM.to_owned()),
            ("1ca52b3b-7302-4d99-90c8-f1ce9cb62c0b", VM.to_owned()),
            ("CN", if lines.contains("evacuate") { there.clone() } else { other.clone() }),
            ("MAC", self.sample.1.clone()),
            ("OWNER", OWNER.to_owned()),
            // Another image of storage VMs.
            ("IMAGE", "9fb86870-1941-11e6-8002-4f231c890ed1".to_owned()),
            ("VOLUME", volume),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)] // M144
#[ignore = "takes minutes; .ci/run has it: cargo test -p testbed --test programs -- --ignored guides"]
async fn every_command_that_is_shown_runs_and_ends_as_documented() {
    let began = Instant::now();
    let known = Known::start().await;
    let (mut typed, mut wrong) = (0, Vec::new());
    let mut before = BTreeSet::new();
    for name in DOCUMENTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        for one in shown(name, &std::fs::read_to_string(path).unwrap()) {
            // What several documents show is typed once.
            if one.left.is_some() || !before.insert((one.lines.clone(), one.exit)) {
                continue;
            }
            if let Some(far) = far(&one.lines) {
                known.bring(far).await;
            }
            let lines = filled(&one.lines, &known.values(&one.lines).await);
            let lines =
                confirmed(&lines).replace("http://127.0.0.1:9090", &known.centre.lab.vminfod_url());
            let lines = lines.replace("/tmp/", &format!("{}/", known.centre.lab.dir().display()));
            // What follows something has no end of its own.
            let follows = [" events", " watch"].iter().any(|it| lines.contains(it))
                && !lines.starts_with("sdc-");
            let line = match follows {
                true => format!("timeout --preserve-status -s INT 2 {lines} || [ $? = 130 ]"),
                false => lines,
            };
            let typing = Instant::now();
            let done = known.centre.typed(&line).await;
            typed += 1;
            if typing.elapsed() >= SLOW {
                println!("{:?}: {}: {line}", typing.elapsed(), one.place);
            }
            if done.code != Some(one.exit) {
                let said = format!("{}{}", done.stdout, done.stderr);
                wrong.push(format!("{}: {line}: {:?}: {}", one.place, done.code, said.trim_end()));
            }
        }
    }
    known.smf(&mut wrong).await;
    println!("typed {typed} commands in {:?}", began.elapsed());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(typed >= 90, "{typed}");
    // M147
    let history = format!("sdc-migrate history --vm {VM} -p -o what,outcome,downtime,program");
    let history = known.good(&history).await;
    let of = |what: &str| {
        let rows = history.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut rows = rows.filter(|row| row[..2] == [what, "successful"]);
        rows.next().unwrap_or_else(|| panic!("no {what} in {history}"))
    };
    for (what, is_down) in [("migrate", true), ("rollback", true), ("finalize", false)] {
        let row = of(what);
        assert_eq!(!row[2].is_empty(), is_down, "{what}: {history}");
        assert!(row[3].starts_with("sdc-migrate/"), "{history}");
    }
    known.centre.stop().await;
}

#[test]
fn what_is_typed_is_told_from_what_is_printed() {
    let page = "\
A text.

    $ sdc-migrate get VM
    State: paused

    { \"a\": 1 }

<!-- exit status 1: it is not there -->
    vminfod get UUID     what is said of it

| a | `vminfod ping` |
| b | `kvmd clear NAME` <!-- not typed in the lab: it has no such VM --> |
| c | nothing |
";
    let found = shown("p", page);
    let got: Vec<_> =
        found.iter().map(|it| (it.lines.as_str(), it.exit, it.left.is_some())).collect();
    let want = [
        ("sdc-migrate get VM", 0, false),
        ("vminfod get UUID", 1, false),
        ("vminfod ping", 0, false),
        ("kvmd clear NAME", 0, true),
    ];
    assert_eq!(got, want);
    let values = [("VM", "v".to_owned())];
    assert_eq!(filled("VM=$(x) \"$VM\" VM /a/VM/b", &values), "VM=$(x) \"$VM\" v /a/v/b");
}
