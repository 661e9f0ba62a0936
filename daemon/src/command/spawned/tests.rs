// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real children, real time: short ones.

use std::time::Duration;

use super::*;
use crate::command::seam::STDERR_KEPT;

fn shell() -> Spawned {
    let all = [Program::Zoneadm, Program::Zfs, Program::Sysevent, Program::Vmadm];
    Spawned::new(all.into_iter().fold(Paths::default(), |paths, it| paths.with(it, "/bin/sh")))
}

fn script(text: &str) -> Vec<String> {
    vec!["-c".into(), text.into()]
}

const LONG: Duration = Duration::from_secs(20);

/// Whether the process is gone or dead and only waits to be reaped.
fn is_dead(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|s| s.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

async fn wait_dead(pid: i32) {
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    let seen = async {
        while !is_dead(pid) {
            tick.tick().await;
        }
    };
    tokio::time::timeout(LONG, seen).await.expect("the process was not killed");
}

#[tokio::test]
async fn returns_status_and_both_outputs() {
    let out = shell()
        .run(Call::new(Program::Zfs, script("echo out; echo bad >&2; exit 3"), LONG))
        .await
        .unwrap();
    assert_eq!(out, Output { status: 3, stdout: b"out\n".to_vec(), stderr: b"bad\n".to_vec() });
    assert_eq!(out.complaint(), "bad");
    let out = shell().run(Call::new(Program::Zfs, script("kill -9 $$"), LONG)).await.unwrap();
    assert_eq!(out.status, 137);
}

#[tokio::test]
async fn environment_is_fixed_and_stdin_empty() {
    let out = shell()
        .run(Call::new(Program::Zfs, script("cat; env | cut -d= -f1 | sort"), LONG))
        .await
        .unwrap();
    let names = String::from_utf8(out.stdout).unwrap();
    let names: Vec<&str> =
        names.lines().filter(|n| !matches!(*n, "PWD" | "SHLVL" | "_" | "OLDPWD")).collect();
    assert_eq!(names, ["LANG", "LC_ALL", "PATH"]);
}

#[tokio::test]
async fn deadline_kills_the_whole_group() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let text = format!("sleep 100 & echo $! > {}; wait", file.display());
    let error = shell()
        .run(Call::new(Program::Zoneadm, script(&text), Duration::from_millis(300)))
        .await
        .unwrap_err();
    assert!(matches!(error, CommandError::Deadline { program: Program::Zoneadm, .. }), "{error}");
    let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    assert!(is_dead(pid));
}

/// `vmadm start` waits for a boot that it has started; the boot has no pipe of vmadm's.
#[tokio::test] // S134
async fn not_done_is_said_when_no_child_of_the_program_runs_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    for wait in ["wait", "exit 0"] {
        let text =
            format!("sleep 100 >/dev/null 2>&1 & echo $! > {}; sleep 100 & {wait}", file.display());
        let call = Call::new(Program::Vmadm, script(&text), Duration::from_millis(300));
        let error = shell().run(call.with_input(b"{}".to_vec())).await.unwrap_err();
        let pid = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        assert!(is_dead(pid), "{wait}: {error}, and the child runs on");
    }
}

#[tokio::test]
async fn input_is_read_by_the_command_and_need_not_be() {
    let input = vec![b'x'; 300_000];
    for (text, want) in [("wc -c", "300000"), ("exec <&-; echo closed", "closed")] {
        let call = Call::new(Program::Vmadm, script(text), LONG).with_input(input.clone());
        let output = shell().run(call).await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), want);
    }
}

#[tokio::test]
async fn a_stream_has_two_ends_and_its_command_says_how_it_ended() {
    let start = |text, pipes| {
        shell().start(Launch::new(Program::Zfs, script(text), pipes)).unwrap().split()
    };
    let (_, mut stdout, ended) = start("echo stream", Pipes::Out);
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    assert_eq!((text.as_str(), ended.await), ("stream\n", Ok(())));
    let (mut stdin, _, ended) = start("read line; echo no >&2; echo $line >&2; exit 1", Pipes::In);
    stdin.write_all(b"line\n").await.unwrap();
    assert_eq!(ended.await, Err("no; line".to_owned()));
    let (_, _, ended) = start("exit 3", Pipes::In);
    assert_eq!(ended.await, Err("it ended with status 3".to_owned()));
}

#[tokio::test]
async fn deadline_also_ends_orphans_of_the_child() {
    let error = shell()
        .run(Call::new(Program::Zfs, script("sleep 100 &"), Duration::from_millis(100)))
        .await;
    assert!(matches!(error, Err(CommandError::Deadline { .. })));
}

#[tokio::test]
async fn too_much_output_kills_the_command() {
    let commands = Spawned { stdout_cap: 1000, ..shell() };
    let error = commands
        .run(Call::new(Program::Zfs, script("while :; do echo yyyyyyyyyyyyyyyy; done"), LONG))
        .await;
    assert!(matches!(error, Err(CommandError::TooMuch { cap: 1000, .. })));
}

#[tokio::test]
async fn long_stderr_neither_blocks_nor_grows() {
    let text =
        "i=0; while [ $i -lt 9000 ]; do echo 0123456789abcdef >&2; i=$((i+1)); done; echo done";
    let out = shell().run(Call::new(Program::Zfs, script(text), LONG)).await.unwrap();
    assert_eq!(out.stdout, b"done\n");
    assert_eq!(out.stderr.len() as u64, STDERR_KEPT);
}

#[tokio::test]
async fn drop_kills_the_group_of_a_followed_command() {
    let mut follow = shell()
        .start(Launch::new(Program::Sysevent, script("sleep 100 & echo $!; wait"), Pipes::Out))
        .unwrap();
    let mut pid = Vec::new();
    while !pid.ends_with(b"\n") {
        pid.push(follow.stdout.read_u8().await.unwrap());
    }
    let pid = String::from_utf8(pid).unwrap().trim().parse().unwrap();
    assert!(!is_dead(pid));
    drop(follow);
    wait_dead(pid).await;
}

#[tokio::test]
async fn followed_command_returns_its_exit_status() {
    let mut follow =
        shell().start(Launch::new(Program::Sysevent, script("exit 7"), Pipes::Out)).unwrap();
    assert_eq!(follow.wait().await, 7);
}

#[tokio::test]
async fn missing_program_is_named() {
    let paths = Paths::default().with(Program::Zfs, "/nowhere/zfs");
    let error = Spawned::new(paths).run(Call::new(Program::Zfs, vec![], LONG)).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/zfs"), "{error}");
}

#[tokio::test]
async fn lines_come_with_the_status_and_die_at_the_deadline() {
    let mut got = Vec::new();
    let mut each = |line: &[u8]| got.push(String::from_utf8_lossy(line).into_owned());
    let commands = shell();
    let text = script("printf 'a\\n\\nb'; echo bad >&2; exit 3");
    let out = commands.lines(Call::new(Program::Zfs, text, LONG), &mut each).await.unwrap();
    assert_eq!(out, Output { status: 3, stdout: b"b".to_vec(), stderr: b"bad\n".to_vec() });
    assert_eq!(got, ["a", ""], "a line that is cut off is none");
    let short = Duration::from_millis(100);
    let mut pid = 0;
    let mut each = |line: &[u8]| pid = String::from_utf8_lossy(line).parse().unwrap();
    let result =
        shell().lines(Call::new(Program::Zfs, script("echo $$; sleep 60"), short), &mut each).await;
    assert!(matches!(result, Err(CommandError::Deadline { .. })));
    assert!(is_dead(pid));
}
