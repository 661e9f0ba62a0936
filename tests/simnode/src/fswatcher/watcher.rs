// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The watches of `fswatcher`, by inotify.
//!
//! One inotify watch per directory reports all files in it, with the difference between a rename
//! over a file and its deletion, which a watch of the file alone would not show. The five files of
//! a VM need two watches, and all XMLs share one. A symbolic link is followed first.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::lines::{
    Command, FILE_DELETE, FILE_EXCEPTION, FILE_MODIFIED, FILE_RENAME_FROM, FILE_RENAME_TO,
    FILE_TRUNC, FINAL, Time, UNMOUNTED, event, lost, parse, ready, refused, response, status, text,
};

/// The longest line of stdin; the rest of a longer one is dropped and it gets an error.
const LINE: usize = 64 << 10;
/// How many events the queue of inotify holds, unless the system is configured otherwise.
const QUEUE: usize = 16 << 10;

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

/// Speaks the protocol until `input` ends: the whole helper, on any pair of streams.
/// Fails if a stream fails, or if the kernel dropped events; the caller then has to start anew.
pub fn serve(
    input: &mut (impl Read + AsFd),
    output: &mut impl Write,
    with_ready: bool,
) -> Result<(), Fault> {
    let mut watcher = Watcher::new()?;
    if with_ready {
        watcher.say(ready(now()));
    }
    let (mut waiting, mut chunk) = (Vec::new(), vec![0; LINE]);
    loop {
        output.write_all(&watcher.out).map_err(failed("cannot write to stdout"))?;
        output.flush().map_err(failed("cannot write to stdout"))?;
        watcher.out.clear();
        let asked = wait(input, &watcher.inotify)?;
        let count = match asked {
            true => input.read(&mut chunk).map_err(failed("cannot read stdin"))?,
            false => 0,
        };
        // What happened before a command was written is in the queue by now.
        watcher.drain()?;
        for byte in chunk.iter().take(count) {
            match byte {
                b'\n' => {
                    watcher.line(&waiting)?;
                    waiting.clear();
                }
                // One byte more than a line may have marks it as too long.
                _ if waiting.len() > LINE => {}
                byte => waiting.push(*byte),
            }
        }
        if asked && count == 0 {
            return output.write_all(&watcher.out).map_err(failed("cannot write to stdout"));
        }
    }
}

