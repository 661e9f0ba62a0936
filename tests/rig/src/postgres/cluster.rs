// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A PostgreSQL server of our own, with fsync on, as a user that is not root. It ends, and its files go, with
//! the process that started it, however that ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Starts the server and waits for the end of its input, which is the end of the tests. A line before that says
/// that the server was killed and its files are still needed.
const KEEPER: &str = r#"
    dir=$1; shift
    "$@" >>"$dir/log" 2>&1 &
    server=$!
    echo "$server"
    read -r killed
    kill -QUIT "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    [ -n "$killed" ] || rm -rf "$dir"
"#;

/// A server.
#[derive(Debug)]
pub struct Cluster {
    dir: TempDir,
    bin: PathBuf,
    keeper: Mutex<Option<Keeper>>,
    killed: Mutex<Vec<Pid>>,
    /// The server's wall clock is what a file says.
    clock: Option<PathBuf>,
}

#[derive(Debug)]
struct Keeper {
    child: Child,
    input: Option<ChildStdin>,
    server: Pid,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.input.take();
        let _ended = self.child.wait();
    }
}

impl Cluster {
    /// Makes and starts a server, or says why there is none.
    pub async fn start() -> Option<Cluster> {
        Cluster::made(None).await
    }

    /// The same, whose wall clock can be wrong ([`Cluster::put_clock`]); none where faketime is not installed.
    pub async fn with_clock() -> Option<Cluster> {
        let Some(library) = faketime() else {
            eprintln!("SKIPPED: faketime is not installed");
            return None;
        };
        Cluster::made(Some(library)).await
    }

    /// Makes the server's wall clock wrong by so much from now on, such as `+1d`.
    pub fn put_clock(&self, by: &str) {
        let (new, file) = (self.dir.path().join("new-clock"), self.dir.path().join("clock"));
        std::fs::write(&new, format!("{by}\n")).unwrap();
        std::fs::rename(new, file).unwrap();
    }

