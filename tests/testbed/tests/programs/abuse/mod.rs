// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Abuse of the listeners of real vminfod, net-agent and kvmd processes: half heads, bombs, junk,
//! smuggling pairs, readers that do not read, thousands who only wait, and resets in the middle of
//! an event. Afterwards each daemon answers at once, holds no descriptor more, and its memory is
//! within a stated bound; what was measured is printed. It changes the limits of its process, so it has one of its own.

mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Map, json};
use simnode::edits::ConfigMap;
use simnode::{Verbs, Wait};
use testbed::held::{Held, held};
use testbed::lab::{World, WorldOptions};
use testbed::process;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use self::wire::{Target, crowd, get, get_one, say, status_of};

/// A busy machine gets this long for anything.
const LATE: Duration = Duration::from_secs(60);
/// After all of it `/ping` takes no longer.
const PING: Duration = Duration::from_secs(2);
/// What a daemon may keep in memory of it all, besides the listeners.
const KEPT: u64 = 48 << 20;
/// What a waiting listener may cost.
const EACH: u64 = 32 << 10;
/// Connections that the two agents and this test's own client keep open to vminfod for later.
const POOLED: u64 = 4;
/// vminfod's limits of a head and of a write here; the other two have those of production.
const SHORT: Duration = Duration::from_millis(1500);
/// Production's limit of a head.
const HEAD: Duration = Duration::from_secs(10);
/// How the daemons are started: far below what they are ready to hold.
const STARTED_WITH: u64 = 256;

#[tokio::test]
async fn daemons_outlive_abuse_and_keep_nothing_of_it() {
    let own = ["--exact", "abuse::in_a_process_of_its_own", "--ignored", "--nocapture"];
    let done = process::run(&std::env::current_exe().unwrap(), &own, 20 * LATE).await.unwrap();
    println!("{}", done.stdout);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("1 passed"), "it is not there under this name");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of daemons_outlive_abuse_and_keep_nothing_of_it"]
async fn in_a_process_of_its_own() {
    // On a worker: children end with the thread that started them.
    tokio::spawn(abuse()).await.unwrap();
}

async fn abuse() {
    let dir = tempfile::tempdir().unwrap();
    let limits = json!({"http": {
        "head": format!("{}ms", SHORT.as_millis()), "write": format!("{}ms", SHORT.as_millis()),
        "requests_per_second": 0,
    }});
    let mut world = World::create(WorldOptions {
        vms: 2,
        vminfod: limits.as_object().cloned().unwrap(),
        ..WorldOptions::new(dir.path().join("cn"), PathBuf::from(env!("CARGO_BIN_EXE_testbed")))
    })
    .await
    .unwrap();
    let most = start(&mut world).await;

    let targets = [
        Target::new("vminfod", &world.vminfod_url(), world.pid("vminfod").unwrap(), SHORT),
        Target::new("net-agent", &world.agent_url(), world.pid("net-agent").unwrap(), HEAD),
        Target::new("kvmd", &world.kvmd_url(), world.pid("kvmd").unwrap(), HEAD),
    ];
    for target in &targets {
        let soft = soft_limit(target.pid);
        let needs = if target.name == "net-agent" { 512 } else { 16_384 };
        println!("{}: started with {STARTED_WITH} descriptors allowed, has {soft}", target.name);
        assert!(soft >= most.min(needs + 1024), "{}: {soft} of {most}", target.name);
    }
    let mut before = Vec::new();
    for target in &targets {
        target.ping().await;
        before.push(at_rest(target.pid).await);
    }
    let verbs = Verbs::new(world.node(), Wait::at(&world.vminfod_url()).unwrap());
    let vm = world.node().zones().unwrap().iter().next().unwrap().zonename.clone();

    // The slow ones need their whole limit: all daemons at once.
    let [hub, agent, kvmd] = &targets;
    let ((), (), (), waiting) = tokio::join!(
        one_daemon(hub),
        one_daemon(agent),
        one_daemon(kvmd),
        crowds(hub, kvmd, &verbs, &vm, usize::try_from(most).unwrap()),
    );
    deaf(hub).await;

    for (target, before) in targets.iter().zip(&before) {
        let listeners = if target.name == "vminfod" { waiting } else { 0 };
        judge(target, before, listeners).await;
    }
    world.stop().await.unwrap();
}

/// Starts all three with a low soft limit, which they raise; what this process may have itself.
async fn start(world: &mut World) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(STARTED_WITH), maximum }).unwrap();
    world.start_vminfod().await.unwrap();
    world.start_agent().await.unwrap();
    world.start_kvmd().await.unwrap();
    let most = maximum.unwrap_or(1 << 20);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).unwrap();
    most
}

/// What every listener has to stand, whatever it serves.
async fn one_daemon(target: &Target) {
    let slow = slowloris(target);
    let rude = async {
        bombs(target).await;
        smuggling(target).await;
        junk(target).await;
    };
    tokio::join!(slow, rude);
}

