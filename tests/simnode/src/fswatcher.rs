// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's `fswatcher` on Linux: commands on stdin, JSON lines on stdout, inotify inside.
//!
//! `lines` has the words of the protocol; `watcher` keeps the watches. [`serve`] also runs on one
//! end of a socket pair in a thread, for tests that want no process. All file changes made before
//! a command was written are reported before the command is answered, so that a `STATUS` is a
//! barrier.
//!
//! Not recorded from the real helper, and chosen here: events of watched directories, changes of a
//! file's times alone, plain text instead of JSON (refused), and which error a line gets that has
//! two faults. inotify does not report mounts, so MOUNTEDOVER is never emitted; a directory that is
//! renamed away counts as unmounted, since that is how the simulated node unmounts one. A change
//! through another hard link of a file is not seen.

mod told; // without inotify: reports what it is told

#[cfg(target_os = "linux")]
mod watcher; // the watches, by inotify

mod lines; // the lines of the protocol

#[cfg(target_os = "linux")]
pub use watcher::{Fault, serve};

pub use told::Told;

/// The helper on Linux in a thread of its own, spoken to as if it were a process.
#[cfg(target_os = "linux")]
pub fn in_thread() -> std::io::Result<daemon::command::Running> {
    use daemon::command::Running;

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
    Ok(Running::new(Box::new(stdout), Box::new(errors), end).with_stdin(Box::new(stdin)))
}

#[cfg(test)]
mod tests;
