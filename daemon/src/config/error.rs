// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is neither a JSON object nor a TOML table.
    #[error("configuration {place}: {reason}")]
    Syntax {
        /// The file, or `(text)`.
        place: String,
        /// The parser's message, with line and column.
        reason: String,
    },
    /// config-agent has written the file, and SAPI does not have these yet.
    #[error(
        "configuration {place}: not configured yet: {}: set the metadata of the application sdc in SAPI",
        unset.join("; ")
    )]
    Unset {
        /// The file, or `(text)`.
        place: String,
        /// `key is empty, as SAPI has no NAME`.
        unset: Vec<String>,
    },
    /// Every wrong value of the file, one entry per key.
    #[error("configuration {place}: {}", faults.join("; "))]
    Faults {
        /// The file, or `(text)`.
        place: String,
        /// `key: what is wrong`.
        faults: Vec<String>,
    },
}
