// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Sysevents from a change of the node to every running `sysevent`.
//!
//! Each running `sysevent` binds a datagram socket in `NODE/run`, named after its stream. The
//! holder of the node's lock sends to all of them. As with the kernel's queues, a follower that
//! does not read loses events silently and does not stop the node.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::datasets::History;
use crate::error::NodeError;
use crate::files;
use crate::node::Node;

pub use crate::tap::Stream;

/// Time that a sender waits for a follower whose queue is full.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of events that a follower keeps for a slow reader.
const QUEUE: usize = 65_536;
/// Longest socket address that is used as it is.
const DIRECT: usize = 100;

impl Stream {
    fn prefix(self) -> &'static str {
        match self {
            Stream::Zones => "zones.",
            Stream::Zfs => "zfs.",
            Stream::Silent => "silent.",
        }
    }
}

/// One event, ready to be sent.
#[derive(Clone, Debug)]
pub struct Sysevent {
    stream: Stream,
    body: Value,
}

impl Sysevent {
    /// A zone changes its state; the kernel posts with process 0.
    pub fn zone(by: &str, zonename: &str, old: &str, new: &str, zoneid: Option<i64>) -> Sysevent {
        let when = clock::now().as_nanosecond();
        let body = json!({
            "vendor": "sun.com", "publisher": by, "class": "status", "subclass": "change",
            "pid": if by == "kernel" { 0 } else { std::process::id() },
            "data": {
                "zonename": zonename, "newstate": new, "oldstate": old,
                "zoneid": zoneid.unwrap_or(-1), "when": u64::try_from(when).unwrap_or_default(),
            },
            "channel": "com.sun:zones:status",
        });
        Sysevent { stream: Stream::Zones, body }
    }

    /// The kernel restarted the init of a running zone.
    pub fn init_restart(zonename: &str, zoneid: Option<i64>, restarts: u32) -> Sysevent {
        let when = clock::now().as_nanosecond();
        let body = json!({
            "vendor": "sun.com", "publisher": "kernel", "class": "init", "subclass": "restart", "pid": 0,
            "data": {
                "zonename": zonename, "restarts": restarts,
                "zoneid": zoneid.unwrap_or(-1), "when": u64::try_from(when).unwrap_or_default(),
            },
            "channel": "com.sun:zones:status",
        });
        Sysevent { stream: Stream::Zones, body }
    }

    /// The ping of the zone-notify library: an event without data.
    pub fn zone_ping() -> Sysevent {
        let body = json!({
            "vendor": "sun.com", "publisher": "zoneadm", "class": "status", "subclass": "ping",
            "pid": std::process::id(), "channel": "com.sun:zones:status",
        });
        Sysevent { stream: Stream::Zones, body }
    }

    /// An internal history record of zfs.
    pub fn history(node: &Node, event: &History) -> Sysevent {
        let pool = event.dsname.split('/').next().unwrap_or_default();
        let body = json!({
            "vendor": "SUNW", "publisher": "zfs", "class": "EC_zfs",
            "subclass": "ESC_ZFS_history_event", "pid": 0,
            "data": {
                "pool_name": pool, "pool_guid": 5_190_817_246_093_551_623_u64,
                "history_hostname": node.info().hostname, "history_dsname": event.dsname,
                "history_internal_str": event.detail, "history_internal_name": event.action,
                "history_dsid": event.dsid, "history_txg": event.txg,
                "history_time": files::now_seconds(),
            },
        });
        Sysevent { stream: Stream::Zfs, body }
    }

    /// The line, as of now.
    pub fn line(&self) -> String {
        head() + &self.tail()
    }

    /// The part of the line that does not depend on when it is printed.
    fn tail(&self) -> String {
        let text = self.body.to_string();
        let mut tail = String::with_capacity(text.len());
        for unit in text.trim_start_matches('{').encode_utf16() {
            match char::from_u32(u32::from(unit)).filter(char::is_ascii) {
                Some(c) => tail.push(c),
                None => tail.push_str(&format!("\\u{unit:04x}")),
            }
        }
        tail
    }
}

/// The part of a line that says when it is printed.
fn head() -> String {
    format!("{{\"date\":\"{}\",\"type\":\"event\",", files::now_iso())
}

/// Where to reach a socket: its path, or for long paths the same file through the open directory.
struct Directory {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    open: Option<std::fs::File>,
}

