// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed fuzz`: feeds damaged input to every parser for a number of seconds, with the stable
//! compiler. A panic ends the program; the printed parser, seed and round reproduce it. The targets of
//! `tests/fuzz` are the same parsers, for longer and with coverage.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use daemon::cli::Progress;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sdc_clients::vminfod::Lines;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use vm_model::parse;

use crate::arguments::{command, seed};

/// Longest input, in bytes: parsers' own caps are tested beside them.
const LONGEST: usize = 1 << 16;

/// Runs every parser over damaged input.
#[derive(Debug, Parser)]
#[command(name = "testbed fuzz")]
struct Args {
    /// For how long, all parsers together
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where the random choices start
    #[arg(long)]
    seed: Option<u64>,
    /// Run just this round (with --seed), to see a failure again
    #[arg(long)]
    round: Option<u64>,
}

/// A parser and what good input for it looks like.
struct Target {
    name: &'static str,
    good: &'static [&'static str],
    parse: fn(&[u8]),
}

const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE zone PUBLIC "-//Sun Microsystems Inc//DTD Zones//EN" "file:///usr/share/lib/xml/dtd/zonecfg.dtd.1">
<!-- c --><zone name="z" zonepath="/zones/z" autoboot="true" brand="bhyve" limitpriv="default,a">
 <attr name="alias" type="string" value="dm0tMQ=="/><attr name="ram" type="string" value="1024"/>
 <rctl name="zone.max-lwps"><rctl-value priv="privileged" limit="4000" action="deny"/></rctl>
 <network physical="net0" mac-addr="2:8:20:a:b:c" vlan-id="7"><net-attr name="ips" value="10.0.0.1/24,dhcp"/></network>
 <device match="/dev/zvol/rdsk/zones/z/disk0"><net-attr name="boot" value="true"/></device>
 <filesystem special="/a" directory="/b" type="lofs"><fsoption name="ro"/></filesystem><dataset name="zones/z/data"/>
</zone>"#;
const ZFS: &str = "lz4\t1500000000\t100\tzones/z\t1073741824\t131072\t0\t0\t18446744073709551615\tfilesystem\t0\t-\t-\t-\t65536\toff\n\
-\t1500000001\t-\tzones/z@vmsnap-a\t-\t-\t-\t-\t-\tsnapshot\t-\t1\t-\t-\t4096\t-\n";
const ZONE_EVENT: &str = r#"{"date":"2026-01-05T10:00:01.190Z","type":"event","vendor":"sun.com","publisher":"kernel","class":"status","subclass":"change","pid":0,"data":{"zonename":"z","newstate":"running","oldstate":"ready","zoneid":31,"when":1767607201188431227},"channel":"com.sun:zones:status"}"#;
const ZFS_EVENT: &str = r#"{"date":"2026-01-05T10:00:01.190Z","type":"event","vendor":"SUNW","publisher":"zfs","class":"EC_zfs","subclass":"ESC_ZFS_history_event","pid":0,"data":{"pool_name":"zones","history_dsname":"zones/z@a","history_internal_name":"rename","history_internal_str":"-> zones/y","history_txg":12}}"#;
const READY: &str = r#"{"type":"ready","date":"2026-01-05T10:00:00.123Z","uuid":"u","vms":"[{\"zonename\":\"z\",\"nics\":[]}]","seq":3,"epoch":"0011223344556677"}"#;
const MODIFY: &str = r#"{"type":"modify","date":"2026-01-05T10:00:02.004Z","zonename":"z","uuid":"z","vm":{"zonename":"z"},"changes":[{"prettyPath":"nics.*","path":["nics",null],"action":"added","newValue":{"mac":"02:b"}}]}"#;
const NIC: &str = r#"{"mac":"90:b8:d0:00:00:01","belongs_to_type":"zone","belongs_to_uuid":"u","owner_uuid":"o","primary":true,"state":"running","created_timestamp":"2026-01-05T10:00:02.004Z","modified_timestamp":"1970-01-01T00:00:00.000Z","cn_uuid":"c","resolvers":["8.8.8.8"],"routes":{}}"#;
const KSTAT: &str = r#"[{"class":"zone_misc","module":"zones","name":"z","instance":1,"data":{"zonename":"82fa00d0-680b-4bdc-8c64-fc96c57dd6d2","init_pid":1,"init_restarts":0,"boot_time":1533886690}}]"#;
const ZONEADM: &str = "0:global:running:/::liveimg:shared:0\n-:z:installed:/zones/z:82fa00d0-680b-4bdc-8c64-fc96c57dd6d2:lx:excl:2\n";
const SYSINFO: &str = r#"{"UUID":"u","Live Image":"i","Headnode ID":0,"Network Interfaces":{}}"#;
const FSWATCHER: &str = "{\"type\":\"ready\"}\n{\"type\":\"response\",\"key\":1,\"result\":\"FAIL\",\"pathname\":\"/etc/zones\"}\n{\"type\":\"event\",\"pathname\":\"/etc/zones\",\"final\":true}";
const JSON: &str =
    r#"{"a":1.50,"2":[true,null,-1e400],"1":"\u00e9\ud83d","a":12345678901234567890}"#;

