// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads a node: one source of truth per file, each a pure `parse` and a `load` that does the I/O.
//!
//! Loading decides nothing: it never composes an object of parts from different sources (except
//! [`node`] and [`vm`], which do the whole line once), never retries and never keeps anything.

pub mod config;
pub mod datasets;
mod error;
pub mod kstat;
pub mod lastexited;
mod node;
mod node_zones;
pub mod receiving;
#[cfg(test)]
pub(crate) mod scripted;
mod single;
pub mod sysinfo;
pub mod times;
mod xml;
pub mod zone_files;
pub mod zone_xml;
pub mod zoneadm;

use std::sync::Arc;
use std::time::Duration;

use crate::commands::{Commands, Output, Tool};
use crate::root::{Content, ReadError, Root};

pub use crate::walk::Haste;
pub use config::{ConfigJson, ConfigValues};
pub use datasets::Datasets;
pub use error::{Fault, LoadError, Origin};
pub use kstat::ZoneKstat;
pub use lastexited::LastExited;
pub use node::{Broken, Known, Node, ZoneParts, node, node_of, refresh, zone};
pub use receiving::Receiving;
pub use single::vm;
pub use sysinfo::Sysinfo;
pub use zone_files::ZoneFiles;
pub use zone_xml::{PackedXml, ZoneXml};
pub use zoneadm::ZoneRow;

/// How long each command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Any zoneadm.
    pub zoneadm: Duration,
    /// zfs list of one dataset.
    pub zfs_one: Duration,
    /// zfs list of the node.
    pub zfs_node: Duration,
    /// The kstat reader.
    pub kstat: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            zoneadm: Duration::from_secs(10),
            zfs_one: Duration::from_secs(30),
            zfs_node: Duration::from_secs(120),
            kstat: Duration::from_secs(10),
        }
    }
}

/// What every load needs.
#[derive(Clone)]
pub struct Ctx {
    /// Where the files are.
    pub root: Root,
    /// Who runs the commands.
    pub commands: Arc<dyn Commands>,
    /// How long they may take.
    pub deadlines: Deadlines,
}

impl Ctx {
    /// A context with the default deadlines.
    pub fn new(root: Root, commands: Arc<dyn Commands>) -> Self {
        Ctx { root, commands, deadlines: Deadlines::default() }
    }

    /// Runs a command; whatever its exit status is, it is for the caller to judge.
    async fn run(
        &self,
        origin: Origin,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> Result<Output, LoadError> {
        self.commands
            .run(tool, args, deadline)
            .await
            .map_err(|e| LoadError::new(origin, Fault::Command(e)))
    }

    /// Reads and parses files where that may block; what outlasts the deadline is a failed read.
    async fn on_files<T: Send + 'static>(
        &self,
        origin: Origin,
        place: &str,
        work: impl FnOnce(&Root) -> Result<T, LoadError> + Send + 'static,
    ) -> Result<T, LoadError> {
        let done = self.root.on_files(place, work).await;
        done.map_err(|e| LoadError::new(origin, Fault::Read(e)))?
    }
}

/// Reads a file; absent is `None`.
fn read_if_there(
    root: &Root,
    origin: Origin,
    path: &std::path::Path,
    cap: u64,
) -> Result<Option<Vec<u8>>, LoadError> {
    Ok(there(origin, path, root.read_file(path, cap))?.map(|content| content.bytes))
}

/// What was read of a file, or why not; absent is `None`.
fn there(
    origin: Origin,
    path: &std::path::Path,
    read: Result<Content, ReadError>,
) -> Result<Option<Content>, LoadError> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.is_absent() => Ok(None),
        Err(e) => Err(LoadError::new(origin, Fault::Read(e)).in_file(path)),
    }
}

/// Lines as upstream's splitter gives them, white space at both ends cut.
fn lines(bytes: &[u8]) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    bytes.split(|b| *b == b'\n').map(String::from_utf8_lossy)
}

/// Whether this is a UUID in lower case, dashes in place; nothing is asked of version or variant.
pub fn is_lower_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => matches!(b, b'0'..=b'9' | b'a'..=b'f'),
        })
}
