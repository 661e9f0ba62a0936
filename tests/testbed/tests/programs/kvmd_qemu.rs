// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! kvmd against real QEMUs (TCG, one sector of guest): every row of the scenario table, with both
//! rules at once, each on a monitor of its own. Skipped with a message where QEMU is missing.

mod guest;
mod scenarios;

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::{Fields, Shutdown};
use kvmd::config::Config;
use kvmd::ledger::State;
use kvmd::service::{Running, serve};
use scenarios::{Scenario, Step};
use serde_json::{Value, json};
use testbed::process::Child;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::common::{LATE, until};

/// QEMUs at once.
const AT_ONCE: usize = 3;

fn qemu() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("qemu-system-x86_64"))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!(
            "skipped: no qemu-system-x86_64 (apt-get install --no-install-recommends qemu-system-x86)"
        );
    }
    found
}

/// A daemon with a control directory of its own.
struct Kvmd {
    dir: PathBuf,
    settings: Value,
    shutdown: Shutdown,
    running: Running,
}

impl Kvmd {
    async fn start(top: &Path, rule: &str) -> Self {
        let dir = top.join(rule);
        std::fs::create_dir_all(&dir).unwrap();
        let settings = json!({
            "enabled": true,
            "listen": "127.0.0.1:0",
            "rule": rule,
            "run_dir": top.join(format!("{rule}.run")),
            "control": {"enabled": true, "dir": dir},
        });
        let (shutdown, running) = Self::run(&settings).await;
        Self { dir, settings, shutdown, running }
    }

    async fn run(settings: &Value) -> (Shutdown, Running) {
        let fields = Fields::from_json(&settings.to_string()).unwrap();
        let shutdown = Shutdown::new();
        let config = Config::read(fields).unwrap().0;
        let running = serve(config, PathBuf::from("/"), shutdown.clone()).await.unwrap();
        (shutdown, running)
    }

    /// Stops the daemon and starts another on the same directories.
    async fn restart(self) -> Self {
        let Self { dir, settings, shutdown, running } = self;
        shutdown.trigger();
        assert!(running.ended().await, "tasks did not end");
        let (shutdown, running) = Self::run(&settings).await;
        Self { dir, settings, shutdown, running }
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.kvmd"))
    }

    fn is_marked(&self, name: &str) -> bool {
        self.dir.join(format!("{name}.shutdown")).exists()
    }

    async fn watching(&self, name: &str) {
        until(&format!("{name} is watched"), || {
            let snapshot = self.running.ledger.snapshot();
            ready(snapshot.instances.get(name).is_some_and(|it| it.state == State::Watching))
        })
        .await;
    }

    async fn verdict(&self, name: &str) -> Value {
        let mut found = Value::Null;
        until(&format!("a verdict on {name}"), || {
            let verdicts = self.running.ledger.snapshot().verdicts();
            found = verdicts.into_iter().find(|it| it["name"] == name).unwrap_or_default();
            ready(!found.is_null())
        })
        .await;
        found
    }
}

/// The monitor on which commands are given.
struct Monitor {
    lines: Lines<BufReader<OwnedReadHalf>>,
    write: OwnedWriteHalf,
    events: Vec<String>,
}

impl Monitor {
    async fn open(path: &Path) -> Self {
        let mut stream = None;
        let wait = async {
            while stream.is_none() {
                stream = UnixStream::connect(path).await.ok();
                tokio::time::sleep(Duration::from_millis(5)).await; // Until it listens.
            }
        };
        assert!(tokio::time::timeout(LATE, wait).await.is_ok(), "no monitor");
        let (read, write) = stream.unwrap().into_split();
        let mut monitor = Self { lines: BufReader::new(read).lines(), write, events: Vec::new() };
        monitor.execute(&[json!({"execute": "qmp_capabilities"})]).await;
        monitor
    }

