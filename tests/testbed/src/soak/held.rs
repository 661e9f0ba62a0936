// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The resources of a process: memory, descriptors, threads, file watches and children, from /proc.
//! On other systems than Linux each reading is an error.

use std::fs;
use std::io;
use std::path::PathBuf;

/// What one process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of memory that are resident.
    pub rss: u64,
    /// Open descriptors.
    pub fds: u64,
    /// Threads.
    pub threads: u64,
    /// Watched files and directories (inotify), those of its children among them.
    pub watches: u64,
    /// Children, the dead and unreaped among them.
    pub children: u64,
    /// Children that are dead and unreaped.
    pub zombies: u64,
}

/// Looks at a process.
///
/// # Errors
/// When it has ended, or this system has no `/proc` as Linux has it.
pub fn held(pid: u32) -> io::Result<Held> {
    let dir = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(dir.join("status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let kib = field("VmRSS:").ok_or_else(|| io::Error::other("the process has no memory left"))?;
    let (children, zombies) = children(pid);
    let own = children.iter().map(|child| PathBuf::from(format!("/proc/{child}")));
    // A child may end between the two looks.
    let watches = watches(&dir)? + own.filter_map(|child| watches(&child).ok()).sum::<u64>();
    Ok(Held {
        rss: kib * 1024,
        fds: fs::read_dir(dir.join("fd"))?.count() as u64,
        threads: field("Threads:").unwrap_or(0),
        watches,
        children: children.len() as u64,
        zombies,
    })
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

/// How many children a process has, and how many of them wait to be reaped.
fn children(pid: u32) -> (Vec<u32>, u64) {
    let (mut all, mut dead) = (Vec::new(), 0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_pid = entry.file_name().to_str().is_some_and(|n| n.parse::<u32>().is_ok());
        if !is_pid {
            continue;
        }
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name stands in brackets and may hold anything; the state and the parent follow it.
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut words = rest.split(' ');
        let state = words.next();
        if words.next().and_then(|parent| parent.parse().ok()) == Some(pid) {
            all.extend(entry.file_name().to_str().and_then(|pid| pid.parse::<u32>().ok()));
            dead += u64::from(state == Some("Z"));
        }
    }
    (all, dead)
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
