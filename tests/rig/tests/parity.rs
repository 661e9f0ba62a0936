// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated node's `zfs` is held to real ZFS: the same commands on both end alike, say the same
//! kind of thing, and leave the same snapshots and properties.

#![allow(clippy::unwrap_used)] // a failed step of a test is a failed test

use std::collections::HashMap;

use daemon::command::Program;
use rig::Cn;
use simnode::in_process::InProcess;
use simnode::node::Zfs;
use simnode::streams::receive::receive;
use simnode::streams::send::{Then, send};
use simnode::{CreateOptions, Node};
use tempfile::TempDir;

/// What the messages are told apart by; the first that fits counts.
const KINDS: [&str; 41] = [
    "most recent snapshot of",
    "has been modified",
    "is a clone",
    "destination has snapshots",
    "must specify -F",
    "local origin for clone",
    "out of space",
    "checksum mismatch",
    "invalid backup stream",
    "failed to read from stream",
    "incremental source (",
    "same filesystem",
    "not an earlier snapshot",
    "argument must be a snapshot",
    "dependent clones",
    "has children",
    "more recent snapshots",
    "already exists",
    "parent does not exist",
    "does not exist",
    "already mounted",
    "not currently mounted",
    "less than current used",
    "invalid property",
    "is readonly",
    "bad numeric value",
    "missing '@'",
    "cannot be inherited",
    "invalid character",
    "empty component",
    "leading slash",
    "trailing slash",
    "multiple '@'",
    "must be an absolute path",
    "component of 'mountpoint' is too long",
    "'mountpoint' is too long",
    "not applicable",
    "dataset is busy",
    "tag already exists",
    "no such tag",
    "too long",
];
/// Wrong usage, told apart further.
const USAGE: [&str; 3] = ["invalid option", "unrecognized command", "missing snapshot"];

/// How a command ended: its status and the kind of its message.
type Ended = (i32, String);

fn ended(status: i32, stderr: &str) -> Ended {
    let mut kinds = KINDS.iter().chain(&USAGE);
    let kind = kinds.find(|kind| stderr.contains(**kind));
    (status, if status == 0 { String::new() } else { kind.map_or(stderr, |kind| kind).to_string() })
}

/// A node of either sort.
trait Machine {
    fn zfs(&self, line: &str) -> (Ended, String);
    fn send(&self, line: &str) -> (Ended, Vec<u8>);
    fn receive(&self, line: &str, stream: &[u8]) -> Ended;
    fn write(&self, dataset: &str, path: &str, bytes: &[u8]);
}

impl Machine for Cn {
    fn zfs(&self, line: &str) -> (Ended, String) {
        let args = words(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = Cn::zfs(self, &args).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A command that aborts is ended by a signal.
        let status = output.status.code().unwrap_or(134);
        (ended(status, &said), String::from_utf8(output.stdout).unwrap())
    }

    fn send(&self, line: &str) -> (Ended, Vec<u8>) {
        let words = words(line);
        let words = words.iter().map(String::as_str);
        let args: Vec<&str> = std::iter::once("send").chain(words).collect();
        let output = Cn::zfs(self, &args).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        (ended(output.status.code().unwrap(), &said), output.stdout)
    }

    fn receive(&self, line: &str, stream: &[u8]) -> Ended {
        let words = words(line);
        let words = words.iter().map(String::as_str);
        let args: Vec<&str> = std::iter::once("receive").chain(words).collect();
        let output = self.zfs_with(&args, stream).unwrap();
        ended(output.status.code().unwrap(), &String::from_utf8_lossy(&output.stderr))
    }

    fn write(&self, dataset: &str, path: &str, bytes: &[u8]) {
        std::fs::write(self.path(dataset, path), bytes).unwrap();
    }
}

/// The arguments of a command; a blank, a tab and a line end in one are written `␠`, `␉` and `␊`.
fn words(line: &str) -> Vec<String> {
    line.split(' ')
        .map(|word| word.replace('␠', " ").replace('␉', "\t").replace('␊', "\n"))
        .collect()
}

impl Machine for Node {
    fn zfs(&self, line: &str) -> (Ended, String) {
        let output = InProcess::new(self).answer(Program::Zfs, &words(line));
        let said = String::from_utf8_lossy(&output.stderr);
        (ended(output.status, &said), String::from_utf8(output.stdout).unwrap())
    }