    /// Gives commands in one write and waits for their answers, or for the end.
    async fn execute(&mut self, commands: &[Value]) {
        let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
        self.write.write_all(text.as_bytes()).await.unwrap();
        let mut answers = 0;
        while answers < commands.len() {
            let Some(line) = self.line().await else { return };
            assert!(line.get("error").is_none(), "{commands:?}: {line}");
            answers += usize::from(line.get("return").is_some());
        }
    }

    async fn line(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(LATE, self.lines.next_line()).await.expect("silence");
        let line: Value = serde_json::from_str(&line.ok()??).unwrap();
        if let Some(event) = line["event"].as_str() {
            let status = line["data"]["status"].as_str().map(|status| format!(" {status}"));
            self.events.push(format!("{event}{}", status.unwrap_or_default()));
        }
        Some(line)
    }

    async fn event(&mut self, wanted: &str) {
        while !self.events.iter().any(|event| event == wanted) {
            assert!(self.line().await.is_some(), "ended without {wanted}: {:?}", self.events);
        }
    }

    /// Waits until the guest wants the power button's event: bit 8 of the enable register.
    async fn armed(&mut self) {
        let line = "i/h 0x602";
        let read = json!({"execute": "human-monitor-command", "arguments": {"command-line": line}});
        let wait = async {
            loop {
                let answer = self.ask(&read).await;
                if answer["return"].as_str().is_some_and(|text| text.contains("0x0100")) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await; // A poll: nothing tells.
            }
        };
        assert!(tokio::time::timeout(LATE, wait).await.is_ok(), "the button was never armed");
    }

    /// Gives a command and waits for its answer.
    async fn ask(&mut self, command: &Value) -> Value {
        self.write.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        loop {
            let line = self.line().await.expect("it ended");
            if line.get("return").is_some() || line.get("error").is_some() {
                return line;
            }
        }
    }

    async fn command(&mut self, word: &str) {
        let with = |command, arguments| json!({"execute": command, "arguments": arguments});
        let commands = match (word, word.strip_prefix("hmp:")) {
            (_, Some(line)) => vec![with("human-monitor-command", json!({"command-line": line}))],
            ("events:migrate", _) => {
                let on = json!({"capabilities": [{"capability": "events", "state": true}]});
                vec![with("migrate-set-capabilities", on)]
            }
            ("migrate", _) => vec![with("migrate", json!({"uri": "exec:cat>/dev/null"}))],
            ("set-action", _) => vec![with("set-action", json!({"shutdown": "pause"}))],
            ("both", _) => ["system_powerdown", "quit"].map(|word| json!({"execute": word})).into(),
            (word, _) => vec![json!({"execute": word})],
        };
        self.execute(&commands).await;
    }
}

fn spawn(program: &Path, top: &Path, scenario: &Scenario, sockets: &[PathBuf]) -> Child {
    let disk = guest::disk(top, scenario.name, &scenario.guest);
    let mut args: Vec<String> = "-accel tcg -nodefaults -no-user-config -display none -S -snapshot"
        .split(' ')
        .map(str::to_owned)
        .collect();
    if !scenario.args.contains(&"-machine") {
        args.extend(["-machine", "pc", "-m", "16"].map(str::to_owned));
    }
    args.extend(scenario.args.iter().map(|arg| (*arg).to_owned()));
    args.extend(["-drive".to_owned(), format!("file={},format=raw,if=ide", disk.display())]);
    for socket in sockets {
        args.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", socket.display())]);
    }
    // A test run in the background may have been told to ignore SIGQUIT, and its children with it.
    args.splice(..0, ["--default-signal".to_owned(), program.display().to_string()]);
    Child::spawn(scenario.name, Path::new("/usr/bin/env"), &args).unwrap()
}

