// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The limits: small programs that do the least that has to be done.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use vm_model::parse::zone_xml;
use vm_model::parse::zoneadm::ZoneRow;
use vminfod::node::root::Root;

use super::client::{Client, read};
use super::table::Samples;

/// Reads and parses the XML and JSON files of these zones in this thread, with the loader's own
/// parsers.
pub(super) fn read_and_parse(root: &Root, rows: &[ZoneRow]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    for row in rows {
        let xml = root.zone_xml(&row.zonename);
        let bytes = std::fs::read(&xml).with_context(|| xml.display().to_string())?;
        std::hint::black_box(zone_xml::parse(&bytes)?);
        for name in ["metadata", "routes", "tags"] {
            let path = root.config_file(&row.zonepath, name);
            match std::fs::read(&path) {
                Ok(bytes) => drop(std::hint::black_box(vm_model::js::parse(&bytes))),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
                Err(e) => return Err(e).with_context(|| path.display().to_string()),
            }
        }
    }
    Ok(start.elapsed())
}

/// Asks for the stamps of every input of these zones, in this thread.
pub(super) fn stat_all(root: &Root, rows: &[ZoneRow]) -> Duration {
    let start = Instant::now();
    for path in rows.iter().flat_map(|row| inputs(root, row)) {
        let _absent_ones_too = std::hint::black_box(std::fs::metadata(path));
    }
    start.elapsed()
}

/// The same the shortest way: from the open directory, by names that are made before.
pub(super) fn stat_all_below(root: &Root, rows: &[ZoneRow]) -> anyhow::Result<Duration> {
    use rustix::fs::{AtFlags, Mode, OFlags};

    let dir = rustix::fs::open(root.dir(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let below = |path: PathBuf| path.strip_prefix(root.dir()).map(Path::to_path_buf);
    let all = rows.iter().flat_map(|row| inputs(root, row)).map(below);
    let all = all.collect::<Result<Vec<PathBuf>, _>>()?;
    let start = Instant::now();
    for path in &all {
        let stat = rustix::fs::statat(&dir, path, AtFlags::SYMLINK_NOFOLLOW);
        let _absent_ones_too = std::hint::black_box(stat);
    }
    Ok(start.elapsed())
}

/// The files that an object is made of.
fn inputs(root: &Root, row: &ZoneRow) -> [PathBuf; 5] {
    let [metadata, routes, tags] =
        ["metadata", "routes", "tags"].map(|name| root.config_file(&row.zonepath, name));
    let xml = root.zone_xml(&row.zonename);
    [xml, root.lastexited(&row.zonepath), metadata, routes, tags]
}

/// A server that answers every request with the same bytes: a thread, a socket and a copy.
pub(super) struct Plain {
    address: SocketAddr,
}

impl Plain {
    /// `body` is sent as one chunk, in one write.
    pub(super) fn answering(body: &[u8]) -> anyhow::Result<Plain> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer =
            [head.as_bytes(), format!("{:X}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"]
                .concat();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || echo(stream, &answer));
            }
        });
        Ok(Plain { address })
    }

    /// How long an exchange with it takes.
    pub(super) fn exchanges(&self, count: usize) -> anyhow::Result<Samples> {
        let mut client = Client::connect(self.address)?;
        exchanges(&mut client, "/", count)
    }
}

fn echo(mut stream: TcpStream, answer: &[u8]) {
    let _best_effort = stream.set_nodelay(true);
    let mut request = [0; 4096];
    while read(&mut stream, &mut request).is_ok_and(|count| count > 0) {
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

/// How long each of so many exchanges takes; the first one is not counted.
pub(super) fn exchanges(client: &mut Client, path: &str, count: usize) -> anyhow::Result<Samples> {
    client.get(path)?;
    let mut samples = Samples::default();
    for _ in 0..count {
        let start = Instant::now();
        client.get(path)?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

/// How long it takes to write a line to so many connections whose readers are waiting, one after
/// the other.
pub(super) fn raw_writes(
    connections: usize,
    line: &[u8],
    rounds: usize,
) -> anyhow::Result<Samples> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut ends = Vec::with_capacity(connections);
    for _ in 0..connections {
        let near = TcpStream::connect(address)?;
        ends.push((near, listener.accept()?.0));
    }
    for (_, far) in &ends {
        far.set_nodelay(true)?;
    }
    let (mut samples, mut buffer) = (Samples::default(), vec![0; line.len()]);
    for _ in 0..rounds {
        let start = Instant::now();
        for (_, far) in &mut ends {
            far.write_all(line)?;
        }
        samples.push(start.elapsed());
        for (near, _) in &mut ends {
            near.read_exact(&mut buffer)?;
        }
    }
    Ok(samples)
}

/// How long hashing so many bytes takes, on average over many times.
pub(super) fn hashing(bytes: &[u8], times: u32) -> f64 {
    let hasher = RandomState::new();
    let start = Instant::now();
    for _ in 0..times {
        let mut state = hasher.build_hasher();
        state.write(std::hint::black_box(bytes));
        std::hint::black_box(state.finish());
    }
    start.elapsed().as_secs_f64() / f64::from(times)
}

/// How long a piece of work takes, on average over many times.
pub(super) fn repeated<T>(times: u32, mut work: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        std::hint::black_box(work());
    }
    start.elapsed().as_secs_f64() / f64::from(times)
}

/// How long one command takes from its start to the end of its output.
pub(super) async fn command(program: &Path, args: &[&str]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    crate::process::run(program, args, Duration::from_secs(60)).await?;
    Ok(start.elapsed())
}
