// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a tenant writes into the properties of his datasets, on the simulated node, whose `zfs` prints
//! it as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::Shutdown;
use daemon::command::{Call, Commands, Program, Run};
use proptest::prelude::*;
use serde_json::{Value, json};
use simnode::in_process::InProcess;
use simnode::recorded::COLUMNS;
use simnode::{CreateOptions, Node};
use vm_model::parse::zfs_list::Row;
use vminfod::config::{Config, Watch};
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

/// The commands of a node, and how much they did.
#[derive(Clone)]
struct Counted {
    inner: InProcess,
    /// How often `zfs` ran, and how many datasets it printed.
    runs: Arc<AtomicUsize>,
    rows: Arc<AtomicUsize>,
}

impl Commands for Counted {
    fn run(&self, call: Call) -> Run<'_> {
        Box::pin(async move {
            let program = call.program;
            let output = self.inner.run(call).await?;
            if program == Program::Zfs {
                self.runs.fetch_add(1, Ordering::Relaxed);
                let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
                self.rows.fetch_add(lines, Ordering::Relaxed);
            }
            Ok(output)
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&self.inner)
    }
}

/// A node on which tenants have delegated datasets.
struct Tenants {
    _dir: tempfile::TempDir,
    node: Node,
    commands: Counted,
    ctx: Ctx,
    /// The delegated datasets.
    own: Vec<String>,
}

impl Tenants {
    fn new(vms: u32, tenants: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = CreateOptions { vms, ..CreateOptions::new(dir.path().join("cn")) };
        let node = Node::create(&options).unwrap();
        let inner = InProcess::new(&node);
        let commands = Counted { inner, runs: Default::default(), rows: Default::default() };
        let ctx = Ctx::new(Root::new(node.root()), Arc::new(commands.clone()));
        let mut made = Self { _dir: dir, node, commands, ctx, own: Vec::new() };
        let zones: Vec<String> =
            made.node.zones().unwrap().iter().map(|z| z.zonepath.clone()).collect();
        for zonepath in zones.iter().take(tenants) {
            let data = format!("{}/data", &zonepath[1..]);
            if made.node.datasets().unwrap().get(&data).is_none() {
                made.zfs(&["create", &data]);
            }
            made.zfs(&["set", "zoned=on", &data]);
            made.own.push(data);
        }
        made
    }

    fn zfs(&self, args: &[&str]) -> String {
        let (status, text, stderr) = self.tries(args);
        assert_eq!(status, 0, "{args:?}: {stderr}");
        text
    }

    fn tries(&self, args: &[&str]) -> (i32, String, String) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let output = self.commands.inner.answer(Program::Zfs, &args);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status, text(output.stdout), text(output.stderr))
    }

    /// What `zfs` prints of the node with all columns, as the deployed daemon asks for it.
    fn deployed(&self) -> String {
        let types = "filesystem,snapshot,volume";
        self.zfs(&["list", "-H", "-p", "-t", types, "-o", COLUMNS, "-d", "2"])
    }

    /// The text of a tenant: it looks like the rows of some other datasets, in each form in which they are
    /// printed. zfs takes fewer than 4,096 bytes.
    fn mimicry(&self, nth: usize) -> String {
        let printed = self.deployed();
        let rows = printed.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let fake = |cells: Vec<&str>| {
            let name = cells[4];
            let all = format!(
                "lz4\t1\t1\t/x\t{name}\t1099511627776\t1\t1\t1\t1\t{}\t0\t1\t1\t1\t1\toff",
                cells[10]
            );
            let few: Vec<&str> =
                all.split('\t').enumerate().filter(|(at, _)| *at != 3).map(|(_, it)| it).collect();
            format!("{all}\n{}\n{name}\t/y\n{name}\t1\t1\t1", few.join("\t"))
        };
        let some: Vec<String> = rows.skip(nth * 6).take(6).map(fake).collect();
        format!("/z\n{}\n/z", some.join("\n"))
    }

    /// A tenant says in his zone, or the node in its own, where a dataset is mounted. Returns false if `zfs` refuses.
    fn mounts(&self, data: &str, text: &str) -> bool {
        self.node.zfs(|all| all.set(data, "mountpoint", text)).is_ok()
    }

    /// Each tenant says that this is where his dataset is mounted.
    fn mount(&self, texts: &[String]) {
        for (data, text) in self.own.iter().zip(texts) {
            assert!(self.mounts(data, text), "{data}: {text}");
        }
    }

    fn texts(&self) -> Vec<String> {
        (0..self.own.len()).map(|nth| self.mimicry(nth)).collect()
    }

    async fn rows(&self) -> Vec<Row> {
        let mut rows = load::node(&self.ctx, load::Known::new(), 1, None).await.unwrap().datasets;
        rows.sort_by(|one, other| one.name().cmp(other.name()));
        rows
    }

    /// How often `zfs` ran since the last call, and how many datasets it printed.
    fn counts(&self) -> (usize, usize) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        (take(&self.commands.runs), take(&self.commands.rows))
    }
}

