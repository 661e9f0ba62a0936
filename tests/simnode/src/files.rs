// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Writes files as the node's programs do: by renaming a temporary file over the old one, or in
//! place.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clock;
use crate::error::NodeError;

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Replaces a file in one step.
pub fn replace(path: &Path, text: &[u8]) -> Result<(), NodeError> {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}.{serial}", std::process::id()));
    std::fs::write(&temporary, text).map_err(|e| NodeError::io("write", &temporary, e))?;
    simulated(&temporary)?;
    std::fs::rename(&temporary, path).map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        NodeError::io("replace", path, e)
    })
}

/// Replaces a JSON file in one step, indented by two as the node's tools write it.
pub fn write_json(path: &Path, value: &Value) -> Result<(), NodeError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| NodeError::malformed(path, e))?;
    text.push(b'\n');
    replace(path, &text)
}

/// Reads a JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, NodeError> {
    parse_json(path, &read(path)?)
}

/// Reads a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, NodeError> {
    std::fs::read(path).map_err(|e| NodeError::io("read", path, e))
}

/// Parses what a JSON file said.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, NodeError> {
    serde_json::from_slice(text).map_err(|e| NodeError::malformed(path, e))
}

/// Writes a file in place, as zoneadmd does with `lastexited`.
pub fn write_in_place(path: &Path, text: &[u8]) -> Result<(), NodeError> {
    let mut file = std::fs::File::create(path).map_err(|e| NodeError::io("create", path, e))?;
    file.write_all(text).map_err(|e| NodeError::io("write", path, e))?;
    simulated(path)
}

/// A file that was just written gets the node's time, where that is not the system's.
fn simulated(path: &Path) -> Result<(), NodeError> {
    if clock::is_simulated() { touch(path, clock::now()) } else { Ok(()) }
}

/// Sets when a file was modified.
pub fn touch(path: &Path, at: jiff::Timestamp) -> Result<(), NodeError> {
    let file = std::fs::File::options().write(true).open(path);
    file.and_then(|file| file.set_modified(at.into())).map_err(|e| NodeError::io("touch", path, e))
}

/// Creates a directory and its parents.
pub fn make_dir(path: &Path) -> Result<(), NodeError> {
    std::fs::create_dir_all(path).map_err(|e| NodeError::io("make directory", path, e))
}

/// Removes a file if it exists.
pub fn remove_file(path: &Path) -> Result<(), NodeError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(NodeError::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Removes a directory tree if it exists.
pub fn remove_tree(path: &Path) -> Result<(), NodeError> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(NodeError::io("remove", path, e)),
        _ => Ok(()),
    }
}

/// Copies the files of a directory tree.
pub fn copy_tree(from: &Path, to: &Path) -> Result<(), NodeError> {
    make_dir(to)?;
    let entries = std::fs::read_dir(from).map_err(|e| NodeError::io("read", from, e))?;
    for entry in entries {
        let entry = entry.map_err(|e| NodeError::io("read", from, e))?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(|e| NodeError::io("stat", &entry.path(), e))?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target).map_err(|e| NodeError::io("copy", &target, e))?;
        }
    }
    Ok(())
}

/// Now, in whole seconds since 1970.
pub fn now_seconds() -> i64 {
    clock::now().as_second()
}

/// Now, as the node's tools print it.
pub fn now_iso() -> String {
    iso(clock::now())
}

/// A time with milliseconds, as the node's tools print it.
pub fn iso(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