/// Plays a scenario; gives what is wrong.
async fn play(program: &Path, top: &Path, scenario: &Scenario, daemons: &[Kvmd; 2]) -> Vec<String> {
    let name = scenario.name;
    let control = top.join(format!("{name}.ctl"));
    let mut sockets: Vec<PathBuf> = daemons.iter().map(|daemon| daemon.socket(name)).collect();
    sockets.push(control.clone());
    let mut child = spawn(program, top, scenario, &sockets);
    let mut monitor = Monitor::open(&control).await;
    for daemon in daemons {
        daemon.watching(name).await;
    }
    for step in &scenario.steps {
        match step {
            Step::Command(word) => monitor.command(word).await,
            Step::Event(event) => monitor.event(event).await,
            Step::Send(signal) => child.signal(*signal),
            Step::Armed => monitor.armed().await,
        }
    }
    let mut wrong = Vec::new();
    let [ours, shipped] = daemons;
    let verdict = ours.verdict(name).await;
    let said = |key: &str| verdict[key].as_str().unwrap_or("-").to_owned();
    let got = format!("{}/{}", said("initiator"), said("kind"));
    if !scenario.ours.split(" or ").any(|wanted| wanted == got) {
        wrong.push(format!("{name}: {got}, not {}: {}", scenario.ours, verdict["evidence"]));
    }
    let wish = matches!(got.as_str(), "guest/poweroff" | "guest/hibernate");
    if ours.is_marked(name) != wish || verdict["user"] != json!(wish) {
        wrong.push(format!("{name}: marker by our rule is {}", ours.is_marked(name)));
    }
    let verdict = shipped.verdict(name).await;
    let marked = shipped.is_marked(name);
    if marked != scenario.shipped || verdict["user"] != json!(scenario.shipped) {
        wrong.push(format!("{name}: marker by the shipped rule is {marked}"));
    }
    child.signal(rustix::process::Signal::KILL);
    child.wait().await.unwrap();
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn every_row_of_the_scenario_table_on_a_real_qemu() {
    let Some(program) = qemu() else { return };
    let top = tempfile::tempdir().unwrap();
    let daemons =
        [Kvmd::start(top.path(), "reason").await, Kvmd::start(top.path(), "ganeti").await];
    let shared = Arc::new((program, top.path().to_owned(), daemons));
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut playing = JoinSet::new();
    let rows = scenarios::all();
    let count = rows.len();
    for scenario in rows {
        let (shared, turns) = (Arc::clone(&shared), Arc::clone(&turns));
        playing.spawn(async move {
            let _turn = turns.acquire_owned().await.unwrap();
            let (program, top, daemons) = &*shared;
            play(program, top, &scenario, daemons).await
        });
    }
    let mut wrong = Vec::new();
    while let Some(played) = playing.join_next().await {
        wrong.extend(played.unwrap());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (_, _, [ours, shipped]) = &*shared;
    for daemon in [ours, shipped] {
        // One verdict each, and nobody left.
        let snapshot = daemon.running.ledger.snapshot();
        assert_eq!(snapshot.counts.verdicts, count as u64);
        assert!(snapshot.instances.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn a_real_qemu_is_known_again_after_a_restart_of_the_daemon() {
    let Some(program) = qemu() else { return };
    let top = tempfile::tempdir().unwrap();
    let kvmd = Kvmd::start(top.path(), "reason").await;
    let control = top.path().join("vm1.ctl");
    let scenario = Scenario {
        name: "vm1",
        guest: guest::after(60, &guest::acpi(5)),
        args: Vec::new(),
        steps: Vec::new(),
        ours: "",
        shipped: false,
    };
    let sockets = [kvmd.socket("vm1"), control.clone()];
    let mut child = spawn(&program, top.path(), &scenario, &sockets);
    let mut monitor = Monitor::open(&control).await;
    kvmd.watching("vm1").await;
    monitor.command("system_powerdown").await;
    let kept = top.path().join("reason.run/histories/vm1.json");
    until("the request was written down", async || {
        std::fs::read_to_string(&kept).is_ok_and(|text| text.contains("POWERDOWN"))
    })
    .await;
    let kvmd = kvmd.restart().await;
    kvmd.watching("vm1").await;
    monitor.command("cont").await;
    let verdict = kvmd.verdict("vm1").await;
    assert_eq!((&verdict["initiator"], &verdict["kind"]), (&json!("host"), &json!("powerdown")));
    assert!(!kvmd.is_marked("vm1"));
    child.wait().await.unwrap();
}
