// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The conversation, line by line.

use super::*;

/// A list of watches whose helper answers for the paths that exist.
struct Talk {
    list: WatchList,
    exists: BTreeSet<String>,
    /// Every request so far.
    log: Vec<String>,
}

impl Talk {
    fn new(exists: &[&str]) -> Self {
        let mut list = WatchList::new(Root::new("/node"));
        list.line(b"{\"type\":\"ready\",\"time\":[1,1]}").unwrap();
        let exists = exists.iter().map(|path| format!("/node{path}")).collect();
        let mut talk = Talk { list, exists, log: Vec::new() };
        talk.answer();
        talk
    }

    fn want(&mut self, zones: &[(&str, u8)]) -> Vec<Signal> {
        let place = |exists: &u8| ZonePlace { zonepath: "/zones/z".into(), exists: *exists };
        let zones = zones.iter().map(|(name, exists)| (Arc::from(*name), place(exists)));
        self.list.want(&Arc::new(zones.collect()));
        self.answer()
    }

    /// Answers every request.
    fn answer(&mut self) -> Vec<Signal> {
        let mut signals = Vec::new();
        loop {
            let requests = String::from_utf8(self.list.take_requests()).unwrap();
            if requests.is_empty() {
                return signals;
            }
            for request in requests.lines() {
                let (key, rest) = request.split_once(' ').unwrap();
                self.log.push(rest.to_owned());
                let path = rest.split_once(' ').map_or("", |(_, path)| path);
                let is_there = path.is_empty() || self.exists.contains(path);
                let result = if is_there { "SUCCESS" } else { "FAIL" };
                let line = format!(
                    "{{\"type\":\"response\",\"key\":{key},\"result\":\"{result}\",\"data\":{{\"pid\":77}}}}"
                );
                signals.extend(self.list.line(line.as_bytes()).unwrap());
            }
        }
    }

    fn event(&mut self, path: &str, is_final: bool) -> Vec<Signal> {
        let line =
            format!("{{\"type\":\"event\",\"pathname\":\"/node{path}\",\"final\":{is_final}}}");
        let mut signals = self.list.line(line.as_bytes()).unwrap();
        signals.extend(self.answer());
        signals
    }

    fn asked(&self, line: &str) -> usize {
        self.log.iter().filter(|one| **one == line).count()
    }
}

const FILES: [&str; 8] = [
    "/etc/zones",
    "/etc/zones/index",
    "/etc/zones/z.xml",
    "/tmp/.sysinfo.json",
    "/zones/z",
    "/zones/z/config",
    "/zones/z/config/tags.json",
    "/zones/z/config/metadata.json",
];

fn file(file: ZoneFile) -> Signal {
    Signal::File("z".into(), file)
}

#[test] // S74
fn watches_existing_missing_and_restored_files() {
    let mut talk = Talk::new(&FILES);
    assert_eq!(talk.want(&[("z", 0)]), [Signal::Unwatched("z".to_owned())]);
    assert_eq!((talk.list.pid(), talk.list.unanswered()), (Some(77), 0));
    let (watching, missing) = talk.list.presence();
    assert_eq!((watching.len(), missing.len()), (5, 2), "{watching:?} {missing:?}");
    assert_eq!(talk.event("/zones/z/config/tags.json", false), [file(ZoneFile::Config)]);
    assert_eq!(talk.asked("WATCH /node/zones/z/config/tags.json"), 1);
    // Replaced from another filesystem: gone for the helper, but there.
    let twice = [file(ZoneFile::Xml), file(ZoneFile::Xml)];
    assert_eq!(talk.event("/etc/zones/z.xml", true), twice);
    assert_eq!(talk.asked("WATCH /node/etc/zones/z.xml"), 2);
    assert_eq!(talk.want(&[]), []);
    assert_eq!(talk.asked("UNWATCH /node/etc/zones/z.xml"), 1);
    assert_eq!(talk.list.unanswered(), 0);
}

#[test]
fn directory_event_asks_only_for_missing_files() {
    let mut talk = Talk::new(&FILES);
    talk.want(&[("z", 0)]);
    assert_eq!(talk.event("/zones/z/config", false), []);
    assert_eq!(talk.asked("WATCH /node/zones/z/config/routes.json"), 2);
    assert_eq!(talk.asked("WATCH /node/zones/z/lastexited"), 1, "it is in another directory");
    talk.exists.insert("/node/zones/z/lastexited".to_owned());
    assert_eq!(talk.event("/zones/z", false), [file(ZoneFile::LastExited)]);
    assert_eq!(talk.event("/zones/z", false), [], "it is watched now");
}

#[test]
fn asks_for_a_file_that_a_reading_found() {
    let mut talk = Talk::new(&FILES[..4]);
    talk.want(&[("z", 0)]);
    talk.exists.extend(FILES[4..].iter().map(|path| format!("/node{path}")));
    let signals = talk.want(&[("z", 0b111)]);
    assert!(signals.contains(&file(ZoneFile::Config)), "{signals:?}");
    assert_eq!(talk.list.presence().1.len(), 2, "only what does not exist is missing");
}

#[test]
fn compares_many_new_zones_in_one_look() {
    let mut talk = Talk::new(&FILES);
    let names: Vec<String> = (0..FEW + 1).map(|nth| format!("z{nth}")).collect();
    let zones: Vec<(&str, u8)> = names.iter().map(|name| (name.as_str(), 0)).collect();
    assert_eq!(talk.want(&zones), [Signal::AllUnwatched]);
}

#[test]
fn leaves_a_path_with_a_blank_to_the_sweep() {
    let mut talk = Talk::new(&FILES);
    talk.want(&[("a b", 0)]);
    assert!(!talk.log.iter().any(|line| line.contains("a b")));
}

#[test]
fn garbage_and_lost_watches_end_the_helper() {
    let mut list = WatchList::default();
    assert!(matches!(list.line(b"garbage"), Err(Complaint::Garbage(_))));
    let lost = b"{\"type\":\"error\",\"key\":0,\"code\":4,\"message\":\"re-association failed\"}";
    assert_eq!(list.line(lost), Err(Complaint::Lost("re-association failed".to_owned())));
    assert_eq!(list.line(b"{\"type\":\"tomorrow\"}"), Ok(Vec::new()));
}

#[test]
fn repeated_ready_lines_ask_once() {
    let mut talk = Talk::new(&[]);
    for _ in 0..100 {
        talk.list.line(b"{\"type\":\"ready\"}").unwrap();
    }
    assert_eq!((talk.list.unanswered(), talk.list.take_requests().len()), (0, 0));
}

#[test]
fn looks_for_orphans_only_while_one_may_be_missing() {
    let mut talk = Talk::new(&FILES);
    talk.want(&[("z", 0)]);
    talk.list.ask_orphans();
    assert!(!talk.list.may_have_orphans(), "all are there");
    let home = "/node/zones/z";
    talk.exists.remove(home);
    talk.event("/zones/z", true);
    for _ in 0..3 {
        assert!(talk.list.may_have_orphans());
        talk.list.ask_orphans();
        talk.answer();
    }
    talk.exists.insert(home.to_owned());
    talk.list.ask_orphans();
    talk.answer();
    assert!(talk.list.may_have_orphans(), "it was asked for");
    talk.list.ask_orphans();
    assert!(!talk.list.may_have_orphans(), "it is back");
}