    async fn made(clock: Option<PathBuf>) -> Option<Cluster> {
        let Some(bin) = programs() else {
            eprintln!("SKIPPED: PostgreSQL is not installed");
            return None;
        };
        let dir = place();
        let data = dir.path().join("data");
        let output = as_user(dir.path(), &bin.join("initdb"))
            // A language's order of texts, so that it is seen where the bytes' order is not asked for.
            .args(["--no-sync", "-U", "store", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"])
            .args(["--locale-provider=icu", "--icu-locale=en-US", "-D"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        let (keeper, killed) = (Mutex::new(None), Mutex::default());
        let cluster = Cluster { dir, bin, keeper, killed, clock };
        if cluster.clock.is_some() {
            cluster.put_clock("+0");
        }
        cluster.run().await;
        Some(cluster)
    }

    /// Makes and starts a standby of this server. From then on no write is acknowledged that it does not have.
    pub async fn standby(&self) -> Cluster {
        let dir = place();
        let output = as_user(dir.path(), &self.bin.join("pg_basebackup"))
            .args(["--no-sync", "-U", "store", "-R", "-X", "stream", "-c", "fast", "-h"])
            .arg(self.dir.path())
            .arg("-D")
            .arg(dir.path().join("data"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pg_basebackup: {said}");
        let (bin, keeper) = (self.bin.clone(), Mutex::new(None));
        let standby = Cluster { dir, bin, keeper, killed: Mutex::default(), clock: None };
        standby.run().await;
        for setting in
            ["ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"]
        {
            self.execute(setting).await.unwrap();
        }
        standby
    }

    /// Makes a standby take writes.
    pub async fn promote(&self) {
        self.execute("SELECT pg_promote()").await.unwrap();
    }

    /// Starts the server, after it was killed too, and waits until it answers.
    pub async fn run(&self) {
        // A server does not start while a process of the one before still has its memory.
        let killed = std::mem::take(&mut *self.killed.lock().unwrap());
        while killed.iter().any(|process| is_alive(*process)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let dir = self.dir.path();
        let mut command = as_user(dir, Path::new("sh"));
        command.args(["-c", KEEPER, "keeper"]).arg(dir);
        if let Some(library) = &self.clock {
            // Of the server alone: what it shares with others is the server's user's.
            command.arg("env").arg(format!("LD_PRELOAD={}", library.display()));
            command.arg(format!("FAKETIME_TIMESTAMP_FILE={}", dir.join("clock").display()));
            command.args(["FAKETIME_CACHE_DURATION=1", "NO_FAKE_STAT=1"]);
            command.arg("FAKETIME_DONT_FAKE_MONOTONIC=1");
        }
        command.arg(self.bin.join("postgres"));
        command.arg("-D").arg(dir.join("data")).arg("-k").arg(dir);
        for setting in
            ["listen_addresses=", "fsync=on", "shared_buffers=16MB", "max_connections=90"]
        {
            command.args(["-c", setting]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let input = child.stdin.take();
        *self.keeper.lock().unwrap() = Some(Keeper { child, input, server });
        let began = Instant::now();
        while self.execute("SELECT").await.is_err() {
            let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(120), "no server: {}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills the server and all of its processes at one moment.
    pub fn kill(&self) {
        let mut keeper = self.keeper.lock().unwrap().take().unwrap();
        let server = keeper.server;
        let mut all = Vec::new();
        // Stopped first, so that none of them sees another die.
        for signal in [Signal::STOP, Signal::KILL] {
            all.extend([vec![server], children(server)].concat());
            for process in &all {
                let _gone = kill_process(*process, signal);
            }
        }
        *self.killed.lock().unwrap() = all;
        keeper.input.take().unwrap().write_all(b"killed\n").unwrap();
    }

    /// The directory with the server's socket.
    pub fn socket_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The address of a database.
    pub fn address(&self, database: &str) -> String {
        address(self.dir.path(), database)
    }

    /// Makes an empty database and returns its address.
    pub async fn database(&self, name: &str) -> String {
        self.execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        self.address(name)
    }

    async fn execute(&self, statement: &str) -> Result<(), tokio_postgres::Error> {
        let (client, connection) =
            tokio_postgres::connect(&self.address("postgres"), NoTls).await?;
        let connection = tokio::spawn(connection);
        let done = client.batch_execute(statement).await;
        drop(client);
        let _ended = connection.await;
        done
    }
}

/// What makes a process's wall clock wrong, where Debian puts it.
fn faketime() -> Option<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    let mut all = libraries.map(|it| it.path().join("faketime/libfaketimeMT.so.1"));
    all.find(|library| library.exists())
}

/// A directory for a server and its user.
fn place() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    if rustix::process::getuid().is_root() {
        let (uid, gid) = nobody();
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
    }
    dir
}

/// The address of a database whose server has its socket in `dir`.
pub fn address(dir: &Path, database: &str) -> String {
    format!("host={} user=store dbname={database}", dir.display())
}

/// Finds the directory with `initdb` and `postgres`: on the path, or where Debian puts it.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    versions.sort();
    dirs.extend(versions.into_iter().rev());
    let has = |dir: &PathBuf| ["initdb", "postgres"].iter().all(|name| dir.join(name).exists());
    // The real place: the server finds its own files beside its program.
    dirs.into_iter()
        .find(has)
        .and_then(|dir| dir.join("postgres").canonicalize().ok()?.parent().map(Path::to_owned))
}

/// The user and group `nobody`.
fn nobody() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let row = fields.into_iter().find(|row| row[0] == "nobody").unwrap();
    (row[2].parse().unwrap(), row[3].parse().unwrap())
}

/// Runs a program as the owner of `dir`; PostgreSQL refuses to run as root.
fn as_user(dir: &Path, program: &Path) -> Command {
    let owner = std::fs::metadata(dir).unwrap();
    let mut command = if rustix::process::getuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--clear-groups", &format!("--reuid={}", owner.uid())]);
        command.arg(format!("--regid={}", owner.gid())).arg("--").arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(dir);
    command
}

/// Returns true if a process has not ended; a zombie has.
fn is_alive(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// The processes that this one started.
fn children(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let after_name = stat.rsplit_once(") ")?.1;
        let its_parent: i32 = after_name.split(' ').nth(1)?.parse().ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (its_parent == parent.as_raw_nonzero().get()).then(|| Pid::from_raw(pid))?
    });
    processes.collect()
}
