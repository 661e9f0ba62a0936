// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The lines of the protocol: commands, answers, events.

use serde_json::{Value, json};

/// A line of stdin.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Watch(u64, &'a str),
    Unwatch(u64, &'a str),
    Status(u64),
}

/// Why a line of stdin is no command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal<'a> {
    Invalid,
    KeyZero,
    Unknown(u64, &'a str),
}

/// Parses `KEY WATCH PATH`, `KEY UNWATCH PATH` or `KEY STATUS`. A path ends at a blank; what
/// follows it is ignored, as the real helper does.
pub(super) fn parse(line: &str) -> Result<Command<'_>, Refusal<'_>> {
    let mut words = line.split_ascii_whitespace();
    let key = words.next().filter(|key| key.bytes().all(|byte| byte.is_ascii_digit()));
    let key: u64 = key.and_then(|key| key.parse().ok()).ok_or(Refusal::Invalid)?;
    let verb = words.next().ok_or(Refusal::Invalid)?;
    if key == 0 {
        return Err(Refusal::KeyZero);
    }
    match (verb, words.next()) {
        ("WATCH", Some(path)) => Ok(Command::Watch(key, path)),
        ("UNWATCH", Some(path)) => Ok(Command::Unwatch(key, path)),
        ("STATUS", None) => Ok(Command::Status(key)),
        ("WATCH" | "UNWATCH" | "STATUS", _) => Err(Refusal::Invalid),
        _ => Err(Refusal::Unknown(key, verb)),
    }
}

pub(super) const FILE_MODIFIED: u32 = 0x2;
pub(super) const FILE_DELETE: u32 = 0x10;
pub(super) const FILE_RENAME_TO: u32 = 0x20;
pub(super) const FILE_RENAME_FROM: u32 = 0x40;
pub(super) const FILE_TRUNC: u32 = 0x10_0000;
pub(super) const UNMOUNTED: u32 = 0x2000_0000;
const MOUNTEDOVER: u32 = 0x4000_0000;
pub(super) const FILE_EXCEPTION: u32 =
    FILE_DELETE | FILE_RENAME_TO | FILE_RENAME_FROM | UNMOUNTED | MOUNTEDOVER;
/// The flags after which the file of the path is another one, or none.
pub(super) const FINAL: u32 = FILE_EXCEPTION & !FILE_RENAME_TO;

/// The flags in the order in which the helper tests them.
const FLAGS: [(u32, &str); 11] = [
    (0x1, "FILE_ACCESS"),
    (0x4, "FILE_ATTRIB"),
    (FILE_DELETE, "FILE_DELETE"),
    (FILE_EXCEPTION, "FILE_EXCEPTION"),
    (FILE_MODIFIED, "FILE_MODIFIED"),
    (FILE_RENAME_FROM, "FILE_RENAME_FROM"),
    (FILE_RENAME_TO, "FILE_RENAME_TO"),
    (FILE_TRUNC, "FILE_TRUNC"),
    (0x1000_0000, "FILE_NOFOLLOW"),
    (MOUNTEDOVER, "MOUNTEDOVER"),
    (UNMOUNTED, "UNMOUNTED"),
];

/// Seconds and nanoseconds of the monotonic clock.
pub(super) type Time = [i64; 2];

pub(super) fn ready(time: Time) -> Value {
    json!({"type": "ready", "time": time})
}

pub(super) fn event(time: Time, path: &str, flags: u32, last: bool) -> Value {
    let set = FLAGS.iter().filter(|(bits, _)| flags & bits != 0);
    let changes: Vec<&str> = set.map(|(_, name)| *name).collect();
    json!({"type": "event", "time": time, "changes": changes, "pathname": path, "revents": flags,
        "final": last})
}

/// The answer to WATCH and UNWATCH: what was done, or why it was not.
pub(super) fn response(time: Time, key: u64, path: &str, outcome: Result<String, String>) -> Value {
    let (code, result) = if outcome.is_ok() { (0, "SUCCESS") } else { (1, "FAIL") };
    let message = outcome.unwrap_or_else(|why| why);
    json!({"type": "response", "time": time, "key": key, "code": code, "pathname": path,
        "message": message, "result": result})
}

pub(super) fn status(time: Time, key: u64, files: &[&str], pid: u32) -> Value {
    json!({"type": "response", "time": time, "key": key, "code": 0, "result": "SUCCESS",
        "data": {"files": files, "files_count": files.len(), "pid": pid}})
}

pub(super) fn refused(time: Time, refusal: &Refusal<'_>) -> Value {
    let (key, code, message) = match refusal {
        Refusal::Invalid => (0, 1, "invalid command line".to_owned()),
        Refusal::KeyZero => (0, 2, "invalid key: 0".to_owned()),
        Refusal::Unknown(key, verb) => (*key, 3, format!("unknown command '{verb}'")),
    };
    json!({"type": "error", "time": time, "key": key, "code": code, "message": message})
}

/// A watch that could not be renewed after an event.
pub(super) fn lost(time: Time, path: &str, errno: i32) -> Value {
    let message = format!("port_associate(3c) failed for '{path}', errno {errno}: {}", text(errno));
    json!({"type": "error", "time": time, "key": 0, "code": 4, "message": message})
}

/// The text of an error number, as `strerror` has it.
pub(super) fn text(errno: i32) -> String {
    let whole = std::io::Error::from_raw_os_error(errno).to_string();
    whole.split(" (os error").next().unwrap_or_default().to_owned()
}
