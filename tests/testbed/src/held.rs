// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The processes of this system and what each holds: memory, descriptors, threads, file watches and
//! children, from /proc. On other systems than Linux each reading is an error.

use std::fs;
use std::io;
use std::path::PathBuf;

/// What one process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of memory that are resident.
    pub rss: u64,
    pub fds: u64,
    pub threads: u64,
    /// Watched files and directories (inotify), those of its children among them.
    pub watches: u64,
    /// Children, the dead and unreaped among them.
    pub children: u64,
    /// Children that are dead and unreaped.
    pub zombies: u64,
}

/// Looks at a process.
pub fn held(pid: u32) -> io::Result<Held> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let children: Vec<Process> = processes().filter(|one| one.parent == pid).collect();
    let own = children.iter().map(|child| PathBuf::from(format!("/proc/{}", child.pid)));
    // A child may end between the two looks.
    let watches = watches(&dir)? + own.filter_map(|child| watches(&child).ok()).sum::<u64>();
    Ok(Held {
        rss: memory(pid, "VmRSS")?,
        fds: fs::read_dir(dir.join("fd"))?.count() as u64,
        threads: fs::read_dir(dir.join("task"))?.count() as u64,
        watches,
        children: children.len() as u64,
        zombies: children.iter().filter(|child| child.is_dead).count() as u64,
    })
}

/// Bytes of memory of a process, by a name of its `/proc/PID/status`: `VmRSS`, `VmHWM`, `RssFile`.
pub fn memory(pid: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| io::Error::other("the process has no memory left"))? * 1024)
}

fn watches(dir: &std::path::Path) -> io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(dir.join("fdinfo"))? {
        // A descriptor may be closed between the two looks.
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        count += info.lines().filter(|line| line.starts_with("inotify ")).count();
    }
    Ok(count as u64)
}

/// A process of this system.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    /// That of the one that started it.
    pub parent: u32,
    /// It has ended and was not reaped.
    pub is_dead: bool,
    /// Its command line, words divided by NUL; empty once it has ended.
    pub command: String,
}

/// All processes of this system; none where there is no `/proc` as Linux has it.
pub fn processes() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name stands in brackets and may hold anything; the state and the parent follow it.
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        Some(Process { pid, parent, is_dead: state == "Z", command })
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_and_a_watch_are_seen() {
        use rustix::fs::inotify;
        let me = std::process::id();
        let dir = tempfile::tempdir().unwrap();
        let before = held(me).unwrap();
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, dir.path(), inotify::WatchFlags::MOVED_TO).unwrap();
        let after = held(me).unwrap();
        // Other tests of this process open and close files of their own.
        assert!(after.watches > before.watches, "{before:?} {after:?}");
        assert!(after.rss > 0 && after.threads > 0 && after.fds > 0, "{after:?}");
        assert!(held(u32::MAX >> 1).is_err());
    }
}

/// The children of a process that run this tool of the node.
pub fn children_of(parent: u32, tool: &str) -> Vec<u32> {
    let tool = format!("/bin/{tool}\0");
    let runs = |one: &Process| one.parent == parent && one.command.contains(&tool);
    processes().filter(runs).map(|one| one.pid).collect()
}