#[tokio::test(flavor = "multi_thread")] // S131, F101
async fn no_mountpoint_of_a_tenant_changes_what_is_shown_of_another() {
    let node = Tenants::new(6, 6);
    let truth = load::objects(&node.ctx).await.unwrap().vms;
    let rows = node.deployed().lines().count();
    node.mount(&node.texts());
    for data in &node.own {
        node.zfs(&["create", &format!("{data}/A b")]);
        node.zfs(&["create", &format!("{data}/a b")]);
    }
    assert!(node.deployed().lines().count() > rows + 100, "no row is mimicked");
    assert_eq!(load::objects(&node.ctx).await.unwrap().vms, truth);
    let config = Config {
        root: node.node.root(),
        listen: "127.0.0.1:0".parse().unwrap(),
        watch: Watch::Sweep,
        ..Config::default()
    };
    let shutdown = Shutdown::new();
    let commands = Arc::new(node.commands.clone());
    let running = vminfod::serve(config, commands, shutdown.clone()).await.unwrap();
    let get = async |path: String| {
        let answer = reqwest::get(format!("http://{}{path}", running.address)).await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    for path in ["/vms", "/vms?sync=true"] {
        assert_eq!(get(path.into()).await, json!(truth), "{path}");
    }
    for vm in &truth {
        let uuid = vm["uuid"].as_str().unwrap();
        assert_eq!(get(format!("/vms/{uuid}?sync=true")).await, json!(vm), "{uuid}");
    }
    shutdown.trigger();
    assert!(running.ended().await);
}

#[tokio::test] // S132, F101
async fn texts_of_ten_tenants_double_the_work_of_a_listing_at_most() {
    let node = Tenants::new(300, 10);
    let texts = node.texts();
    let deployed = node.deployed().lines().count();
    node.rows().await;
    let (runs, calm) = node.counts();
    assert_eq!(runs, 2, "names, mountpoints");
    node.mount(&texts);
    node.counts();
    let truth = node.rows().await;
    assert_eq!(
        node.counts(),
        (runs, calm),
        "delegated datasets are not asked where they are mounted"
    );
    assert!(calm * 10 <= deployed * 22, "{calm} rows, {deployed} as deployed");
    // Those that are delegated no more keep the text: each costs the look-ups that it is in.
    for data in &node.own {
        node.zfs(&["set", "zoned=off", data]);
        node.zfs(&["rename", data, &data.replace("/data", "/was")]);
    }
    node.counts();
    let now = node.rows().await;
    let (runs, _) = node.counts();
    assert!(runs <= 2 + 10 * 2 * 10, "{runs} commands");
    let others = |rows: &[Row]| -> Vec<Row> {
        let is_own = |row: &&Row| row.name().ends_with("/data") || row.name().ends_with("/was");
        rows.iter().filter(|row| !is_own(row)).cloned().collect()
    };
    assert_eq!(others(&now), others(&truth));
    let own: Vec<&Row> = now.iter().filter(|row| row.name().ends_with("/was")).collect();
    for row in &own {
        let at = node.own.iter().position(|data| data.replace("/data", "/was") == row.name());
        assert_eq!(row.mounted(), Some(&*texts[at.unwrap()]));
    }
    assert_eq!(own.len(), 10);
}

/// Any text, and such as looks like the rows of others.
fn text(others: Vec<String>) -> impl Strategy<Value = String> {
    let name = prop::sample::select(others);
    let row = prop_oneof![
        (name, "(\t/[xy]|\t[0-9]){1,3}").prop_map(|(name, rest)| name + &rest),
        "[ -~\t]{0,40}",
    ];
    proptest::collection::vec(row, 0..5).prop_map(|rows| format!("/mnt{}", rows.join("\n")))
}

#[test] // S131–S133, F101, F102
fn any_texts_leave_all_other_datasets_as_they_are() {
    let node = Tenants::new(4, 4);
    // One of the datasets is delegated no more.
    let was = node.own[0].replace("/data", "/was Mine");
    node.zfs(&["set", "zoned=off", &node.own[0]]);
    node.zfs(&["rename", &node.own[0], &was]);
    node.zfs(&["set", "mountpoint=none", &was]);
    let own: Vec<String> = [std::slice::from_ref(&was), &node.own[1..]].concat();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let truth = runtime.block_on(node.rows());
    let names: Vec<String> = truth.iter().map(|row| row.name().to_owned()).collect();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(48));
    let texts = proptest::collection::vec(text(names), own.len());
    let held = runner.run(&texts, |texts| {
        let mut taken = None;
        for (data, text) in own.iter().zip(&texts) {
            if node.mounts(data, text) && *data == was {
                taken = Some(text);
            }
        }
        let now = runtime.block_on(node.rows());
        prop_assert_eq!(now.len(), truth.len());
        for (now, before) in now.iter().zip(&truth) {
            match taken.filter(|_| now.name() == was) {
                Some(text) => prop_assert_eq!(now.mounted(), Some(text.as_str())),
                None => {
                    prop_assert!(now == before || now.name() == was, "{:?} was {:?}", now, before)
                }
            }
        }
        Ok(())
    });
    held.unwrap();
}