const QMP_SHUTDOWN: &str = r#"{"timestamp": {"seconds": 1795227749, "microseconds": 103582}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}"#;
const QMP_GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}, "capabilities": ["oob"]}}"#;

/// Throws a result away: that it came without a panic is what counts.
fn ended<T>(_result: T) {}

const TARGETS: &[Target] = &[
    target("zone_xml", &[XML], |b| ended(parse::zone_xml::parse(b))),
    target("zoneadm", &[ZONEADM], |b| ended((parse::zoneadm::parse(b), parse::zoneadm::names(b)))),
    target("zone_index", &["z\nz:installed:/zones/z:u\nglobal:installed:/\n"], zone_index),
    target("zfs_list", &[ZFS], |b| ended(parse::zfs_list::parse(b))),
    target("mountpoints", &["zones/z\t/zones/z\nzones/y\t/a\nb\n"], |b| {
        ended(parse::mountpoints::parse(&["zones/z", "zones/y"], 0, b));
        ended(parse::mountpoints::parse(&["zones/z"], 0, b));
    }),
    target("kstat", &[KSTAT], |b| ended(parse::kstat::parse(b))),
    target("lastexited", &["1449000000.123456789 256\n", "1 -1"], |b| {
        ended(parse::lastexited::parse(b));
    }),
    target("sysinfo", &[SYSINFO], |b| ended(parse::sysinfo::parse(b))),
    target("receiving", &[r#"{"zfs_filesystem":"zones/z"}"#], |b| {
        ended(parse::receiving::parse(b));
    }),
    target("config", &[r#"{"customer_metadata":{"a":"b"},"internal_metadata":{}}"#], |b| {
        let text = parse::config_json::text(Some(b));
        ended(text.map(|(text, _)| parse::config_json::ConfigJson::new(&text, "{}", "{}")));
    }),
    target("json", &[JSON], json_round_trip),
    target(
        "sysevent",
        &[ZONE_EVENT, ZFS_EVENT, r#"{"date":"2026-01-05T10:00:00.000Z","type":"ready"}"#],
        |b| {
            ended(parse::sysevent::parse(b));
        },
    ),
    target(
        "zfs_event",
        &["zones/z@a\nrename\n-> zones/y", "zones/z/%rollback\nclone swap\n"],
        zfs_event,
    ),
    target(
        "qmp",
        &[QMP_SHUTDOWN, QMP_GREETING, r#"{"return":{"status":"paused"},"id":1}"#],
        qmp_line,
    ),
    target("event_line", &[READY, MODIFY], event_lines),
    target("nic", &[NIC], |b| ended(serde_json::from_slice::<sdc_clients::napi::Nic>(b))),
    target("mac", &["90:b8:d0:00:00:01", "2-8-20-A-b-c", "90b8d0000001"], |b| {
        if let Ok(mac) = String::from_utf8_lossy(b).parse::<sdc_clients::MacAddr>() {
            assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    }),
    target("fswatcher", &[FSWATCHER], fswatcher),
    target("note", &[r#"{"was":{"state":"running"},"paths":["nics.0.ip"]}"#], |b| {
        let note = vminfod::store::note::Note::parse(b);
        assert_eq!(vminfod::store::note::Note::parse(&note.to_bytes()), note);
    }),
    target(
        "holds",
        &[r#"{"holds":[{"vm":"u","reason":"r","since":"2026-01-05T10:00:02.004Z"}]}"#],
        kept::<net_agent::holds::Holds>,
    ),
    target(
        "agent_memory",
        &[r#"{"version":1,"cn_uuid":"c","vms":3,"macs":{"90:b8:d0:00:00:01":"u"}}"#],
        kept::<net_agent::state_file::Saved>,
    ),
    target(
        "vmadm_args",
        &["list\n-Ho\nuuid\n--sortby=alias\nstate=running\n--\n-x"],
        vmadm_arguments,
    ),
    target(
        "settings",
        &[
            r#"{"listen":"127.0.0.1:9090","sweep":"10s","refresh":{"min":"270s"}}"#,
            "sweep = \"10s\"",
        ],
        settings,
    ),
    target(
        "http_request",
        &["/vms//u/./x?sync=true&full=&sync=no", "/events?epoch=e&since=4"],
        http_request,
    ),
];

const fn target(name: &'static str, good: &'static [&'static str], parse: fn(&[u8])) -> Target {
    Target { name, good, parse }
}

/// A line, and a session that takes it in and ends.
fn qmp_line(bytes: &[u8]) {
    ended(kvmd::qmp::parse_line(bytes));
    let mut session = kvmd::session::Session::default();
    let mut lines = kvmd::qmp::lines();
    lines.push(bytes);
    while let Some(line) = lines.next_line().transpose().or_else(|| lines.finish()) {
        ended(session.line(Duration::ZERO, &line));
    }
    ended(session.verdict(Duration::ZERO, kvmd::judge::ADMIN_WINDOW));
}

/// A conversation with the file watcher's helper.
fn fswatcher(bytes: &[u8]) {
    use vminfod::sources::watched::{WatchList, ZonePlace};
    let place = ZonePlace { zonepath: "/zones/z".into(), exists: 0 };
    let mut list = WatchList::new(vminfod::node::root::Root::new("/r"));
    list.want(&std::sync::Arc::new([("z".into(), place)].into()));
    let wanted = list.unanswered();
    for line in bytes.split(|byte| *byte == b'\n') {
        ended(list.line(line));
        assert!(list.unanswered() <= wanted + 1, "a request is kept that has no answer");
    }
}

/// Arguments, one on each line.
fn vmadm_arguments(bytes: &[u8]) {
    use vminfod::cli::vmadm::plan;
    let text = String::from_utf8_lossy(bytes);
    let args: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for command in ["list", "lookup", "get", "events"] {
        ended(plan(&[&[command.to_owned()], args.as_slice()].concat()));
    }
}

/// The name of a zone in the first line, and an index.
fn zone_index(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (name, index) = bytes.split_at(at);
    let Ok(name) = std::str::from_utf8(name) else { return };
    // The global zone is there whatever the index says.
    if parse::zone_index::lists(index, name) && name != "global" {
        assert!(String::from_utf8_lossy(index).contains(name) && !name.contains(':'));
    }
}

/// Dataset, action and text of an event, one on each line.
fn zfs_event(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n').map(Value::from);
    let names = ["history_dsname", "history_internal_name", "history_internal_str"];
    let data = names.iter().filter_map(|name| Some(((*name).to_owned(), lines.next()?))).collect();
    for event in parse::zfs_event::events(&data) {
        let name = event.name;
        assert!(!name.starts_with('-') && !name.contains("/%"), "{name}");
        ended((parse::zfs_event::vm_uuid(&name), parse::zfs_event::depth(&name)));
    }
}

/// A stream of lines is the same wherever it is cut.
fn event_lines(bytes: &[u8]) {
    const CAP: usize = 1 << 12;
    let read = |pieces: [&[u8]; 2]| {
        let (mut lines, mut seen) = (Lines::new(CAP), Vec::new());
        for piece in pieces {
            lines.push(piece);
            while let Ok(Some(line)) = lines.next_line() {
                ended(sdc_clients::vminfod::parse_line(&line));
                seen.push(line);
            }
        }
        seen
    };
    ended(sdc_clients::vminfod::parse_line(bytes));
    // A line that is too long ends a stream, and where that shows depends on the cut.
    if bytes.len() <= CAP {
        let cut = bytes.first().map_or(0, |byte| usize::from(*byte) % (bytes.len() + 1));
        let (first, rest) = bytes.split_at(cut);
        assert_eq!(read([first, rest]), read([bytes, &[]]));
    }
}

/// What is kept in a file is read as it was written.
fn kept<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
    let written = serde_json::to_vec(&value).unwrap_or_default();
    let again = serde_json::from_slice::<T>(&written).map(|again| serde_json::to_vec(&again));
    assert!(matches!(&again, Ok(Ok(again)) if *again == written), "{again:?}");
}

fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for fields in [daemon::Fields::from_json(&text), daemon::Fields::from_toml(&text)] {
        ended(fields.and_then(vminfod::config::Config::read));
    }
    ended(daemon::config::parse_span(&text));
}

/// A request's target.
fn http_request(bytes: &[u8]) {
    use vminfod::http::compat;
    let text = String::from_utf8_lossy(bytes);
    let (path, query) = text.split_once('?').map_or((&*text, None), |(p, query)| (p, Some(query)));
    let route = compat::canonical(path);
    let mut parts = route.strip_prefix('/').unwrap_or_default().split('/');
    assert!(route == "/" || parts.all(|part| !matches!(part, "" | "." | "..")), "{route}");
    assert_eq!(compat::canonical(&route), route);
    for key in ["full", "sync", "epoch", "since"] {
        if let Some(value) = daemon::http::query::value(query, key) {
            assert!(query.is_some_and(|query| query.contains(value)), "{value}");
        }
        ended(compat::wants(query, key));
    }
}

/// What parses must print, and the print must parse to the same value.
fn json_round_trip(bytes: &[u8]) {
    if let Ok(value) = vm_model::js::parse(bytes) {
        let text = vm_model::js::to_ascii(&value);
        assert!(text.is_ascii(), "not ASCII: {text}");
        assert_eq!(vm_model::js::parse(text.as_bytes()).ok(), Some(value), "{text}");
    }
}

/// Feeds the parser of this name with this input, for `tests/fuzz`.
///
/// # Panics
/// When there is none, and when the parser is at fault.
pub fn feed(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no parser {name}")).parse)(bytes);
}

/// Runs `testbed fuzz`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed fuzz", args, async |args: Args| Ok(feed_all(&args)))
}

/// Feeds every parser until the time is over or one panics; whether none did.
fn feed_all(args: &Args) -> bool {
    let seed = seed(args.seed);
    let (mut failed, mut rounds) = (0, 0);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let shown = Progress::begin("feeding the parsers damaged input");
    for round in args.round.unwrap_or(0).. {
        if failed > 0 || if args.round.is_some() { rounds > 0 } else { Instant::now() >= end } {
            break;
        }
        rounds += 1;
        for target in TARGETS {
            let input = damaged(target, seed, round);
            if catch_unwind(AssertUnwindSafe(|| (target.parse)(&input))).is_err() {
                failed += 1;
                println!("{}: panicked; again with --seed {seed} --round {round}", target.name);
            }
        }
    }
    drop(shown);
    println!("{rounds} rounds of {} parsers", TARGETS.len());
    println!("{} passed, {failed} failed", TARGETS.len() - failed);
    failed == 0
}

/// Good input with up to eight wounds; the same for the same seed and round.
fn damaged(target: &Target, seed: u64, round: u64) -> Vec<u8> {
    let mix = seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut rng = StdRng::seed_from_u64(mix ^ target.name.len() as u64);
    let pick = rng.random_range(0..target.good.len());
    let mut bytes = target.good.get(pick).map_or_else(Vec::new, |text| text.as_bytes().to_vec());
    for _ in 0..rng.random_range(0..=8u32) {
        wound(&mut bytes, &mut rng);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn wound(bytes: &mut Vec<u8>, rng: &mut StdRng) {
    let at = rng.random_range(0..=bytes.len());
    let end = (at + rng.random_range(0..=16usize)).min(bytes.len());
    match rng.random_range(0..6u32) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..end)),
        2 => bytes.insert(at, rng.random()),
        3 => {
            let piece = bytes.get(at..end).map(<[u8]>::to_vec).unwrap_or_default();
            let to = rng.random_range(0..=bytes.len());
            bytes.splice(to..to, piece);
        }
        4 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.random_range(0..8u32);
            }
        }
        _ => {
            const NASTY: [&str; 10] =
                ["\u{0}", "\"", "<", "&", "]]>", "99999999999999999999", "-", "é😀", "\\u", "{["];
            let word = NASTY.get(rng.random_range(0..NASTY.len())).copied().unwrap_or_default();
            bytes.splice(at..at, word.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parser_is_a_target_of_cargo_fuzz_and_takes_its_good_input() {
        let manifest = include_str!("../../fuzz/Cargo.toml");
        let bins =
            manifest.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split_once('"'));
        let bins: Vec<&str> = bins.map(|(name, _)| name).collect();
        assert_eq!(bins, TARGETS.iter().map(|target| target.name).collect::<Vec<_>>());
        for target in TARGETS {
            target.good.iter().for_each(|good| feed(target.name, good.as_bytes()));
        }
    }
}
