// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recordings: seeds, groups and exchanges, one JSON object a line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use mocks::napi::Era;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// The file could not be read.
    #[error("reading {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{path}:{line}: expected a seed, a group or an exchange: {source}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        source: serde_json::Error,
    },
    /// An exchange or a group refers to something that is not there.
    #[error("{path}:{line}: {what}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is missing.
        what: String,
    },
}

/// A header value that contains the tag of an earlier answer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Reference {
    pub(super) of: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) query: String,
    #[serde(default)]
    pub(super) headers: HashMap<String, String>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) body_raw: Option<String>,
    #[serde(default)]
    pub(super) refs: HashMap<String, Vec<Reference>>,
    #[serde(default)]
    pub(super) expect_status: Option<u16>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answered {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: Option<HashMap<String, String>>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) body_text: Option<String>,
}

impl Answered {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name).map(String::as_str)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) id: u64,
    pub(super) request: Asked,
    pub(super) response: Answered,
    pub(super) concurrent: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) era: Era,
    pub(super) preparation: Vec<Asked>,
    pub(super) exchanges: Vec<Exchange>,
}

/// A whole recording.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    pub(super) groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Line {
    seed: Option<String>,
    mode: Option<String>,
    requests: Option<Vec<Asked>>,
    group: Option<String>,
    setup: Option<Vec<Asked>>,
    id: Option<u64>,
    request: Option<Asked>,
    response: Option<Answered>,
    concurrent: Option<Value>,
}

impl Transcript {
    /// Reads a recording.
    pub fn read(path: &Path) -> Result<Self, TranscriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TranscriptError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the text of a recording; the path is for errors only.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TranscriptError> {
        let mut seeds: HashMap<String, Vec<Asked>> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let missing = |what: String| TranscriptError::Missing {
                path: path.to_owned(),
                line: at + 1,
                what,
            };
            let line: Line = serde_json::from_str(line).map_err(|source| {
                TranscriptError::Line { path: path.to_owned(), line: at + 1, source }
            })?;
            let concurrent = line.concurrent.map(|tag| tag.to_string());
            match (line.id, line.group, line.seed, line.requests) {
                (Some(id), Some(name), ..) => {
                    let (Some(request), Some(response)) = (line.request, line.response) else {
                        return Err(missing(format!(
                            "exchange {id} lacks its request or response"
                        )));
                    };
                    let group =
                        groups.iter_mut().find(|group| group.name == name).ok_or_else(|| {
                            missing(format!("exchange {id} of a group not yet seen: {name}"))
                        })?;
                    group.exchanges.push(Exchange { id, request, response, concurrent });
                }
                (None, Some(name), Some(seed), _) => {
                    let mut preparation = seeds.get(&seed).cloned().ok_or_else(|| {
                        missing(format!("group {name} of a seed not yet seen: {seed}"))
                    })?;
                    preparation.extend(line.setup.unwrap_or_default());
                    let mode =
                        line.mode.ok_or_else(|| missing(format!("group {name} has no mode")))?;
                    let era = mode.parse().map_err(missing)?;
                    groups.push(Group { name, era, preparation, exchanges: Vec::new() });
                }
                (None, None, Some(seed), Some(requests)) => {
                    seeds.insert(seed, requests);
                }
                _ => return Err(missing("neither a seed, a group nor an exchange".to_owned())),
            }
        }
        Ok(Self { groups })
    }
}
