// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The recordings of services: seeds, groups, exchanges, and what was done to the surroundings; one
//! JSON object a line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::reply::Response;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// The file could not be read.
    #[error("reading {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// A line is not what it should be.
    #[error("{path}:{line}: expected a seed, a group or an exchange: {source}")]
    Line {
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        source: serde_json::Error,
    },
    /// An exchange or a group refers to something that is not there.
    #[error("{path}:{line}: {what}")]
    Missing {
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is missing.
        what: String,
    },
}

/// A request.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) query: String,
    #[serde(default, deserialize_with = "sent")]
    pub(super) headers: HashMap<String, String>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) body_raw: Option<String>,
    /// A long body is recorded as its length and its ends; between them is what the head ends with.
    #[serde(default)]
    pub(super) body_raw_len: Option<usize>,
    #[serde(default)]
    pub(super) body_raw_head: Option<String>,
    #[serde(default)]
    pub(super) body_raw_tail: Option<String>,
    #[serde(default)]
    pub(super) refs: HashMap<String, Value>,
    #[serde(default)]
    pub(super) expect_status: Option<u16>,
    /// Requests that were sent while the answer was streamed.
    #[serde(default)]
    pub(super) meanwhile: Vec<Timed<Asked>>,
}

/// The headers that were sent; null: this one was not.
fn sent<'de, D: Deserializer<'de>>(from: D) -> Result<HashMap<String, String>, D::Error> {
    let named = HashMap::<String, Option<String>>::deserialize(from)?;
    Ok(named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// A step of the world that the runner does not know: its group cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[error("nobody knows how to do {0}")]
pub(super) struct UnknownStep(pub(super) Value);

/// Something that happened so many milliseconds after the request.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Timed<T> {
    pub(super) ms: u64,
    #[serde(flatten)]
    pub(super) what: T,
}

/// A line of a streamed answer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Streamed {
    pub(super) line: Value,
}

impl Asked {
    /// Returns a long body as it was, where only its ends are recorded.
    pub(super) fn whole_body(&self) -> Option<String> {
        let (head, tail) = (self.body_raw_head.as_ref()?, self.body_raw_tail.as_ref()?);
        let filling = head.chars().last()?.to_string();
        let missing = self.body_raw_len?.checked_sub(head.len() + tail.len())?;
        Some(format!("{head}{}{tail}", filling.repeat(missing)))
    }
}

/// A recorded answer; no status if the connection closed without one.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Answered {
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: Option<HashMap<String, String>>,
    /// The names of the headers whose values are not recorded.
    #[serde(default)]
    pub(super) other_headers: Option<Vec<String>>,
    #[serde(default)]
    pub(super) body: Option<Value>,
    #[serde(default)]
    pub(super) body_text: Option<String>,
    /// Nothing came as long as the recorder waited; the connection was open.
    #[serde(default)]
    pub(super) timeout: bool,
    /// The lines of a streamed answer.
    #[serde(default)]
    pub(super) stream: Option<Vec<Timed<Streamed>>>,
}

impl Answered {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.as_ref()?.get(name).map(String::as_str)
    }

    /// Compares the status and these headers; the error says what was expected and what came.
    pub(super) fn same_head(&self, got: Option<&Response>, names: &[&str]) -> Result<(), String> {
        let status = got.map(|got| got.status);
        if self.status != status {
            let body = got.map(|got| String::from_utf8_lossy(&got.body)).unwrap_or_default();
            return Err(format!("status: expected {:?}, got {status:?} {body}", self.status));
        }
        for name in names {
            let (want, got) = (self.header(name), got.and_then(|got| got.header(name)));
            if want != got {
                return Err(format!("{name}: expected {want:?}, got {got:?}"));
            }
        }
        Ok(())
    }
}

/// A request and its recorded answer.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) id: String,
    pub(super) request: Asked,
    pub(super) response: Answered,
    pub(super) concurrent: Option<String>,
}

impl Exchange {
    /// Its place in the words of a report.
    pub(super) fn place(&self, group: &str) -> String {
        let Asked { method, path, query, .. } = &self.request;
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{group} {} {method} {path}{mark}{query}", self.id)
    }
}

