// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What an evacuation must remember between two commands: one small file per node.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use daemon::disk;
use serde::{Deserialize, Serialize};

/// Bytes of the file.
const LONGEST: usize = 4096;

/// What was noted before the node was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// The node was reserved before, and stays so.
    pub was_reserved: bool,
    /// The evacuation is paused as a whole.
    pub paused: bool,
}

/// The file of a node.
#[derive(Debug, Clone)]
pub(crate) struct Memory(PathBuf);

impl Memory {
    /// Returns the file of a node.
    pub(crate) fn of(dir: &Path, cn: &str) -> Memory {
        Memory(dir.join(format!("evacuate-{cn}.json")))
    }

    /// Returns the note; none if no evacuation of the node is under way.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Note>> {
        match disk::read(&self.0, LONGEST) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| self.named())?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.named()),
        }
    }

    /// Writes the note.
    pub(crate) fn write(&self, note: Note) -> anyhow::Result<()> {
        disk::write_atomically(&self.0, &note, LONGEST).with_context(|| self.named())
    }

    /// Removes the note.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| self.named())
            }
            _ => Ok(()),
        }
    }

    fn named(&self) -> String {
        self.0.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_note_lasts_until_it_is_removed_and_a_damaged_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::of(&dir.path().join("new"), "CN");
        assert_eq!(memory.read().unwrap(), None);
        let note = Note { was_reserved: true, paused: false };
        memory.write(note).unwrap();
        assert_eq!(memory.read().unwrap(), Some(note));
        memory.remove().unwrap();
        memory.remove().unwrap();
        assert_eq!(memory.read().unwrap(), None);
        std::fs::write(dir.path().join("new/evacuate-CN.json"), "{").unwrap();
        let error = memory.read().unwrap_err().to_string();
        assert!(error.ends_with("evacuate-CN.json"), "{error}");
    }
}
