// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Typed look-ups by dotted key, with defaults and bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sdc_clients::quoted;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::error::ConfigError;
use super::file::{collect_unknown, read_capped};
use super::sapi::{FROM_SAPI, is_empty};
use super::values::{Window, environment, http_url, https_url, parse_span, written_span};

/// A configuration file. Every look-up returns a usable value, the default in place of a wrong one, and
/// notes the fault; [`Fields::finish`] returns all faults.
#[derive(Debug)]
pub struct Fields {
    place: String,
    root: Map<String, Value>,
    known: BTreeSet<String>,
    /// Each with its key.
    faults: Vec<(String, String)>,
}

impl Fields {
    /// Makes an empty configuration: every look-up returns its default.
    pub fn empty() -> Self {
        Self::new("(defaults)".to_owned(), Map::new())
    }

    /// Reads a file: `.toml` as TOML, all else as JSON (as Triton's config-agent writes it).
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read_capped(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let place = path.display().to_string();
        if path.extension().is_some_and(|ext| ext == "toml") {
            Self::toml(place, &text)
        } else {
            Self::json(place, &text)
        }
    }

    /// Reads the file that is named; else the one that the environment variable names; else the installed
    /// one, if it exists; else nothing.
    pub fn find(
        named: Option<&Path>,
        variable: Option<&str>,
        installed: &str,
    ) -> Result<Self, ConfigError> {
        let named = named.map(Path::to_owned);
        match named.or_else(|| Some(environment(variable?)?.into())) {
            Some(path) => Self::load(&path),
            None if Path::new(installed).exists() => Self::load(Path::new(installed)),
            None => Ok(Self::empty()),
        }
    }