impl Directory {
    fn open(path: PathBuf) -> Result<Directory, NodeError> {
        #[cfg(target_os = "linux")]
        let open = match path.as_os_str().len() + 24 > DIRECT {
            true => Some(std::fs::File::open(&path).map_err(|e| NodeError::io("open", &path, e))?),
            false => None,
        };
        #[cfg(not(target_os = "linux"))]
        if path.as_os_str().len() + 24 > DIRECT {
            return Err(NodeError::malformed(&path, "path too long for a socket address"));
        }
        Ok(Directory {
            path,
            #[cfg(target_os = "linux")]
            open,
        })
    }

    fn address(&self, name: &str) -> PathBuf {
        #[cfg(target_os = "linux")]
        if let Some(open) = &self.open {
            use std::os::fd::AsRawFd;
            return PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
        }
        self.path.join(name)
    }
}

/// Sends an event to every follower of its stream. The caller holds the node's lock.
pub(crate) fn post(node: &Node, event: &Sysevent) -> Result<(), NodeError> {
    if let Some(tap) = node.tap() {
        tap.push(event.stream, event.line());
    }
    let dir = Directory::open(node.run_dir())?;
    let entries = std::fs::read_dir(&dir.path).map_err(|e| NodeError::io("read", &dir.path, e))?;
    let mut followers: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(event.stream.prefix()) && !name.ends_with(".full"))
        .collect();
    if followers.is_empty() {
        return Ok(());
    }
    followers.sort();
    let tail = event.tail();
    let socket =
        UnixDatagram::unbound().map_err(|e| NodeError::io("make a socket in", &dir.path, e))?;
    for name in followers {
        // A follower that made a sender wait gets no more time until it reads again.
        let full = dir.path.join(format!("{name}.full"));
        let was_full = full.exists();
        let patience = if was_full { Duration::from_millis(1) } else { PATIENCE };
        let _ = socket.set_write_timeout(Some(patience));
        match socket.send_to(tail.as_bytes(), dir.address(&name)) {
            Ok(_) if was_full => files::remove_file(&full)?,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                let _ = std::fs::write(&full, b"");
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
                files::remove_file(&dir.path.join(&name))?;
                files::remove_file(&full)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Removes its socket when the follower ends by itself.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Prints events until the reader or the parent goes away.
pub(crate) fn follow(node: &Node, stream: Stream, ready: bool) -> Result<(), NodeError> {
    let dir = Directory::open(node.run_dir())?;
    let name = format!("{}{}", stream.prefix(), std::process::id());
    let file = dir.path.join(&name);
    files::remove_file(&file)?;
    let socket =
        UnixDatagram::bind(dir.address(&name)).map_err(|e| NodeError::io("bind", &file, e))?;
    let _bound = Bound(file.clone());
    // A bounded queue, as the kernel's: events that do not fit are dropped silently.
    let (sender, queue) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
    std::thread::Builder::new()
        .name("receive".to_string())
        .spawn(move || receive(&socket, &sender))
        .map_err(|e| NodeError::io("start a thread for", &file, e))?;
    print(&queue, ready).map_err(|e| NodeError::io("print events of", &file, e))
}

fn receive(socket: &UnixDatagram, sender: &mpsc::SyncSender<Vec<u8>>) {
    let mut buffer = vec![0_u8; 65_536];
    loop {
        match socket.recv(&mut buffer) {
            Ok(n) => {
                let event = buffer.get(..n).unwrap_or_default().to_vec();
                if let Err(mpsc::TrySendError::Disconnected(_)) = sender.try_send(event) {
                    return;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn print(queue: &mpsc::Receiver<Vec<u8>>, ready: bool) -> std::io::Result<()> {
    let stdout = std::io::stdout();
    // A killed reader leaves a pipe. Output to a file goes on.
    let piped = matches!(
        rustix::fs::fstat(stdout.as_fd()).map(|s| rustix::fs::FileType::from_raw_mode(s.st_mode)),
        Ok(rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket)
    );
    let parent = rustix::process::getppid();
    let mut out = stdout.lock();
    if ready {
        writeln!(out, "{{\"date\":\"{}\",\"type\":\"ready\"}}", files::now_iso())?;
        out.flush()?;
    }
    loop {
        match queue.recv_timeout(Duration::from_secs(1)) {
            Ok(tail) => {
                let mut line = head().into_bytes();
                line.extend_from_slice(&tail);
                line.push(b'\n');
                out.write_all(&line)?;
                out.flush()?;
            }
            Err(mpsc::RecvTimeoutError::Timeout)
                if piped && rustix::process::getppid() != parent =>
            {
                return Ok(());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The running followers of a node, by socket name.
pub fn followers(run: &Path) -> Vec<String> {
    let names = std::fs::read_dir(run).into_iter().flatten();
    names
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| !n.ends_with(".full"))
        .collect()
}