/// Waits until a command or an event can be read; returns whether a command can.
fn wait(input: &impl AsFd, inotify: &OwnedFd) -> Result<bool, Fault> {
    loop {
        let mut both = [PollFd::new(input, PollFlags::IN), PollFd::new(inotify, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) => return Ok(!both[0].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("cannot poll")(error.into())),
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Fault {
    move |error| Fault::Io { what, error }
}

fn now() -> Time {
    let at = clock_gettime(ClockId::Monotonic);
    [at.tv_sec, at.tv_nsec]
}

/// What a path led to when it was last examined.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    len: u64,
    modified: (i64, i64),
}

impl Seen {
    fn of(path: &str) -> Result<Seen, Errno> {
        let stat = std::fs::metadata(path).map_err(|error| errno(&error))?;
        Ok(Seen { len: stat.len(), modified: (stat.mtime(), stat.mtime_nsec()) })
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A watched path.
struct Watched {
    /// Its number in the order of the WATCH commands.
    nth: u64,
    seen: Seen,
    /// The inotify watch that reports it …
    by: i32,
    /// … under this name; a directory is reported as itself.
    name: Option<Vec<u8>>,
}

/// What one inotify watch is for.
#[derive(Default)]
struct Dir {
    /// Watched paths of files, by their name in this directory.
    files: HashMap<Vec<u8>, HashSet<String>>,
    /// Watched paths of this directory.
    itself: HashSet<String>,
}

impl Dir {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.files.values().flatten().chain(&self.itself)
    }
}

struct Watcher {
    inotify: OwnedFd,
    dirs: HashMap<i32, Dir>,
    paths: HashMap<String, Watched>,
    made: u64,
    /// Flags of paths that were not printed yet.
    pending: IndexMap<String, u32>,
    out: Vec<u8>,
}

impl Watcher {
    fn new() -> Result<Watcher, Fault> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| failed("cannot start inotify")(error.into()))?;
        let (dirs, paths, pending) = Default::default();
        Ok(Watcher { inotify, dirs, paths, made: 0, pending, out: Vec::new() })
    }

    fn say(&mut self, line: Value) {
        self.out.extend_from_slice(line.to_string().as_bytes());
        self.out.push(b'\n');
    }

    /// Answers a line of stdin.
    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let line = String::from_utf8_lossy(if line.len() > LINE { b"" } else { line });
        let answer = match parse(&line) {
            Ok(Command::Watch(key, path)) => response(now(), key, path, self.watch(path)?),
            Ok(Command::Unwatch(key, path)) => response(now(), key, path, self.unwatch(path)),
            Ok(Command::Status(key)) => {
                let mut files: Vec<(&String, u64)> =
                    self.paths.iter().map(|(path, watched)| (path, watched.nth)).collect();
                files.sort_by_key(|(_, nth)| *nth);
                let files: Vec<&str> = files.into_iter().map(|(path, _)| path.as_str()).collect();
                status(now(), key, &files, std::process::id())
            }
            Err(refusal) => refused(now(), &refusal),
        };
        self.say(answer);
        Ok(())
    }

    fn watch(&mut self, path: &str) -> Result<Result<String, String>, Fault> {
        if self.paths.contains_key(path) {
            return Ok(Ok("already watching".to_owned()));
        }
        match self.associate(path) {
            Ok(()) => Ok(Ok("port_associate(3c) started watching path".to_owned())),
            Err(Unwatchable::Stat(
                errno @ (Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP),
            )) => {
                let errno = errno.raw_os_error();
                Ok(Err(format!("stat(2) failed with errno {errno}: {}", text(errno))))
            }
            // The real helper aborts here.
            Err(Unwatchable::Stat(errno)) => {
                Err(failed("cannot examine a path that is to be watched")(errno.into()))
            }
            // Not recorded. The caller tries again, as with a file that is missing.
            Err(Unwatchable::Inotify(errno)) => {
                let errno = errno.raw_os_error();
                Ok(Err(format!("port_associate(3c) failed with errno {errno}: {}", text(errno))))
            }
        }
    }

    fn associate(&mut self, path: &str) -> Result<(), Unwatchable> {
        let mut place = PathBuf::from(path);
        let kind = std::fs::symlink_metadata(&place).map_err(|e| Unwatchable::Stat(errno(&e)))?;
        if kind.is_symlink() {
            place = place.canonicalize().map_err(|e| Unwatchable::Stat(errno(&e)))?;
        }
        let name = match place.file_name() {
            Some(name) if !place.is_dir() => Some(name.as_bytes().to_vec()),
            _ => None,
        };
        let dir = match &name {
            Some(_) => place.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new(".")),
            None => &place,
        };
        let what = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let by = inotify::add_watch(&self.inotify, dir, what).map_err(Unwatchable::Inotify)?;
        let watches = self.dirs.entry(by).or_default();
        // From here on changes are reported: whatever is read now is the state before them.
        let seen = match Seen::of(path) {
            Ok(seen) => seen,
            Err(errno) => {
                self.release(by);
                return Err(Unwatchable::Stat(errno));
            }
        };
        match &name {
            Some(name) => watches.files.entry(name.clone()).or_default().insert(path.to_owned()),
            None => watches.itself.insert(path.to_owned()),
        };
        self.made += 1;
        self.paths.insert(path.to_owned(), Watched { nth: self.made, seen, by, name });
        Ok(())
    }

    fn unwatch(&mut self, path: &str) -> Result<String, String> {
        match self.forget(path) {
            true => Ok(format!("no longer watching '{path}'")),
            false => Err(format!("not watching '{path}', cannot unwatch")),
        }
    }

    /// Drops a watch; returns whether there was one.
    fn forget(&mut self, path: &str) -> bool {
        let Some(watched) = self.paths.remove(path) else { return false };
        if let Some(dir) = self.dirs.get_mut(&watched.by) {
            match &watched.name {
                Some(name) => {
                    if let Some(paths) = dir.files.get_mut(name) {
                        paths.remove(path);
                        if paths.is_empty() {
                            dir.files.remove(name);
                        }
                    }
                }
                None => drop(dir.itself.remove(path)),
            }
            self.release(watched.by);
        }
        true
    }

    /// Ends an inotify watch that nothing needs.
    fn release(&mut self, by: i32) {
        if self.dirs.get(&by).is_some_and(|dir| dir.files.is_empty() && dir.itself.is_empty()) {
            self.dirs.remove(&by);
            // It may be gone already, with its directory.
            let _gone = inotify::remove_watch(&self.inotify, by);
        }
    }

    /// Prints the events of what inotify has queued; more than its queue holds is left for later.
    fn drain(&mut self) -> Result<(), Fault> {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut count = 0;
        while count < QUEUE {
            let mut found = Vec::new();
            let mut reader = Reader::new(&self.inotify, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_bytes().to_vec());
                        found.push((event.wd(), event.events(), name));
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed("cannot read inotify")(error.into())),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
            if found.is_empty() {
                return Ok(());
            }
            count += found.len();
            for (by, what, name) in found {
                if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                    return Err(Fault::Overflow);
                }
                self.happened(by, what, name.as_deref());
            }
            // Flags of one bufferful make one line, as the kernel merges them until they are read.
            for (path, flags) in std::mem::take(&mut self.pending) {
                self.emit(&path, flags);
            }
        }
        Ok(())
    }

    /// Maps an inotify event to flags of watched paths.
    fn happened(&mut self, by: i32, what: ReadFlags, name: Option<&[u8]>) {
        let Some(dir) = self.dirs.get(&by) else { return };
        let whole = |flags: u32, paths: Vec<String>| {
            paths.into_iter().map(|path| (path, flags)).collect::<Vec<_>>()
        };
        let itself = || dir.itself.iter().cloned().collect::<Vec<_>>();
        let mut news = Vec::new();
        if what.intersects(
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO,
        ) {
            news.extend(whole(FILE_MODIFIED, itself()));
        }
        if what.contains(ReadFlags::DELETE_SELF) {
            news.extend(whole(FILE_DELETE, itself()));
        }
        if what.contains(ReadFlags::MOVE_SELF) {
            let below: Vec<String> = dir.itself.iter().map(|path| format!("{path}/")).collect();
            let mut lost: Vec<String> = dir.files.values().flatten().cloned().collect();
            let inside =
                self.paths.keys().filter(|path| below.iter().any(|top| path.starts_with(top)));
            lost.extend(inside.cloned());
            news.extend(whole(UNMOUNTED, lost));
            news.extend(whole(FILE_RENAME_FROM, itself()));
        }
        if what.intersects(ReadFlags::UNMOUNT | ReadFlags::IGNORED) {
            news.extend(whole(UNMOUNTED, dir.all().cloned().collect()));
        }
        let named = name.and_then(|name| dir.files.get(name)).into_iter().flatten();
        let flags = [
            (ReadFlags::MODIFY, FILE_MODIFIED),
            (ReadFlags::DELETE, FILE_DELETE),
            (ReadFlags::MOVED_FROM, FILE_RENAME_FROM),
            (ReadFlags::MOVED_TO, FILE_RENAME_TO),
        ];
        for path in named {
            for (_, flag) in flags.iter().filter(|(read, _)| what.contains(*read)) {
                news.push((path.clone(), *flag));
            }
            // Of the attributes only the times of the content count.
            if what.contains(ReadFlags::ATTRIB) && self.differs(path) {
                news.push((path.clone(), FILE_MODIFIED));
            }
        }
        for (path, flag) in news {
            self.note(path, flag);
        }
    }

    fn differs(&self, path: &str) -> bool {
        let known = self.paths.get(path).map(|watched| watched.seen.modified);
        Seen::of(path).is_ok_and(|seen| Some(seen.modified) != known)
    }

    /// Adds a flag to the next line of a path. The line is printed at once if the watch cannot go
    /// on as it is: later events are of another file, or of none.
    fn note(&mut self, path: String, flag: u32) {
        if flag & FILE_EXCEPTION == 0 {
            *self.pending.entry(path).or_default() |= flag;
            return;
        }
        let earlier = self.pending.swap_remove(&path).unwrap_or_default();
        self.emit(&path, earlier | flag);
    }

    /// Prints the event of a path, examines the path again, and goes on watching it or not.
    fn emit(&mut self, path: &str, mut flags: u32) {
        let Some(watched) = self.paths.get_mut(path) else { return };
        let seen = Seen::of(path);
        // inotify does not tell a truncation from a write: the size does, if nothing was written
        // since that is longer.
        if let Ok(seen) = &seen
            && flags & FILE_MODIFIED != 0
            && seen.len < watched.seen.len
            && watched.name.is_some()
        {
            flags |= FILE_TRUNC;
        }
        let last = flags & FINAL != 0 || seen.is_err();
        if let Ok(seen) = seen {
            watched.seen = seen;
        }
        self.say(event(now(), path, flags, last));
        let readable = rustix::fs::access(path, rustix::fs::Access::READ_OK);
        match readable {
            _ if last => drop(self.forget(path)),
            Err(errno) => {
                self.forget(path);
                self.say(lost(now(), path, errno.raw_os_error()));
            }
            Ok(()) => {}
        }
    }
}

/// Why a path cannot be watched.
enum Unwatchable {
    Stat(Errno),
    Inotify(Errno),
}