    /// Reads JSON text; the text must be one object.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        Self::json("(text)".to_owned(), text)
    }

    /// Reads TOML text.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::toml("(text)".to_owned(), text)
    }

    fn json(place: String, text: &str) -> Result<Self, ConfigError> {
        match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(root)) => Ok(Self::new(place, root)),
            Ok(_) => Err(ConfigError::Syntax { place, reason: "not a JSON object".to_owned() }),
            Err(err) => Err(ConfigError::Syntax { place, reason: err.to_string() }),
        }
    }

    fn toml(place: String, text: &str) -> Result<Self, ConfigError> {
        match toml::from_str::<Map<String, Value>>(text) {
            Ok(root) => Ok(Self::new(place, root)),
            Err(err) => Err(ConfigError::Syntax {
                place,
                reason: err.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
            }),
        }
    }

    fn new(place: String, root: Map<String, Value>) -> Self {
        Self { place, root, known: BTreeSet::new(), faults: Vec::new() }
    }

    /// Returns the raw value at a dotted key (`napi.url`), and marks the key as known.
    pub fn get(&mut self, key: &str) -> Option<&Value> {
        self.known.insert(key.to_owned());
        let mut parts = key.split('.');
        let mut value = self.root.get(parts.next()?)?;
        for part in parts {
            value = value.as_object()?.get(part)?;
        }
        Some(value)
    }

    /// Notes a fault found by the caller, such as two keys that do not fit.
    pub fn fault(&mut self, key: &str, reason: impl Display) {
        self.faults.push((key.to_owned(), reason.to_string()));
    }

    /// Returns a string, if present.
    pub fn optional_text(&mut self, key: &str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => {
                let reason = format!("expected a text, found {}", kind(other));
                self.fault(key, reason);
                None
            }
        }
    }

    /// Returns a string, or its default.
    pub fn text(&mut self, key: &str, default: &str) -> String {
        self.optional_text(key).unwrap_or_else(|| default.to_owned())
    }

    /// Returns a string parsed as `T` (an address, a level, an enum), or its default.
    ///
    /// # Panics
    /// `default` does not parse.
    pub fn parse<T>(&mut self, key: &str, default: &str) -> T
    where
        T: FromStr,
        T::Err: Display,
    {
        let given = self.optional_text(key);
        if let Some(text) = given {
            match text.parse() {
                Ok(value) => return value,
                Err(err) => self.fault(key, format_args!("{}: {err}", quoted(&text))),
            }
        }
        match default.parse() {
            Ok(value) => value,
            Err(err) => panic!("invariant: the default of {key} parses: {err}"),
        }
    }

    /// Returns the base URL of a service, without a slash at its end, or its default.
    pub fn url(&mut self, key: &str, default: &str) -> String {
        let text = self.text(key, default);
        http_url(&text).unwrap_or_else(|reason| {
            self.fault(key, reason);
            String::new()
        })
    }

    /// Returns base URLs by uuids of nodes; none by default.
    pub fn urls_of_nodes(&mut self, key: &str) -> BTreeMap<Uuid, String> {
        let given = match self.get(key) {
            Some(Value::Object(given)) => given.clone(),
            Some(_) => {
                self.fault(key, "expected an object from a node's uuid to an address");
                return BTreeMap::new();
            }
            None => return BTreeMap::new(),
        };
        let mut urls = BTreeMap::new();
        for (node, url) in given {
            let url = url.as_str().and_then(|url| https_url(url).ok());
            match (node.parse(), url) {
                (Ok(node), Some(url)) => drop(urls.insert(node, url)),
                _ => {
                    let reason = "expected a uuid and an https:// address";
                    self.fault(&format!("{key}.{node}"), reason);
                }
            }
        }
        urls
    }

    /// Returns an address of this node alone, or `port` of the loopback address.
    pub fn loopback(&mut self, key: &str, port: u16) -> SocketAddr {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let address: SocketAddr = self.parse(key, &default.to_string());
        if !address.ip().is_loopback() {
            self.fault(key, "only a loopback address is allowed");
        }
        address
    }

    /// Returns `metrics.listen`: where other nodes may collect metrics, if anywhere.
    pub fn metrics(&mut self) -> Option<SocketAddr> {
        let text = self.optional_text("metrics.listen")?;
        text.parse()
            .map_err(|err| self.fault("metrics.listen", format_args!("{}: {err}", quoted(&text))))
            .ok()
    }

    /// Returns a path, or its default.
    pub fn path(&mut self, key: &str, default: impl AsRef<Path>) -> PathBuf {
        match self.optional_text(key) {
            Some(text) => PathBuf::from(text),
            None => default.as_ref().to_owned(),
        }
    }

    /// Returns a boolean, or its default.
    pub fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.get(key) {
            None => default,
            Some(Value::Bool(value)) => *value,
            Some(other) => {
                let reason = format!("expected true or false, found {}", kind(other));
                self.fault(key, reason);
                default
            }
        }
    }

    /// Returns an integer within bounds, or its default.
    pub fn number(&mut self, key: &str, default: u64, bounds: RangeInclusive<u64>) -> u64 {
        let reason = match self.get(key) {
            None => return default,
            Some(value) => match value.as_u64() {
                Some(number) if bounds.contains(&number) => return number,
                Some(number) => {
                    format!("{number} is not within {} to {}", bounds.start(), bounds.end())
                }
                None => format!("expected a whole number, found {}", kind(value)),
            },
        };
        self.fault(key, reason);
        default
    }

    /// Returns a duration with its unit (`"250ms"`, `"10s"`, `"5m"`, `"1h30m"`) within bounds, or its default.
    pub fn span(
        &mut self,
        key: &str,
        default: Duration,
        bounds: RangeInclusive<Duration>,
    ) -> Duration {
        let Some(text) = self.optional_text(key) else { return default };
        match parse_span(&text) {
            Ok(span) if bounds.contains(&span) => span,
            Ok(_) => {
                let (low, high) = (bounds.start(), bounds.end());
                let (low, high) = (written_span(*low), written_span(*high));
                self.fault(key, format_args!("{text} is not within {low} to {high}"));
                default
            }
            Err(reason) => {
                self.fault(key, reason);
                default
            }
        }
    }

    /// Returns a list of durations, each as for [`Fields::span`], or its default.
    pub fn spans(&mut self, key: &str, default: &[Duration]) -> Vec<Duration> {
        let parsed = match self.get(key) {
            None => return default.to_vec(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| match item {
                    Value::String(text) => parse_span(text),
                    other => Err(format!("expected durations, found {}", kind(other))),
                })
                .collect::<Result<Vec<_>, _>>(),
            Some(other) => Err(format!("expected a list of durations, found {}", kind(other))),
        };
        parsed.unwrap_or_else(|reason| {
            self.fault(key, reason);
            default.to_vec()
        })
    }

    /// Returns a text that `check` accepts and that must be there; empty where it is not.
    pub fn required(
        &mut self,
        key: &str,
        check: impl Fn(&str) -> Result<String, String>,
    ) -> String {
        match self.optional_text(key) {
            None => {
                if self.get(key).is_none() {
                    self.fault(key, "missing");
                }
                String::new()
            }
            Some(text) => check(&text).unwrap_or_else(|reason| {
                self.fault(key, reason);
                String::new()
            }),
        }
    }

    /// Returns the bounds of a wait, `KEY.min` and `KEY.max`, each at most `most`, or their defaults.
    pub fn window(&mut self, key: &str, min: Duration, max: Duration, most: Duration) -> Window {
        let (low, high) = (format!("{key}.min"), format!("{key}.max"));
        let found = Window {
            min: self.span(&low, min, Duration::ZERO..=most),
            max: self.span(&high, max, Duration::ZERO..=most),
        };
        if found.min > found.max {
            self.fault(key, "min is above max");
            return Window { min, max };
        }
        found
    }

    /// Returns a list of texts, empty if the key is absent.
    pub fn texts(&mut self, key: &str) -> Vec<String> {
        let found: Option<Vec<String>> = match self.get(key) {
            None => return Vec::new(),
            Some(Value::Array(all)) => all.iter().map(|v| v.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        found.unwrap_or_else(|| {
            self.fault(key, "expected a list of texts");
            Vec::new()
        })
    }

    /// Returns the unknown keys, which the caller logs as a warning, or all faults as one error. Where SAPI had nothing for
    /// a key that was looked up, and nothing else is wrong, that is the error.
    pub fn finish(mut self) -> Result<Vec<String>, ConfigError> {
        let mut unset: Vec<(&str, &str)> = Vec::new();
        for (key, name) in FROM_SAPI {
            if self.known.contains(key) && self.get(key).is_some_and(|it| is_empty(key, it)) {
                unset.push((key, name));
            }
        }
        let follows = |(key, _): &(String, String)| unset.iter().any(|(it, _)| key.starts_with(it));
        if !self.faults.iter().all(follows) {
            let faults = self.faults.iter().map(|(key, reason)| format!("{key}: {reason}"));
            return Err(ConfigError::Faults { place: self.place, faults: faults.collect() });
        }
        if !unset.is_empty() {
            let said = |(key, name)| format!("{key} is empty, as SAPI has no {name}");
            let unset = unset.into_iter().map(said).collect();
            return Err(ConfigError::Unset { place: self.place, unset });
        }
        let mut unknown = Vec::new();
        collect_unknown(&self.root, "", &self.known, &mut unknown);
        Ok(unknown)
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
