// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The command line as programs, on a simulated node: the reads of vmadm with the daemon on and
//! off, byte for byte the same; events, why and check; help, completions and manual pages.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::future::join_all;
use sdc_clients::vminfod::VmObject;
use serde_json::Value;
use testbed::client::tools::fetch;
use testbed::process::{self, Child, Finished};
use vm_model::compose::origin;

use super::common::{self, LATE, Lab, line_with, program, text};

impl Lab {
    /// Runs vminfod's command line for this node and its daemon.
    async fn run(&self, args: &[&str]) -> Finished {
        let (config, url) = (self.config(), self.vminfod_url());
        let here = ["--config", &config, "--url", &url];
        let here = if args.contains(&"check") { &here[..2] } else { &here[..] };
        common::run(&[&["@vminfod"], args, here].concat()).await
    }
}

/// Command lines of every kind for a node with this VM.
fn lines(vm: &VmObject) -> Vec<String> {
    let (uuid, alias) = (text(vm, "uuid"), text(vm, "alias"));
    let nic = vm["nics"][0]["mac"].as_str().unwrap_or("none");
    let all = format!(
        "list
        list -p
        list -H -o uuid,brand,quota,zoneid,nics.0.ip,tags.role -s -quota,uuid
        list -o alias,type,ram,create_timestamp,autoboot -s alias
        list -ph -o uuid,disks.0.size,free_space,image_uuid
        list state=running type=OS
        list alias=~^[a-m] -s -ram,alias
        list -o docker
        list nics.*.mac={nic}
        list state=nothing
        list -o bogus
        list -s -bogus
        list bogus=1
        list 1
        list alias=~(
        list zoneid=~.
        list -j -o uuid,quota,snapshots -s uuid
        lookup
        lookup state=stopped
        lookup -1 alias={alias}
        lookup -1 brand=~.
        lookup -j brand=kvm
        lookup -j -o uuid,ram,quota,last_modified,customer_metadata
        lookup -o uuid
        get {uuid}
        get 00000000-0000-4000-8000-000000000000
        get nobody"
    );
    all.lines().map(|line| line.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_with_the_daemon_on_and_off() {
    let mut cli = Lab::of(24).await;
    let vms = cli.vms().await;
    let vm = vms.iter().find(|vm| vm["nics"][0].is_object()).unwrap().clone();
    let lines = lines(&vm);
    let mut on = Vec::new();
    for line in &lines {
        let args: Vec<&str> = line.split(' ').collect();
        let served = cli.run(&args).await;
        let mut forced = args.clone();
        forced.insert(1, "--direct");
        let direct = cli.run(&forced).await;
        assert_eq!(shown(&served), shown(&direct), "{line:?} with --direct");
        on.push(served);
    }
    cli.end("vminfod", false).await.unwrap();
    for (line, served) in lines.iter().zip(&on) {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(shown(&cli.run(&args).await), shown(served), "{line:?} with the daemon off");
    }
    // They are not all the same empty answer.
    let listed = on.iter().filter(|done| done.code == Some(0) && done.stdout.len() > 100).count();
    assert!(listed >= 14, "{listed}");
    let codes: Vec<Option<i32>> = on.iter().map(|done| done.code).collect();
    for code in [Some(0), Some(1), Some(2)] {
        assert!(codes.contains(&code), "{code:?}");
    }
    let everything = on.iter().map(|done| done.stdout.clone()).collect::<String>();
    assert!(!everything.contains('\u{1b}'), "no colours where it is piped");
}

fn shown(done: &Finished) -> (Option<i32>, &str, &str) {
    (done.code, &done.stdout, &done.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_meant_to_come_is_waited_for() {
    let mut cli = Lab::of(2).await;
    cli.end("vminfod", false).await.unwrap();
    let done = cli.run(&["list", "--wait", "300ms"]).await;
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert_eq!(done.stderr, "vminfod did not come up within 300ms\n");
    let done = cli.run(&["list", "--wait", "soon"]).await;
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    // Without a word of waiting it is off, and the node is read.
    assert_eq!(cli.run(&["lookup"]).await.stdout.lines().count(), 2);
    let done = cli.run(&["status"]).await;
    assert_eq!((done.code, done.stdout.as_str()), (Some(1), ""));
    let told = "vminfod: vminfod is not running: nothing answers on http://127.0.0.1:";
    assert!(done.stderr.starts_with(told), "{}", done.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_print_what_the_daemon_says() {
    let cli = Lab::of(6).await;
    let vm = cli.vms().await.remove(0);
    let json = |done: &Finished| -> Value {
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
        serde_json::from_str(&done.stdout).unwrap()
    };
    let ping = cli.run(&["ping"]).await;
    assert_eq!(ping.stdout, "{\n  \"ping\": \"pong\"\n}\n");
    assert_eq!(json(&cli.run(&["status"]).await)["numVms"], 6);
    assert!(json(&cli.run(&["status", "-f"]).await)["fswatcher"].is_object());
    assert_eq!(json(&cli.run(&["vms", "--sync"]).await).as_array().unwrap().len(), 6);
    assert_eq!(json(&cli.run(&["vm", text(&vm, "uuid")]).await)["alias"], vm["alias"]);
    let objects = json(&cli.run(&["vms", "-j", "-o", "alias", "-s", "alias"]).await);
    assert_eq!(objects.as_array().unwrap().len(), 6);
    assert!(objects[0]["alias"].is_string() && objects[0].get("uuid").is_none(), "{objects}");
    let table = cli.run(&["vms", "-p", "-o", "uuid,alias", "-s", "uuid"]).await;
    assert_eq!(table.stdout.lines().count(), 6);
    assert!(table.stdout.contains(&format!("{}:{}\n", text(&vm, "uuid"), text(&vm, "alias"))));
    let one = cli.run(&["vm", text(&vm, "uuid"), "-H", "-o", "value", "-s", "field"]).await;
    assert!(one.stdout.contains(text(&vm, "uuid")), "{}", one.stdout);
    for (args, code) in [
        (&["vm", "nobody"][..], 2),
        (&["vms", "-o", "nope"], 2),
        (&["why", "nobody"], 2),
        (&["why", text(&vm, "uuid"), "-o", "nope"], 2),
        (&["status", "--nope"], 2),
        (&["nope"], 2),
    ] {
        let done = cli.run(args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{args:?}");
        assert_eq!(done.stderr.lines().count(), 1, "{args:?}: {}", done.stderr);
    }
}

/// What every program does with the words that all of them have.
#[tokio::test(flavor = "multi_thread")]
async fn all_programs_have_one_grammar_and_its_exit_statuses() {
    let mut lab = Lab::of(4).await;
    lab.start_agent().await.unwrap();
    lab.start_vm_agent().await.unwrap();
    lab.start_kvmd().await.unwrap();
    lab.start_console().await.unwrap();
    let urls =
        [lab.vminfod_url(), lab.agent_url(), lab.vm_agent_url(), lab.kvmd_url(), lab.console_url()];
    let programs = ["vminfod", "net-agent", "vm-agent", "kvmd", "console"];
    // One that takes connections and says nothing, and one that is no program of ours.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let off = "http://127.0.0.1:1";
    let other = lab.napi.url();
    let bad = lab.dir().join("bad.json").to_string_lossy().into_owned();
    std::fs::write(&bad, r#"{"log_level": 3}"#).unwrap();
    let one_after_another = async |program: &str, url: &str| {
        let this = format!("@{program}");
        let file = lab.dir().join(format!("cn/{program}.json")).to_string_lossy().into_owned();
        let rows: [(&[&str], i32, &str); 16] = [
            (&["--version"], 0, env!("CARGO_PKG_VERSION")),
            (&["--help"], 0, "Exit status:"),
            (&["--check-config", "--config", &file], 0, "configuration is valid"),
            (&["serve", "--check-config", "--config", &bad], 2, "log_level: expected a text"),
            (&["ping", "--url", url], 0, "pong"),
            (&["status", "--url", url], 0, "{"),
            (&["status", "--url", url, "-H"], 0, ""),
            (&["status", "--url", url, "-p", "-o", "nope"], 2, "no column \"nope\": there are "),
            (&["status", "--url", url, "-s", "nope"], 2, "no column \"nope\": there are "),
            (&["status", "--url", url, "-j"], 0, "{"),
            (&["statsu"], 2, "'status'"),
            (&["ping", "--url", off], 1, "is not running: nothing answers on http://127.0.0.1:1"),
            (&["status", "--url", off], 1, "is not running: nothing answers on http://127.0.0.1:1"),
            (&["ping", "--url", &silent], 1, &silent),
            (&["status", "--url", &silent], 1, &silent),
            (&["ping", "--url", &other], 1, ""),
        ];
        for (args, code, part) in rows {
            let done = common::run(&[&[&*this], args].concat()).await;
            let said = if code == 0 { &done.stdout } else { &done.stderr };
            assert_eq!(done.code, Some(code), "{program} {args:?}: {}{}", done.stdout, done.stderr);
            assert!(said.contains(part), "{program} {args:?}: {said}");
            assert!(code == 0 || done.stderr.lines().count() == 1, "{program} {args:?}: {said}");
            assert!(code == 0 || done.stdout.is_empty(), "{program} {args:?}: {}", done.stdout);
        }
    };
    // What says nothing is waited for: the programs wait beside each other.
    join_all(programs.into_iter().zip(&urls).map(|(program, url)| one_after_another(program, url)))
        .await;
    lab.stop().await;
}

/// A VM is meant by its alias and by the beginning of its uuid, wherever a program takes one.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_named_in_the_same_ways_everywhere() {
    let mut lab = Lab::of(4).await;
    lab.start_agent().await.unwrap();
    lab.start_vm_agent().await.unwrap();
    lab.start_kvmd().await.unwrap();
    let vm = lab.vms().await.remove(0);
    let (uuid, alias) = (text(&vm, "uuid"), text(&vm, "alias"));
    let tool = |name: &str| lab.node().dir().join("bin").join(name);
    for name in [uuid, &uuid[..8], alias] {
        for (program, args) in [
            ("vminfod", &["vm", name][..]),
            ("vminfod", &["get", name]),
            ("vminfod", &["why", name, "quota"]),
            ("net-agent", &["hold", "--vm", name, "--for", "2h", "--reason", "test"]),
            ("net-agent", &["extend", "--vm", name, "--for", "3h"]),
            ("net-agent", &["history", "--vm", name]),
            ("net-agent", &["release", "--vm", name]),
            ("vm-agent", &["vm", name]),
            ("vm-agent", &["why", name]),
            ("kvmd", &["verdicts", name]),
        ] {
            let done = process::run(&tool(program), args, LATE).await.unwrap();
            assert_eq!(done.code, Some(0), "{program} {args:?}: {}{}", done.stdout, done.stderr);
        }
    }
    for (program, args) in [
        ("vminfod", &["vm", "nobody"][..]),
        ("vminfod", &["get", "nobody"]),
        ("net-agent", &["hold", "--vm", "nobody", "--reason", "test"]),
        ("vm-agent", &["why", "nobody"]),
        ("kvmd", &["verdicts", "nobody"]),
    ] {
        let done = process::run(&tool(program), args, LATE).await.unwrap();
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{program} {args:?}");
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_knows_every_field() {
    let mut cli = Lab::of(12).await;
    let vms = cli.vms().await;
    for vm in &vms {
        for field in vm.keys() {
            assert!(origin::source_of(field).is_some(), "no source is known for {field}");
        }
    }
    let uuid = text(&vms[0], "uuid").to_owned();
    let all = cli.run(&["why", &uuid, "-p", "-o", "field,source,stale"]).await;
    assert_eq!(all.stdout.lines().count(), vms[0].len(), "{}", all.stderr);
    assert!(all.stdout.contains("quota:zfs:no\n"), "{}", all.stdout);
    let one = cli.run(&["why", &uuid, "disks.0.size", "-j"]).await;
    let one: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!((&one[0]["source"], &one[0]["stale"]), (&"zfs".into(), &"no".into()));
    assert!(one[0]["read"].as_str().unwrap().ends_with(" ago"), "{one}");
    cli.end("vminfod", false).await.unwrap();
    let off = cli.run(&["why", &uuid, "quota", "-H"]).await;
    assert_eq!((off.code, off.stdout.as_str()), (Some(0), "quota  zfs  -  -  -\n"));
    assert_eq!(cli.run(&["why", &uuid, "bogus"]).await.code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_what_cannot_be_read() {
    let cli = Lab::of(3).await;
    let good = cli.run(&["check"]).await;
    assert_eq!((good.code, good.stderr.as_str()), (Some(0), ""), "{}", good.stdout);
    for name in [
        "zoneadm",
        "zfs",
        "kstat",
        "sysinfo",
        "zone index",
        "zone events",
        "zfs events",
        "zfs history",
    ] {
        let line = good.stdout.lines().find(|line| line.starts_with(&format!("{name}  ")));
        assert!(line.is_some_and(|line| line.contains(" ok ")), "{name} in {}", good.stdout);
    }
    // The property that was set to see an event is gone again.
    let node = cli.node();
    let state = read(&node.state_dir().join("zfs.json"));
    assert!(state.contains("zones/"), "{state}");
    assert!(!state.contains("vminfod:check"), "{state}");

    std::fs::remove_file(node.path("/tmp/.sysinfo.json")).unwrap();
    std::fs::remove_file(node.path("/etc/zones/index")).unwrap();
    std::fs::remove_file(node.tool("sysevent")).unwrap();
    let bad = cli.run(&["check", "-p", "-o", "name,state"]).await;
    assert_eq!(bad.code, Some(1));
    assert_eq!(
        bad.stdout,
        "zoneadm:ok\nzfs:ok\nkstat:ok\nsysinfo:failed\nzone index:failed\nzone events:failed\n\
         zfs events:failed\nzfs history:failed\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_rfd_39s_lines_and_go_on_over_a_restart() {
    let mut cli = Lab::of(3).await;
    let vm = cli.vms().await.remove(0);
    let (uuid, zone) = (text(&vm, "uuid").to_owned(), text(&vm, "zonename").to_owned());
    let args = ["@vminfod", "events", "-r", "--url", &cli.vminfod_url()];
    let mut child = Child::spawn("events", &program(), &args).unwrap();
    assert!(line_with(&mut child, "").await.ends_with("] ready"));

    let dataset = text(&vm, "zfs_filesystem").to_owned();
    let zfs = cli.node().tool("zfs");
    let set = |quota: &'static str| {
        let (tool, dataset) = (zfs.clone(), dataset.clone());
        async move { process::run(&tool, &["set", quota, &dataset], LATE).await.unwrap() }
    };
    assert_eq!(set("quota=77g").await.code, Some(0));
    let old = vm["quota"].clone();
    let line = line_with(&mut child, " quota ").await;
    assert!(line.ends_with(&format!("] {zone} modify: quota changed :: {old} -> 77")), "{line}");
    assert!(line.starts_with("[20") && line.contains("Z] "), "{line}");

    cli.end("vminfod", true).await.unwrap();
    assert_eq!(set("quota=78g").await.code, Some(0));
    cli.start_vminfod().await.unwrap();
    // One is on stderr, the other one on stdout: they come in either order.
    let mut awaited = vec!["some events were missed", "] ready"];
    while !awaited.is_empty() {
        let line = line_with(&mut child, "").await;
        awaited.retain(|part| !line.contains(part));
    }
    cli.verbs().delete_raw(&uuid).await.unwrap();
    let line = line_with(&mut child, " delete").await;
    assert!(line.ends_with(&format!("] {zone} delete")), "{line}");

    let missing = cli.run(&["events", "00000000-0000-4000-8000-000000000000"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("not found"), "{}", missing.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_teaches_and_pages_are_generated() {
    let run = async |args: &[&str]| {
        let done = common::run(args).await;
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}");
        done.stdout
    };
    let dir = tempfile::tempdir().unwrap();
    let of_vminfod = "serve ping status vms vm events list lookup get why check completions man";
    let of_agent =
        "serve ping status plan reap hold extend release holds approve nic history completions man";
    let of_vm_agent = "serve ping status plan why vm approve completions man";
    let of_kvmd = "start serve ping status verdicts watch clear completions man";
    let of_console = "serve status completions man";
    for (program, commands) in [
        ("vminfod", of_vminfod),
        ("net-agent", of_agent),
        ("vm-agent", of_vm_agent),
        ("kvmd", of_kvmd),
        ("console", of_console),
    ] {
        let this = format!("@{program}");
        let overview = run(&[&this, "--help"]).await;
        assert!(overview.contains("Exit status: 0 done, 1 failed, 2 wrong usage"), "{overview}");
        let pages = dir.path().join(program);
        run(&[&this, "man", &pages.to_string_lossy()]).await;
        assert!(run(&[&this, "man"]).await.contains(&format!(".TH {program} 8")));
        for command in commands.split(' ') {
            assert!(overview.contains(&format!("\n  {command}")), "{command} in {overview}");
            let help = run(&[&this, command, "--help"]).await;
            assert!(help.contains(&format!("Examples:\n  {program}")), "{command}: {help}");
            let page = pages.join(format!("{program}-{command}.8"));
            assert!(read(&page).contains("Examples"), "{}", page.display());
        }
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let script = run(&[&this, "completions", shell]).await;
            assert!(script.contains("status") && script.contains("completions"), "{shell}");
        }
        let wrong = common::run(&[&this, "--nonsense"]).await;
        assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(2), 1), "{}", wrong.stderr);
        let close = common::run(&[&this, "statsu"]).await;
        assert!(close.stderr.contains("did you mean 'sta"), "{}", close.stderr);
        assert!(run(&[&this, "--version"]).await.contains("commit"), "{program}");
        let off = common::run(&[&this, "status", "--url", "http://127.0.0.1:9"]).await;
        let told =
            format!("{program}: {program} is not running: nothing answers on http://127.0.0.1:9\n");
        assert_eq!((off.code, off.stderr), (Some(1), told));
    }
}

/// The words in quotation marks of a section's first column.
fn told(reference: &str, program: &str) -> BTreeSet<String> {
    let section = reference.split("\n## ").find(|it| it.starts_with(&format!("{program}\n")));
    let rows = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let quoted = |cell: &str| -> Vec<String> {
        let words = format!("`{cell}");
        words
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|it| it.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    cells.flat_map(quoted).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_has_each_command_of_each_program() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let reference = read(&reference);
    for program in [
        "vminfod",
        "net-agent",
        "vm-agent",
        "fleet-agent",
        "sdc-fleet",
        "kvmd",
        "migration-agent",
        "console",
        "sdc-migrate",
        "migration-service",
        "volapi",
        "sdc-voladm",
    ] {
        let help = common::run(&[&format!("@{program}"), "--help"]).await.stdout;
        let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
        let listed = listed.lines().take_while(|line| !line.is_empty());
        // A description that goes on stands further to the right.
        let names =
            listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        let has: BTreeSet<String> = names
            .filter_map(|line| line.split(' ').next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect();
        let told = told(&reference, program);
        assert!(!has.is_empty(), "{program}: {help}");
        let lacks: Vec<_> = has.difference(&told).collect();
        let odd: Vec<_> = told.difference(&has).collect();
        assert!(lacks.is_empty() && odd.is_empty(), "{program}: lacks {lacks:?}, and has {odd:?}");
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_serves_the_hub_and_its_page() {
    // The testbed's own vminfod has no page.
    let cli = Lab::of(1).await;
    let refused = cli.run(&["serve", "--console"]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let vminfod = program().with_file_name("vminfod");
    if !vminfod.exists() {
        eprintln!("skipped: vminfod is not built here (cargo test --workspace builds it)");
        return;
    }
    // The lab's own vminfod has the socket of this root.
    let mut config: Value = serde_json::from_slice(&std::fs::read(cli.config()).unwrap()).unwrap();
    config["socket"] = serde_json::json!({"path": "none"});
    let file = cli.dir().join("second.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let config = file.display().to_string();
    let args = ["serve", "--config", &config, "--listen=127.0.0.1:0", "--console=127.0.0.1:0"];
    let mut child = Child::spawn("vminfod", &vminfod, &args.map(str::to_owned)).unwrap();
    let line = line_with(&mut child, "console is listening").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    let page = format!("http://{}", line["address"].as_str().unwrap());
    let vms = fetch(&page, "/ui/agents/vminfod/vms").await.unwrap();
    assert_eq!(vms.as_array().map(Vec::len), Some(1), "{vms}");
    child.stop(LATE).await.unwrap();
}
