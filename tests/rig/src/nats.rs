// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real nats-servers with JetStream, on ports and in directories of their own. They end, and their files go, with the
//! process that started them.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::port::Port;
use crate::relay::{Relay, Way};
use crate::tools::{PAUSE, STARTS, is_installed};

/// Why there are none here, in a word for the output of a skipped test.
pub fn why_not() -> Option<&'static str> {
    if !is_installed("nats-server") {
        return Some("no nats-server (apt-get install nats-server)");
    }
    (!is_installed("setpriv")).then_some("no util-linux")
}

/// Servers, of one cluster if there are several.
#[derive(Debug)]
pub struct Nats {
    dir: TempDir,
    ports: Vec<[u16; 2]>,
    running: Mutex<Vec<Option<Child>>>,
    config: Option<PathBuf>,
    /// From each server to each other one, where the network between them may be parted.
    relays: Vec<(usize, usize, Relay)>,
    /// Nobody else's, also between two starts of a server.
    _held: Vec<Port>,
}

impl Nats {
    /// Starts so many servers, each with this text in its configuration.
    pub fn start(count: usize, config: Option<&str>) -> io::Result<Nats> {
        let nats = Nats::prepare(count, config)?;
        (0..count).try_for_each(|nth| nats.run(nth))?;
        Ok(nats)
    }

    /// Starts so many servers of a cluster, each of which can be cut off from the others. Within a runtime of several
    /// threads.
    pub fn partible(count: usize) -> io::Result<Nats> {
        let mut nats = Nats::prepare(count, None)?;
        for (from, to) in (0..count).flat_map(|from| (0..count).map(move |to| (from, to))) {
            if from != to {
                let server = (Ipv4Addr::LOCALHOST, nats.ports[to][1]).into();
                nats.relays.push((from, to, Relay::start(server)?));
            }
        }
        (0..count).try_for_each(|nth| nats.run(nth))?;
        Ok(nats)
    }

    fn prepare(count: usize, config: Option<&str>) -> io::Result<Nats> {
        let dir = tempfile::tempdir()?;
        let held = (0..2 * count).map(|_| Port::local()).collect::<io::Result<Vec<Port>>>()?;
        let all: Vec<u16> = held.iter().map(|port| port.address().port()).collect();
        let ports = all.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        let path = config.map(|_| dir.path().join("conf"));
        if let (Some(path), Some(text)) = (&path, config) {
            std::fs::write(path, text)?;
        }
        let running = Mutex::new((0..count).map(|_| None).collect());
        Ok(Nats { dir, ports, running, config: path, relays: Vec::new(), _held: held })
    }