/// A step of a group.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An exchange with the service.
    Exchange(Box<Exchange>),
    /// What was done to its surroundings.
    World(Value),
    /// What VMAPI's changefeed has for the exchange before.
    Published(Vec<Value>),
}

/// Exchanges that build on each other.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) mode: String,
    /// The surroundings at its start.
    pub(super) world: Value,
    pub(super) preparation: Vec<Asked>,
    /// It starts from what the world calls its base.
    pub(super) has_base: bool,
    pub(super) steps: Vec<Step>,
}

impl Group {
    pub(super) fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.steps.iter().filter_map(|step| match step {
            Step::Exchange(exchange) => Some(&**exchange),
            Step::World(_) | Step::Published(_) => None,
        })
    }
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
    setup: Option<Vec<Value>>,
    world: Option<Value>,
    published: Option<Vec<Value>>,
    id: Option<Value>,
    request: Option<Value>,
    response: Option<Answered>,
    concurrent: Option<Value>,
}

/// What a recorded line with an id is: an exchange, or what was done while no answer was looked at. A request without
/// a method, or with a step in `meanwhile` that is none, is such a step itself.
fn step(
    id: &Value,
    request: Value,
    response: Option<Answered>,
    concurrent: Option<String>,
) -> Result<Step, serde_json::Error> {
    let others = request["meanwhile"].as_array().into_iter().flatten();
    let is_request = |value: &Value| value["method"].is_string() && value["path"].is_string();
    if let Some(odd) = std::iter::once(&request).chain(others).find(|it| !is_request(it)) {
        return Ok(Step::World(odd.clone()));
    }
    let Some(response) = response else {
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let query = Some(text("query")).filter(|query| !query.is_empty());
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let done = format!("{} {}{query}", text("method"), text("path"));
        return Ok(Step::World(json!({ "do": done, "body": request["body"] })));
    };
    let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let request = serde_json::from_value(request)?;
    Ok(Step::Exchange(Box::new(Exchange { id, request, response, concurrent })))
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
        let mut seeds: HashMap<String, (Value, Vec<Asked>)> = HashMap::new();
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
            let world = line.world.unwrap_or_default();
            match (line.id, line.group, line.seed, line.requests) {
                (Some(id), Some(name), ..) => {
                    let lacks = || missing(format!("exchange {id} lacks its request"));
                    let request = line.request.ok_or_else(lacks)?;
                    let step = step(&id, request, line.response, concurrent);
                    let step = step.map_err(|why| missing(format!("exchange {id}: {why}")))?;
                    add(&mut groups, &name, step).map_err(missing)?;
                }
                (None, Some(name), None, _) if !world.is_null() => {
                    add(&mut groups, &name, Step::World(world)).map_err(missing)?;
                }
                (None, Some(name), None, _) if line.published.is_some() => {
                    let items = line.published.unwrap_or_default();
                    add(&mut groups, &name, Step::Published(items)).map_err(missing)?;
                }
                (None, Some(name), Some(seed), _) => {
                    let (world, mut preparation) = seeds.get(&seed).cloned().ok_or_else(|| {
                        missing(format!("group {name} of a seed not yet seen: {seed}"))
                    })?;
                    let setup = line.setup.unwrap_or_default();
                    let has_base = setup.iter().any(|step| step["as"] == "base");
                    for step in setup.into_iter().filter(|step| step.get("as").is_none()) {
                        let asked = serde_json::from_value(step);
                        preparation.push(asked.map_err(|why| missing(why.to_string()))?);
                    }
                    let mode =
                        line.mode.ok_or_else(|| missing(format!("group {name} has no mode")))?;
                    groups.push(Group {
                        name,
                        mode,
                        world,
                        preparation,
                        has_base,
                        steps: Vec::new(),
                    });
                }
                (None, None, Some(seed), Some(requests)) => {
                    seeds.insert(seed, (world, requests));
                }
                _ => return Err(missing("neither a seed, a group nor an exchange".to_owned())),
            }
        }
        Ok(Self { groups })
    }
}

fn add(groups: &mut [Group], name: &str, step: Step) -> Result<(), String> {
    let group = groups.iter_mut().find(|group| group.name == name);
    let group = group.ok_or_else(|| format!("a step of a group not yet seen: {name}"))?;
    group.steps.push(step);
    Ok(())
}
