// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recordings of the real services, built into the program that reads them.
//!
//! README.md beside this crate describes each of them. They are packed (gzip; the nodes as tar
//! archives) and are unpacked into a temporary directory for each use.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tempfile::TempDir;

macro_rules! packed {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_bytes!(concat!("../", $name, ".gz")).as_slice())),*]
    };
}

/// Each packed file by the name that it has when it is unpacked.
const FILES: [(&str, &[u8]); 22] = packed![
    "nodes.tar",
    "nodes-optional.tar",
    "cnapi-peer-calls.jsonl",
    "cnapi-transcripts.jsonl",
    "imgapi-transcripts.jsonl",
    "migrate-jobs.jsonl",
    "napi-transcripts-eras.jsonl",
    "napi-transcripts.jsonl",
    "papi-transcripts.jsonl",
    "qmp-expected.json",
    "qmp-transcripts.jsonl",
    "real-runs.jsonl",
    "sysevent-fswatcher-samples.jsonl",
    "vmadm-cli.jsonl",
    "vmadm-validate.jsonl",
    "vmapi-peer-calls.jsonl",
    "vmapi-transcripts.jsonl",
    "vminfod-events.jsonl",
    "vminfod-http.jsonl",
    "volapi-peer-calls.jsonl",
    "volapi-transcripts.jsonl",
    "workflow-transcripts.jsonl",
];

/// Returns the text of one recording, such as `napi-transcripts.jsonl`.
pub fn text(name: &str) -> io::Result<String> {
    let mut text = String::new();
    reader(name)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Unpacks everything into a new temporary directory, which is removed when the value is dropped. It is in memory
/// where there is room: a file system on a disk takes seconds of CPU to make and remove three thousand small files.
pub fn unpacked() -> io::Result<TempDir> {
    let in_memory = TempDir::with_prefix_in("recordings-", "/dev/shm");
    if let Ok(dir) = in_memory
        && unpack(dir.path()).is_ok()
    {
        return Ok(dir);
    }
    let dir = TempDir::with_prefix("recordings-")?;
    unpack(dir.path())?;
    Ok(dir)
}

/// Unpacks everything into `dir`: the files, the nodes (`cn-*`) and `optional/cn-*`.
pub fn unpack(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (name, _) in FILES {
        match name {
            "nodes.tar" => tar::Archive::new(reader(name)?).unpack(dir)?,
            "nodes-optional.tar" => {
                tar::Archive::new(reader(name)?).unpack(dir.join("optional"))?
            }
            _ => drop(io::copy(&mut reader(name)?, &mut File::create(dir.join(name))?)?),
        }
    }
    Ok(())
}

/// Packs a directory in the form that [`unpack`] makes into the files that this crate is built from.
///
/// The result depends only on the contents: entries are sorted, times and owners are left out (the
/// times that matter are in each node's `mtimes.json`).
pub fn pack(from: &Path, to: &Path) -> io::Result<()> {
    for (name, _) in FILES {
        let gz = File::create(to.join(format!("{name}.gz")))?;
        let mut gz = GzEncoder::new(BufWriter::new(gz), Compression::best());
        match name {
            "nodes.tar" => pack_nodes(from, &mut gz)?,
            "nodes-optional.tar" => pack_nodes(&from.join("optional"), &mut gz)?,
            _ => drop(io::copy(&mut File::open(from.join(name))?, &mut gz)?),
        }
        gz.finish()?.flush()?;
    }
    Ok(())
}

fn reader(name: &str) -> io::Result<GzDecoder<&'static [u8]>> {
    let found = FILES.iter().find(|(file, _)| *file == name);
    let (_, bytes) = found.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("there is no recording {name:?}"))
    })?;
    Ok(GzDecoder::new(bytes))
}

fn pack_nodes(from: &Path, to: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    archive.mode(tar::HeaderMode::Deterministic);
    for node in sorted(from)? {
        let is_node =
            node.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cn-"));
        if is_node {
            append(&mut archive, from, &node)?;
        }
    }
    archive.into_inner()?.flush()
}

fn append(archive: &mut tar::Builder<impl Write>, top: &Path, path: &Path) -> io::Result<()> {
    let name = path.strip_prefix(top).map_err(io::Error::other)?;
    archive.append_path_with_name(path, name)?;
    if path.is_dir() {
        for below in sorted(path)? {
            append(archive, top, &below)?;
        }
    }
    Ok(())
}

fn sorted(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn packing_what_was_unpacked_gives_the_same_bytes() {
        let (dir, again) = (unpacked().unwrap(), TempDir::new().unwrap());
        pack(dir.path(), again.path()).unwrap();
        for (name, bytes) in FILES {
            let packed = fs::read(again.path().join(format!("{name}.gz"))).unwrap();
            assert!(packed == bytes, "{name}");
        }
    }

    #[test]
    fn an_unknown_recording_is_named() {
        assert!(text("nope").unwrap_err().to_string().contains("\"nope\""));
    }
}