    fn send(&self, line: &str) -> (Ended, Vec<u8>) {
        match send(self, &words(line)) {
            Ok(out) => match out.then {
                Then::Ends(status, said) => (ended(status.into(), &said), out.bytes),
                Then::Hangs => unreachable!("nothing was told to hang"),
            },
            Err(failed) => (ended(failed.0.into(), &failed.1), Vec::new()),
        }
    }

    fn receive(&self, line: &str, stream: &[u8]) -> Ended {
        let run = || {
            let Some(mut receiver) = receive(self, &words(line))? else { return Ok(()) };
            receiver.push(stream)?;
            receiver.finish()
        };
        run().map_or_else(|failed| ended(failed.0.into(), &failed.1), |()| ended(0, ""))
    }

    fn write(&self, dataset: &str, path: &str, bytes: &[u8]) {
        self.write_file(dataset, path, bytes).unwrap();
    }
}

/// What of a stream is received.
#[derive(Clone, Copy, Debug)]
enum Part {
    Whole,
    /// The first so many percent.
    Percent(usize),
    /// All, with a bit changed after so many percent.
    Flip(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A command on the source.
    S(&'static str),
    /// A command on the target.
    T(&'static str),
    /// A file of so many KiB on the source, on the target.
    WriteS(&'static str, &'static str, usize),
    WriteT(&'static str, &'static str, usize),
    /// A stream from the source, under a name.
    Send(&'static str, &'static str),
    /// A stream to the target.
    Receive(&'static str, &'static str, Part),
    /// The datasets and their properties of a tree on the target.
    Shows(&'static str),
    /// A command on the target, and all that it prints.
    Prints(&'static str),
}

use Part::{Flip, Percent, Whole};
use Step::{Prints, Receive, S, Send, Shows, T, WriteS, WriteT};

const STORY: &[Step] = &[
    // A tree, whole.
    S("create zones/s"),
    S("create zones/s/c"),
    T("create zones/t"),
    WriteS("zones/s", "f", 3),
    WriteS("zones/s/c", "g", 300),
    S("set a:b=x zones/s"),
    S("set quota=100m zones/s"),
    S("set recordsize=16384 zones/s/c"),
    S("snapshot -r zones/s@1"),
    Send("full", "zones/s@1"),
    Send("tree", "-R zones/s@1"),
    Send("props", "-p zones/s/c@1"),
    Receive("full", "-u zones/t/one", Whole),
    Receive("full", "-u zones/t/one", Whole),
    Receive("full", "-u -F zones/t/one", Whole),
    Receive("tree", "-u zones/t/one", Whole),
    Receive("tree", "-u -F zones/t/one", Whole),
    Receive("full", "-u zones/none/x", Whole),
    Receive("tree", "-u -F zones/t/r", Whole),
    Receive("props", "-u zones/t/p", Whole),
    Shows("zones/t"),
    // Increments.
    WriteS("zones/s", "f", 40),
    WriteS("zones/s/c", "g", 300),
    S("snapshot -r zones/s@2"),
    S("create zones/s/n"),
    WriteS("zones/s/n", "h", 5),
    WriteS("zones/s", "i", 5),
    S("snapshot -r zones/s@3"),
    Send("12", "-i @1 zones/s@2"),
    Send("23", "-i zones/s@2 zones/s@3"),
    Send("r13", "-R -I @1 zones/s@3"),
    Send("none", "-i @9 zones/s@3"),
    Send("other", "-i zones/s/c@1 zones/s@3"),
    Send("late", "-i @3 zones/s@1"),
    Send("self", "-i @3 zones/s@3"),
    Send("missing", "zones/s@9"),
    Send("nothing", "zones/nope@9"),
    Send("dataset", "zones/s"),
    Receive("23", "-u zones/t/r", Whole),
    Receive("23", "-u -F zones/t/r", Whole),
    T("mount zones/t/r"),
    T("mount zones/t/r"),
    WriteT("zones/t/r", "new", 1),
    Receive("12", "-u zones/t/r", Whole),
    Receive("r13", "-u zones/t/r", Whole),
    T("unmount zones/t/r"),
    T("unmount zones/t/r"),
    Receive("12", "-u zones/t/r", Whole),
    Receive("r13", "-u -F zones/t/r", Whole),
    Shows("zones/t/r"),
    Receive("r13", "-u -F zones/t/r", Whole),
    Receive("12", "-u -F zones/t/r", Whole),
    // A replica drops what the source does not have.
    T("snapshot zones/t/r@extra"),
    // Not mounted: zfs-fuse may find its unmount not ended, keep it under another name and fail.
    T("create -o canmount=off zones/t/r/xtra"),
    T("set a:local=1 zones/t/r"),
    T("set a:b=mine zones/t/r"),
    S("destroy zones/s@2"),
    S("set quota=200m zones/s"),
    S("snapshot -r zones/s@4"),
    Send("34", "-i @3 zones/s@4"),
    Send("r34", "-R -I @3 zones/s@4"),
    Receive("34", "-u -F zones/t/r", Whole),
    Shows("zones/t/r"),
    Receive("r34", "-u -F zones/t/r", Whole),
    Shows("zones/t/r"),
    T("inherit a:b zones/t/r"),
    T("inherit quota zones/t/r"),
    Shows("zones/t/r"),
    // Streams that end early, and damaged ones.
    Send("all", "-R zones/s@4"),
    Receive("full", "-u zones/t/cut", Percent(0)),
    Receive("full", "-u zones/t/cut", Percent(50)),
    Receive("full", "-u zones/t/cut", Percent(99)),
    Receive("all", "-u zones/t/cut", Percent(1)),
    Shows("zones/t"),
    Receive("full", "-u zones/t/bad", Flip(50)),
    Shows("zones/t"),
    // An image and a VM.
    S("create zones/img"),
    WriteS("zones/img", "os", 100),
    S("snapshot zones/img@final"),
    S("clone zones/img@final zones/vm"),
    WriteS("zones/vm", "own", 10),
    S("snapshot -r zones/vm@1"),
    Send("image", "zones/img@final"),
    Send("vm", "-R zones/vm@1"),
    Send("vmi", "-i zones/img@final zones/vm@1"),
    Receive("vm", "-u zones/vm", Whole),
    Receive("image", "-u zones/img", Whole),
    Receive("vm", "-u zones/vm", Whole),
    T("clone zones/img@final zones/pre"),
    Receive("vm", "-u -F zones/pre", Whole),
    Receive("vmi", "-u zones/vmi", Whole),
    Shows("zones/vm"),
    Shows("zones/vmi"),
    T("destroy zones/img@final"),
    T("destroy -r zones/img"),
    // A quota that is too small.
    T("create zones/q"),
    T("set quota=2m zones/q"),
    WriteS("zones/s", "big", 5000),
    S("snapshot zones/s@big"),
    Send("big", "zones/s@big"),
    Receive("big", "-u zones/q/x", Whole),
    Shows("zones/q"),
    T("set quota=none zones/q"),
    Receive("big", "-u zones/q/x", Whole),
    T("set quota=1m zones/q"),
    S("set quota=1m zones/s"),
    // Every name, at every depth.
    S("create zones/odd"),
    S("create zones/odd/a␠b"),
    S("create zones/odd/a␠b/-x:y.z_"),
    S("create zones/odd/A␠B"),
    S("create -o canmount=off zones/odd/..."),
    S("create zones/odd/a%b"),
    S("create zones/odd/a+b"),
    S("create zones/odd//c"),
    S("create zones/odd/c/"),
    S("snapshot zones/odd@a%b"),
    S("snapshot zones/odd@it␠is:-.1"),
    S("snapshot -r zones/odd@1"),
    Send("odd", "-R zones/odd@1"),
    Send("odd1", "zones/odd/a␠b@1"),
    Receive("odd", "-u zones/t/odd", Whole),
    Receive("odd1", "-u zones/t/odd␠1", Whole),
    Shows("zones/t/odd"),
    T("destroy zones/t/odd@it␠is:-.1"),
    T("destroy -r zones/t/odd␠1"),
    // Holds.
    S("hold mine zones/odd@1"),
    S("hold mine zones/odd@1"),
    S("hold a␠tag zones/odd@1"),
    S("hold -r all zones/odd@1"),
    S("destroy zones/odd@1"),
    S("destroy -r zones/odd@1"),
    S("destroy zones/odd/A␠B@1"),
    S("rollback -r zones/odd@it␠is:-.1"),
    S("release none zones/odd@1"),
    S("release mine zones/odd@1"),
    S("release a␠tag zones/odd@1"),
    S("destroy -r zones/odd@1"),
    S("release -r all zones/odd@1"),
    S("destroy -r zones/odd@1"),
    S("hold mine zones/odd@none"),
    T("hold mine zones/t/odd@1"),
    Receive("odd", "-u -F zones/t/odd", Whole),
    T("destroy -r zones/t/odd"),
    T("release mine zones/t/odd@1"),
    // Wrong words.
    S("destroy zones/s"),
    S("destroy zones/nope"),
    S("destroy zones/s@nope"),
    S("rollback zones/s@1"),
    S("rollback -r zones/s@4"),
    S("snapshot zones/s@1"),
    S("snapshot zones/nope@1"),
    S("snapshot zones/s"),
    S("create zones/s"),
    S("create zones/no/x"),
    S("clone zones/img@no zones/z"),
    S("clone zones/img@final zones/vm"),
    S("set nosuch=1 zones/s"),
    S("set quota=abc zones/s"),
    S("set used=1 zones/s"),
    S("get nosuch zones/s"),
    S("get -Hp -o value quota zones/nope"),
    S("bookmark zones/s@1 zones/s#1"),
    S("list -p"),
    S("create -V 1g zones/v"),
    Send("n", "-n zones/s@1"),
    Send("l", "--replicate zones/s@1"),
    Send("t", "-t x"),
    Receive("full", "-s zones/x", Whole),
    Receive("full", "-x quota zones/x", Whole),
    // Names: what is a letter, a blank, a path; two that differ in case.
    T("create -o canmount=off zones/n"),
    T("set mountpoint=/n zones/n"),
    T("create -o canmount=off zones/n/a"),
    T("create -o canmount=off zones/n/A"),
    T("create -o canmount=off zones/n/a␠b"),
    T("create -o canmount=off zones/n/a␠"),
    T("create -o canmount=off zones/n/␠"),
    T("create -o canmount=off zones/n/a.b"),
    T("create -o canmount=off zones/n/a:b"),
    T("create -o canmount=off zones/n/-x"),
    T("create -o canmount=off zones/n/_1"),
    T("create -o canmount=off zones/n/."),
    T("create -o canmount=off zones/n/.."),
    T("create zones/n/a"),
    T("create zones/n/t␉b"),
    T("create zones/n/n␊b"),
    T("create zones/n/a+b"),
    T("create zones/n/a%b"),
    T("create zones/n/a=b"),
    T("create zones/n/ü"),
    T("create zones/n//b"),
    T("create /zones/n/b"),
    T("create zones/n/b/"),
    T("snapshot zones/n/a@S:1"),
    T("snapshot zones/n/a@s:1"),
    T("snapshot zones/n/a@s␠1"),
    T("snapshot zones/n/a@.."),
    T("snapshot zones/n/a@"),
    T("snapshot zones/n/a@s%"),
    T("snapshot zones/n/a@s␉1"),
    T("snapshot zones/n/a@x@y"),
    T("snapshot zones/n/a@x/y"),
    Prints("list -H -r -t all -o name zones/n"),
    // Texts: taken as they are, printed as they are.
    T("set mountpoint=/m␊zones/n/A␉/x␊ zones/n/a"),
    T("set mountpoint=/m␉two zones/n/a␠b"),
    T("set mountpoint=␊/m zones/n/a"),
    T("set mountpoint=m zones/n/a"),
    T("set mountpoint=legacy zones/n/a.b"),
    T("set a:b=one␉two␊zones/n/A␉a:b␉x␉local zones/n/a"),
    T("set a:=x zones/n/a"),
    T("set A:b=x zones/n/a"),
    T("set a:b␠c=x zones/n/a"),
    T("set a:b␉c=x zones/n/a"),
    T("set ab=x zones/n/a"),
    T("create -o canmount=off zones/n/a/k"),
    Prints("list -H -o name,mountpoint -r zones/n"),
    Prints("list -H -o mountpoint zones/n/a"),
    Prints("get -H -r -o name,property,value,source mountpoint,a:b zones/n"),
    Prints("list -H -o name,mountpoint -d 0 zones/n/a␠b zones/n/nope zones/n/A zones/n/a␠b"),
    Prints("list -H -o name,mountpoint -t filesystem -d 0 zones/n/a zones/n/a@S:1"),
    Prints("list -H -o name,mountpoint -t snapshot zones/n/a zones/n/a@S:1"),
    Prints("list -H -o name -d 1 zones/n/a zones/n/A"),
    Prints("list -H -o name zones/n/nope zones/n/no"),
    Prints("get -H -o name,value a:b zones/n/A zones/n/nope zones/n/a␠b"),
    // A delegated dataset gives what is below it `zoned`.
    T("set zoned=on zones/n/A"),
    T("create -o canmount=off zones/n/A/k"),
    Prints("list -H -o zoned,name -r zones/n"),
    T("rename zones/n/a␠b zones/n/b␠␠c"),
    T("rename zones/n/a.b zones/n/b+c"),
    Prints("list -H -o name -r zones/n"),
    T("destroy -r zones/n"),
];

const SHOWN: &str = "get -r -H -p -o name,property,value,source type,origin,quota,refquota,a:b,a:local,readonly,recordsize,mounted";

/// Tells the story; returns how each step ended, or what it shows.
fn tell(source: &dyn Machine, target: &dyn Machine) -> Vec<String> {
    let mut streams: HashMap<&str, Vec<u8>> = HashMap::new();
    let bytes = |kib: usize| (0..kib * 1024).map(|at| (at % 251) as u8 | 1).collect::<Vec<u8>>();
    let mut told = Vec::new();
    for step in STORY {
        let (status, kind) = match *step {
            S(line) => source.zfs(line).0,
            T(line) => target.zfs(line).0,
            WriteS(dataset, path, kib) => {
                source.write(dataset, path, &bytes(kib));
                continue;
            }
            WriteT(dataset, path, kib) => {
                target.write(dataset, path, &bytes(kib));
                continue;
            }
            Send(name, line) => {
                let (ended, stream) = source.send(line);
                streams.insert(name, stream);
                ended
            }
            Receive(name, line, part) => {
                let mut stream = streams[name].clone();
                match part {
                    Whole => {}
                    Percent(percent) => stream.truncate(stream.len() * percent / 100),
                    Flip(percent) => {
                        let at = stream.len() * percent / 100;
                        stream[at] ^= 1;
                    }
                }
                target.receive(line, &stream)
            }
            Shows(top) => {
                let (ended, text) = target.zfs(&format!("{SHOWN} {top}"));
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                told.push(format!("{step:?}: {ended:?}\n{}", lines.join("\n")));
                continue;
            }
            Prints(line) => {
                let (ended, text) = target.zfs(line);
                told.push(format!("{step:?}: {ended:?}\n{text}"));
                continue;
            }
        };
        told.push(format!("{step:?}: {status} {kind}"));
    }
    told
}

/// The lines in which two answers differ, and the step.
fn difference(expected: &str, got: &str) -> String {
    let only = |of: &str, other: &str, whose: &str| {
        let lines = of.lines().filter(|line| !other.lines().any(|it| it == *line));
        lines.map(|line| format!("\n  {whose}: {line}")).collect::<String>()
    };
    let step = expected.lines().next().unwrap_or_default();
    format!("{step}{}{}", only(expected, got, "real"), only(got, expected, "stand-in"))
}

fn stand_in(dir: &TempDir, name: &str, seed: u64) -> Node {
    let options = CreateOptions { vms: 0, seed, ..CreateOptions::new(dir.path().join(name)) };
    let mut node = Node::create(&options).unwrap();
    node.set_info(|info| info.zfs = Zfs::Fuse).unwrap();
    node
}

#[test]
fn the_stand_in_behaves_as_real_zfs() {
    if let Some(why) = rig::why_not() {
        eprintln!("skipped: {why}");
        return;
    }
    let real = rig::start(2, rig::SMALL).unwrap();
    let dir = TempDir::new().unwrap();
    let simulated = [stand_in(&dir, "source", 1), stand_in(&dir, "target", 2)];
    let expected = tell(&real[0], &real[1]);
    let got = tell(&simulated[0], &simulated[1]);
    let differ: Vec<String> = expected
        .iter()
        .zip(&got)
        .filter(|(expected, got)| expected != got)
        .map(|(expected, got)| difference(expected, got))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    assert_eq!(expected.len(), got.len());
    real[1].destroy("zones/t").unwrap();
}
