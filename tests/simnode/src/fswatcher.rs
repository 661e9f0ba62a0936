// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's `fswatcher` on Linux: commands on stdin, JSON lines on stdout, inotify inside.
//!
//! The words of the protocol are here; `watcher` keeps the watches. [`serve`] also runs on one
//! end of a socket pair in a thread, for tests that want no process. All file changes made before
//! a command was written are reported before the command is answered, so that a `STATUS` is a
//! barrier.
//!
//! Not recorded from the real helper, and chosen here: events of watched directories, changes of a
//! file's times alone, plain text instead of JSON (refused), and which error a line gets that has
//! two faults. inotify does not report mounts, so MOUNTEDOVER is never emitted; a directory that is
//! renamed away counts as unmounted, since that is how the simulated node unmounts one. A change
//! through another hard link of a file is not seen.

mod told;

#[cfg(target_os = "linux")]
mod watcher;

#[cfg(target_os = "linux")]
pub use watcher::serve;

pub use told::Told;

use serde_json::{Value, json};

/// The helper on Linux in a thread of its own, spoken to as if it were a process.
///
/// # Errors
/// There is no socket pair.
#[cfg(target_os = "linux")]
pub fn in_thread()
-> std::io::Result<(vminfod::node::commands::Follow, vminfod::node::commands::Input)> {
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let mut output = far.try_clone()?;
    std::thread::spawn(move || {
        let mut input = far;
        // It ends when the other end is dropped.
        let _ended = serve(&mut input, &mut output, true);
        let _closed = output.shutdown(std::net::Shutdown::Both);
    });
    let (stdout, stdin) = tokio::net::UnixStream::from_std(near)?.into_split();
    let (errors, _) = tokio::io::duplex(1);
    let end = Box::pin(async { 0 });
    let follow = vminfod::node::commands::Follow::new(Box::new(stdout), Box::new(errors), end);
    Ok((follow, Box::new(stdin)))
}

/// Why the helper ends without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The kernel dropped events: whatever happened in between is unknown.
    #[error("the inotify queue overflowed: events were lost")]
    Overflow,
    /// stdin, stdout, inotify, or a file that cannot be examined.
    #[error("{what}: {error}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
}

/// A line of stdin.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Watch(u64, &'a str),
    Unwatch(u64, &'a str),
    Status(u64),
}

/// Why a line of stdin is no command.
#[derive(Debug, PartialEq, Eq)]
enum Refusal<'a> {
    Invalid,
    KeyZero,
    Unknown(u64, &'a str),
}

/// Parses `KEY WATCH PATH`, `KEY UNWATCH PATH` or `KEY STATUS`. A path ends at a blank; what
/// follows it is ignored, as the real helper does.
fn parse(line: &str) -> Result<Command<'_>, Refusal<'_>> {
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

const FILE_MODIFIED: u32 = 0x2;
const FILE_DELETE: u32 = 0x10;
const FILE_RENAME_TO: u32 = 0x20;
const FILE_RENAME_FROM: u32 = 0x40;
const FILE_TRUNC: u32 = 0x10_0000;
const UNMOUNTED: u32 = 0x2000_0000;
const MOUNTEDOVER: u32 = 0x4000_0000;
const FILE_EXCEPTION: u32 =
    FILE_DELETE | FILE_RENAME_TO | FILE_RENAME_FROM | UNMOUNTED | MOUNTEDOVER;
/// The flags after which the file of the path is another one, or none.
const FINAL: u32 = FILE_EXCEPTION & !FILE_RENAME_TO;

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
type Time = [i64; 2];

fn ready(time: Time) -> Value {
    json!({"type": "ready", "time": time})
}

fn event(time: Time, path: &str, flags: u32, last: bool) -> Value {
    let set = FLAGS.iter().filter(|(bits, _)| flags & bits != 0);
    let changes: Vec<&str> = set.map(|(_, name)| *name).collect();
    json!({"type": "event", "time": time, "changes": changes, "pathname": path, "revents": flags,
        "final": last})
}

/// The answer to WATCH and UNWATCH: what was done, or why it was not.
fn response(time: Time, key: u64, path: &str, outcome: Result<String, String>) -> Value {
    let (code, result) = if outcome.is_ok() { (0, "SUCCESS") } else { (1, "FAIL") };
    let message = outcome.unwrap_or_else(|why| why);
    json!({"type": "response", "time": time, "key": key, "code": code, "pathname": path,
        "message": message, "result": result})
}

fn status(time: Time, key: u64, files: &[&str], pid: u32) -> Value {
    json!({"type": "response", "time": time, "key": key, "code": 0, "result": "SUCCESS",
        "data": {"files": files, "files_count": files.len(), "pid": pid}})
}

fn refused(time: Time, refusal: &Refusal<'_>) -> Value {
    let (key, code, message) = match refusal {
        Refusal::Invalid => (0, 1, "invalid command line".to_owned()),
        Refusal::KeyZero => (0, 2, "invalid key: 0".to_owned()),
        Refusal::Unknown(key, verb) => (*key, 3, format!("unknown command '{verb}'")),
    };
    json!({"type": "error", "time": time, "key": key, "code": code, "message": message})
}

/// A watch that could not be renewed after an event.
fn lost(time: Time, path: &str, errno: i32) -> Value {
    let message = format!("port_associate(3c) failed for '{path}', errno {errno}: {}", text(errno));
    json!({"type": "error", "time": time, "key": 0, "code": 4, "message": message})
}

/// The text of an error number, as `strerror` has it.
fn text(errno: i32) -> String {
    let whole = std::io::Error::from_raw_os_error(errno).to_string();
    whole.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