    /// Starts a server, after it was killed too, and waits until it listens.
    pub fn run(&self, nth: usize) -> io::Result<()> {
        let [port, cluster] = self.ports[nth];
        let name = format!("n{nth}");
        let log = File::options().create(true).append(true).open(self.dir.path().join(&name))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nats-server", "-a", "127.0.0.1", "-js"]);
        command
            .args(["-n", &name, "-p", &port.to_string(), "-sd"])
            .arg(self.dir.path().join(name + ".js"));
        if let Some(config) = &self.config {
            command.arg("-c").arg(config);
        }
        if self.ports.len() > 1 {
            let own = format!("nats://127.0.0.1:{cluster}");
            let routes = self.routes(nth).join(",");
            command.args(["--cluster_name", "t", "--cluster", &own, "--routes", &routes]);
            if !self.relays.is_empty() {
                // Where nobody listens: the servers would tell each other a way around the relays.
                command.args(["--cluster_advertise", "127.0.0.1:1"]);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        self.running.lock().unwrap_or_else(PoisonError::into_inner)[nth] = Some(child);
        for _ in 0..STARTS {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::other(format!("nats-server does not start: {}", self.log(nth))))
    }

    /// The addresses of a server's peers.
    fn routes(&self, nth: usize) -> Vec<String> {
        let relayed = self.relays.iter().filter(|(from, ..)| *from == nth);
        let relayed: Vec<u16> = relayed.map(|(_, _, relay)| relay.address().port()).collect();
        let direct = self.ports.iter().map(|[_, port]| *port).collect();
        let ports: Vec<u16> = if relayed.is_empty() { direct } else { relayed };
        ports.into_iter().map(|port| format!("nats://127.0.0.1:{port}")).collect()
    }

    /// Cuts a server off from the others, or ends that. Clients reach it all the same.
    pub fn isolate(&self, nth: usize, is_cut_off: bool) {
        let way = if is_cut_off { Way::Parted } else { Way::Open };
        let own = self.relays.iter().filter(|(from, to, _)| *from == nth || *to == nth);
        own.for_each(|(_, _, relay)| relay.set(way));
    }

    /// Kills a server with its files as they are.
    pub fn kill(&self, nth: usize) {
        let child = self.running.lock().unwrap_or_else(PoisonError::into_inner)[nth].take();
        if let Some(mut child) = child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a server a signal: one that is stopped keeps its connections and answers nothing until it goes on.
    pub fn signal(&self, nth: usize, signal: Signal) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = running[nth].as_ref().and_then(|child| Pid::from_raw(child.id() as i32));
        // It may have ended: then there is nobody to tell.
        let Some(pid) = pid.filter(|pid| kill_process(*pid, signal).is_ok()) else { return };
        if signal == Signal::STOP {
            // The kernel stops one thread after the other, and until then the others answer.
            let ended = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _gone = waitid(WaitId::Pid(pid), ended);
        }
    }

    /// Changes the text in the configuration of each server, which reads it at its next start.
    pub fn configure(&self, text: &str) -> io::Result<()> {
        self.config.as_ref().map_or(Ok(()), |path| std::fs::write(path, text))
    }

    /// Where a server keeps its streams.
    pub fn store(&self, nth: usize) -> PathBuf {
        self.dir.path().join(format!("n{nth}.js"))
    }

    /// Lets a server that does not run lose a message of a stream, of which the others know nothing.
    pub fn lose(&self, nth: usize, stream: &str, number: u64) -> io::Result<()> {
        let dir = self.store(nth).join("jetstream/$G/streams").join(stream).join("msgs");
        let mut is_lost = false;
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            match path.extension().and_then(|it| it.to_str()) {
                Some("blk") => {
                    let mut block = std::fs::read(&path)?;
                    is_lost |= erase(&mut block, number);
                    std::fs::write(&path, block)?;
                }
                // The server makes them again from the blocks.
                Some("idx" | "fss") => std::fs::remove_file(&path)?,
                _ => {}
            }
        }
        is_lost.then_some(()).ok_or_else(|| io::Error::other("the server does not have it"))
    }

    /// Where a server listens for clients.
    pub fn address(&self, nth: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[nth][0]).into()
    }

    /// The addresses of all servers.
    pub fn servers(&self) -> Vec<String> {
        self.ports.iter().map(|[port, _]| format!("nats://127.0.0.1:{port}")).collect()
    }

    /// The log of a server.
    pub fn log(&self, nth: usize) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("n{nth}"))).unwrap_or_default()
    }
}

/// Marks a message as removed in a block of nats-server 2.9: each begins with its length, of which one bit says that it
/// has headers, and its number, of which one bit says that it was removed.
fn erase(block: &mut [u8], number: u64) -> bool {
    let mut at = 0;
    while let Some(head) = block.get(at..at + 12) {
        let (length, own) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default()) & !(1 << 31);
        if own == number.to_le_bytes() {
            block[at + 11] |= 1 << 7;
            return true;
        }
        at += length.max(12) as usize;
    }
    false
}

impl Drop for Nats {
    fn drop(&mut self) {
        (0..self.ports.len()).for_each(|nth| self.kill(nth));
    }
}