/// Heads that never end: in the first line, in a header, and one byte at a time.
async fn slowloris(target: &Target) {
    let began = Instant::now();
    let halves =
        ["GET /pi", "GET /ping HTTP/1.1\r\nHo", "GET /ping HTTP/1.1\r\nHost: localhost\r\n"];
    let mut held = Vec::new();
    for nth in 0..60 {
        let mut stream = TcpStream::connect(target.at).await.unwrap();
        stream.write_all(halves[nth % halves.len()].as_bytes()).await.unwrap();
        held.push(stream);
    }
    for stream in &mut held[..20] {
        // A byte more now does not make the limit begin again.
        let _cut = stream.write_all(b"x").await;
    }
    for mut stream in held {
        let answer = wire::until_closed(&mut stream).await;
        assert!(!answer.contains("pong"), "{}: {answer}", target.name);
    }
    let took = began.elapsed();
    println!("{}: 60 half heads cut after {took:.1?} (limit {:?})", target.name, target.head);
    assert!(took >= target.head && took < target.head + Duration::from_secs(15), "{took:?}");
}

/// Heads that are too big: 10,000 headers, a megabyte in one, a megabyte of target.
async fn bombs(target: &Target) {
    let many: String = (0..10_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let big = "x".repeat(1 << 20);
    for (what, request) in [
        ("10,000 headers", format!("GET /ping HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")),
        ("a 1 MB header", format!("GET /ping HTTP/1.1\r\nHost: localhost\r\nX: {big}\r\n\r\n")),
        ("a 1 MB target", format!("GET /{big} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    ] {
        let answers = say(target.at, request.as_bytes()).await;
        println!("{}: {what}: {}", target.name, status_of(&answers));
        let refused = answers.is_empty() || answers.starts_with("HTTP/1.1 4");
        assert!(refused && !answers.contains("pong"), "{}: {what}: {answers}", target.name);
    }
}

/// Requests whose end two parsers see at two places: the second request in each must never be
/// answered as one of its own.
async fn smuggling(target: &Target) {
    let inner = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = "GET /nowhere HTTP/1.1\r\nHost: localhost\r\n";
    for (what, request) in [
        (
            "CL+TE",
            format!(
                "{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
            ),
        ),
        (
            "TE+CL",
            format!(
                "{head}Transfer-Encoding: chunked\r\nContent-Length: {}\r\n\r\n0\r\n\r\n{inner}",
                5 + inner.len()
            ),
        ),
        ("two CLs", format!("{head}Content-Length: 0\r\nContent-Length: 40\r\n\r\n{inner}")),
        ("two CLs in one", format!("{head}Content-Length: 0, 40\r\n\r\n{inner}")),
        ("CL with a sign", format!("{head}Content-Length: +0\r\n\r\n{inner}")),
        ("TE that is none", format!("{head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{inner}")),
        ("obs-fold", format!("{head}X: a\r\n Content-Length: 40\r\n\r\n{inner}")),
        ("a space before the colon", format!("{head}Content-Length : 40\r\n\r\n{inner}")),
        ("a bare CR", format!("{head}X: a\rContent-Length: 40\r\n\r\n{inner}")),
        ("NUL in a header", format!("{head}X: a\0b\r\n\r\n{inner}")),
    ] {
        let answers = say(target.at, request.as_bytes()).await;
        println!("{}: {what}: {}", target.name, status_of(&answers));
        assert!(!answers.contains("pong"), "{}: {what}: {answers}", target.name);
    }
    // Two that nobody can object to are two; else nothing above would say anything.
    let two = format!("{}{inner}", get("/nowhere"));
    assert!(say(target.at, two.as_bytes()).await.contains("pong"), "{}", target.name);
    // A lone line feed ends a line for the shipped services too: one request, one answer.
    let answers = say(target.at, b"GET /ping HTTP/1.1\nHost: localhost\n\n").await;
    println!("{}: bare LF: {}", target.name, status_of(&answers));
    assert!(answers.matches("HTTP/1.").count() <= 1, "{}: bare LF: {answers}", target.name);
}

/// A request and then no HTTP at all: it is answered, the rest is refused; and odd paths.
async fn junk(target: &Target) {
    let noise: Vec<u8> =
        (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut request = get("/ping").into_bytes();
    request.extend_from_slice(&noise);
    let answers = say(target.at, &request).await;
    println!("{}: pipelined junk: {}", target.name, status_of(&answers));
    assert!(answers.matches("pong").count() <= 1, "{}: {answers}", target.name);
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET /ping\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"]
    {
        let answers = say(target.at, bytes).await;
        assert!(!answers.contains("pong"), "{}: {answers}", target.name);
    }
    for path in ["/vms/\0", "/vms/../../etc/passwd", "/vms/%2e%2e/%2e%2e/etc/passwd"] {
        let answers = get_one(target.at, path).await;
        println!("{}: {path:?}: {}", target.name, status_of(&answers));
        assert!(!answers.contains("root:") && !answers.contains(" 200 "), "{path:?}: {answers}");
    }
}

/// Listeners that wait, as many as the limits allow up to 10,000, twice, and resets among them in
/// the middle of events; one that reads all the time keeps its place. How many waited.
async fn crowds(hub: &Target, kvmd: &Target, verbs: &Verbs, vm: &str, most: usize) -> usize {
    let wanted = most.saturating_sub(1500).min(10_000);
    let mut honest = wire::listener(hub, None).await;
    let mut peaks = Vec::new();
    for time in 0..2 {
        let began = Instant::now();
        let waiting = crowd(hub, wanted).await;
        let beside = crowd(kvmd, 500.min(wanted)).await;
        let peak = held(hub.pid).unwrap();
        println!(
            "vminfod: {} idle listeners, opened in {:.1?}: RSS {} MiB, {} descriptors; kvmd: {}",
            waiting.len(),
            began.elapsed(),
            peak.rss >> 20,
            peak.fds,
            beside.len()
        );
        assert!(peak.fds > wanted as u64, "{peak:?}");
        hub.ping().await;
        resets(hub, verbs, vm, &mut honest, time).await;
        // Half of them leave as clients do, half are cut as machines are when they crash.
        for (nth, stream) in waiting.into_iter().enumerate() {
            if nth % 2 == 0 {
                wire::reset(stream);
            }
        }
        drop(beside);
        let began = Instant::now();
        while held(hub.pid).unwrap().fds > 200 && began.elapsed() < LATE {
            sleep(Duration::from_millis(25)).await;
        }
        peaks.push(peak.rss);
    }
    // What the first ones took is there for the next.
    assert!(peaks[1] <= peaks[0] + peaks[0] / 10 + (8 << 20), "{peaks:?}");
    wanted
}

/// Listeners that are reset while events are on their way to them.
async fn resets(hub: &Target, verbs: &Verbs, vm: &str, honest: &mut TcpStream, time: u64) {
    let mut doomed = crowd(hub, 50).await;
    for round in 0..2 {
        let began = Instant::now();
        let value = format!("abuse-{time}-{round}");
        let tag = Map::from_iter([("abuse".to_owned(), json!(value))]);
        verbs.set_map(vm, ConfigMap::Tags, tag, Vec::new()).await.unwrap();
        wire::until_line(honest, &value).await;
        println!("vminfod: an event reached the one that reads after {:.1?}", began.elapsed());
        for stream in doomed.drain(..25) {
            wire::reset(stream);
        }
    }
}

/// Readers that ask for much and take nothing, or a byte now and then: cut after the write limit,
/// while their own ends are still open.
async fn deaf(hub: &Target) {
    let before = at_rest(hub.pid).await;
    let began = Instant::now();
    let asked = get("/vms").repeat(2000);
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = wire::small_window(hub.at).await;
        // The daemon stops taking when nobody takes from it.
        let _full = tokio::time::timeout(SHORT / 4, stream.write_all(asked.as_bytes())).await;
        streams.push(stream);
    }
    let mut left = Held::default();
    while began.elapsed() < LATE {
        left = held(hub.pid).unwrap();
        if left.fds <= before.fds {
            break;
        }
        for stream in streams.iter_mut().take(4) {
            wire::one_byte(stream).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
    println!(
        "vminfod: 8 readers that do not read cut after {:.1?} (limit {SHORT:?})",
        began.elapsed()
    );
    assert!(left.fds <= before.fds, "{before:?} {left:?}");
}

/// Answers at once, nothing of the abuse left open, memory in bounds.
async fn judge(target: &Target, before: &Held, listeners: usize) {
    let mut after = held(target.pid).unwrap();
    let began = Instant::now();
    let most = before.fds + POOLED;
    while (after.fds > most || after.zombies > 0) && began.elapsed() < LATE {
        sleep(Duration::from_millis(50)).await;
        after = held(target.pid).unwrap();
    }
    let ping = Instant::now();
    assert!(get_one(target.at, "/ping").await.contains("pong"), "{}", target.name);
    let ping = ping.elapsed();
    let bound = before.rss + KEPT + EACH * listeners as u64;
    println!(
        "{}: /ping {ping:.1?} (bound {PING:?}), RSS {} -> {} MiB (bound {}), descriptors {} -> {}",
        target.name,
        before.rss >> 20,
        after.rss >> 20,
        bound >> 20,
        before.fds,
        after.fds
    );
    assert!(ping <= PING && after.rss <= bound && after.fds <= most, "{before:?} {after:?}");
    assert_eq!(after.zombies, 0, "{}", target.name);
}

/// What a process holds when it does nothing: the least of some looks, as commands come and go.
async fn at_rest(pid: u32) -> Held {
    let mut least = held(pid).unwrap();
    for _ in 0..20 {
        sleep(Duration::from_millis(25)).await;
        let now = held(pid).unwrap();
        if now.fds < least.fds {
            least = now;
        }
    }
    least
}

fn soft_limit(pid: u32) -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("limits"));
    let text = text.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap_or(u64::MAX)
}
