// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A real NFS server for tests on Linux: one process of nfs-ganesha for each address, NFSv4 only, no grace period. The
//! address is one of loopback; the directory is on a plain file system. Clients are libnfs's.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::{NamedTempFile, TempDir};

use crate::tools::{PAUSE, STARTS, is_installed};

/// Where NFSv4 is served.
const PORT: u16 = 2049;

/// A server of one directory.
#[derive(Debug)]
pub struct Server {
    dir: TempDir,
    address: Ipv4Addr,
    name: String,
    daemon: Child,
}

/// Why there is no real NFS here, in a word for the output of a skipped test.
pub fn why_not() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root");
    }
    if !is_installed("ganesha.nfsd") {
        return Some("no nfs-ganesha (apt-get install nfs-ganesha nfs-ganesha-vfs)");
    }
    if TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).is_err() {
        return Some("another server has port 2049");
    }
    let is_here = ["nfs-cp", "nfs-cat", "setpriv"].iter().all(|tool| is_installed(tool));
    (!is_here).then_some("no libnfs (apt-get install libnfs-utils)")
}

impl Server {
    /// Serves a directory as `ADDRESS:NAME`. Returns when it answers.
    pub fn start(address: Ipv4Addr, directory: &Path, name: &str) -> io::Result<Server> {
        let dir = TempDir::new()?;
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("recovery"))?;
        std::fs::write(path("config"), config(address, directory, name, &path("recovery")))?;
        let daemon = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "ganesha.nfsd", "-F", "-f"])
            .arg(path("config"))
            .arg("-L")
            .arg(path("log"))
            .arg("-p")
            .arg(path("pid"))
            .stdin(Stdio::null())
            .stdout(File::create(path("out"))?)
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Server { dir, address, name: name.to_owned(), daemon };
        for _ in 0..STARTS {
            if server.daemon.try_wait()?.is_some() {
                break;
            }
            if TcpStream::connect(SocketAddr::from((address, PORT))).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(PAUSE);
        }
        let log = std::fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("nfs-ganesha does not start: {log}")))
    }

    /// Stops it in its tracks: connections are made, and nothing is answered.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// It goes on.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.daemon.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the server has no process"))?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Server {
    /// Where it serves: `ADDRESS:NAME`.
    pub fn path(&self) -> String {
        format!("{}:{}", self.address, self.name)
    }
}

fn config(address: Ipv4Addr, directory: &Path, name: &str, recovery: &Path) -> String {
    let (directory, recovery) = (directory.display(), recovery.display());
    format!(
        "NFS_CORE_PARAM {{ Bind_addr = {address}; NFS_Port = {PORT}; Protocols = 4; Enable_NLM = false; \
         Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = \"{recovery}\"; Minor_Versions = 0; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{directory}\"; Pseudo = \"{name}\"; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}\n"
    )
}

/// Writes a file below what `ADDRESS:PATH` exports.
pub fn write(exported: &str, file: &str, bytes: &[u8]) -> io::Result<()> {
    let mut from = NamedTempFile::new()?;
    from.write_all(bytes)?;
    told(Command::new("nfs-cp").arg(from.path()).arg(url(exported, file)?).output()?).map(drop)
}

/// Reads a file below what `ADDRESS:PATH` exports.
pub fn read(exported: &str, file: &str) -> io::Result<Vec<u8>> {
    let mut to = NamedTempFile::new()?;
    told(Command::new("nfs-cat").arg(url(exported, file)?).stdout(to.reopen()?).output()?)?;
    let mut bytes = Vec::new();
    to.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn url(exported: &str, file: &str) -> io::Result<String> {
    let (address, path) = exported.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    Ok(format!("nfs://{address}{path}/{file}?version=4"))
}

fn told(output: Output) -> io::Result<Output> {
    if output.status.success() {
        return Ok(output);
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
