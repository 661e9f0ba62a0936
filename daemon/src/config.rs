// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Reads a program's configuration: one JSON or TOML file, typed look-ups by dotted key, bounds,
//! and **all** faults reported together, each naming its key.
//!
//! ```
//! use daemon::Fields;
//! use std::time::Duration;
//!
//! let mut fields = Fields::from_json(r#"{"listen": "127.0.0.1:9090", "sweep": "10s"}"#)?;
//! let listen: std::net::SocketAddr = fields.parse("listen", "127.0.0.1:80");
//! let sweep = fields.span("sweep", Duration::from_secs(10), Duration::from_millis(1)..=Duration::from_secs(3600));
//! fields.finish()?;
//! assert_eq!((listen.port(), sweep.as_secs()), (9090, 10));
//! # Ok::<(), daemon::ConfigError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;

/// Largest configuration file that is read, in bytes.
const FILE_CAP: u64 = 1 << 20;

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
    /// Every wrong value of the file, one entry per key.
    #[error("configuration {place}: {}", faults.join("; "))]
    Faults {
        /// The file, or `(text)`.
        place: String,
        /// `key: what is wrong`.
        faults: Vec<String>,
    },
}

/// Bounds of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub min: Duration,
    pub max: Duration,
}

/// A configuration file. Every look-up returns a usable value, the default in place of a wrong one, and
/// notes the fault; [`Fields::finish`] returns all faults.
#[derive(Debug)]
pub struct Fields {
    place: String,
    root: Map<String, Value>,
    known: BTreeSet<String>,
    faults: Vec<String>,
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
        self.faults.push(format!("{key}: {reason}"));
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
                Err(err) => self.fault(key, format_args!("{text:?}: {err}")),
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
            let url = url.as_str().and_then(|url| http_url(url).ok());
            match (node.parse(), url) {
                (Ok(node), Some(url)) => drop(urls.insert(node, url)),
                _ => {
                    let reason = "expected a uuid and an http:// address";
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
            .map_err(|err| self.fault("metrics.listen", format_args!("{text:?}: {err}")))
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
            Ok(span) => {
                let (low, high) = (bounds.start(), bounds.end());
                self.fault(key, format_args!("{span:?} is not within {low:?} to {high:?}"));
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

    /// Returns the unknown keys, which the caller logs as a warning, or all faults as one error.
    pub fn finish(self) -> Result<Vec<String>, ConfigError> {
        if !self.faults.is_empty() {
            return Err(ConfigError::Faults { place: self.place, faults: self.faults });
        }
        let mut unknown = Vec::new();
        collect_unknown(&self.root, "", &self.known, &mut unknown);
        Ok(unknown)
    }
}

/// Checks a base URL, `http://host[:port]`, and returns it without a slash at its end.
pub fn http_url(text: &str) -> Result<String, String> {
    let parsed = url::Url::parse(text).map_err(|err| format!("{text:?}: {err}"))?;
    if parsed.scheme() == "https" {
        return Err(format!("{text:?}: https is not supported (no TLS is built in)"));
    }
    if parsed.scheme() != "http" || parsed.host_str().is_none() {
        return Err(format!("{text:?}: expected http://host"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Checks a uuid and returns it in lower case.
pub fn lower_uuid(text: &str) -> Result<String, String> {
    let parsed = uuid::Uuid::try_parse(text).map_err(|err| format!("{text:?}: {err}"))?;
    Ok(parsed.hyphenated().to_string())
}

/// Parses a duration: a number and its unit, several joined (`"1h30m"`).
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration (write 250ms, 10s, 5m, 2h, 1h30m)");
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let signed: jiff::SignedDuration = text.trim().parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

fn collect_unknown(
    map: &Map<String, Value>,
    prefix: &str,
    known: &BTreeSet<String>,
    unknown: &mut Vec<String>,
) {
    for (name, value) in map {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if known.contains(&key) {
            continue;
        }
        let inner = format!("{key}.");
        match value {
            Value::Object(child) if known.iter().any(|k| k.starts_with(&inner)) => {
                collect_unknown(child, &key, known, unknown);
            }
            _ => unknown.push(key),
        }
    }
}

/// Returns the value of an environment variable; an empty one counts as none.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn read_capped(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_CAP + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_CAP {
        return Err(io::Error::other(format!("larger than {FILE_CAP} bytes")));
    }
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: RangeInclusive<Duration> = Duration::ZERO..=Duration::MAX;

    #[test]
    fn all_faults_come_at_once_and_name_their_keys() {
        let mut fields =
            Fields::from_json(r#"{"a": {"span": "5"}, "count": 99, "addr": "nowhere", "on": 1}"#)
                .unwrap();
        fields.span("a.span", Duration::ZERO, ANY);
        fields.number("count", 1, 1..=10);
        fields.parse::<std::net::SocketAddr>("addr", "127.0.0.1:1");
        fields.flag("on", false);
        let text = fields.finish().unwrap_err().to_string();
        for key in ["a.span:", "count:", "addr:", "on:"] {
            assert!(text.contains(key), "{key} missing in {text}");
        }
    }

    #[test]
    fn unknown_keys_are_listed_and_no_error() {
        let mut fields =
            Fields::from_json(r#"{"napi": {"url": "x", "odd": 1}, "more": 2}"#).unwrap();
        assert_eq!(fields.text("napi.url", ""), "x");
        assert_eq!(fields.finish().unwrap(), ["napi.odd", "more"]);
    }

    #[test]
    fn spans_carry_units() {
        for (text, millis) in
            [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h30m", 5_400_000), ("0", 0)]
        {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5s", "soon", "5 parsecs"] {
            assert!(parse_span(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn reads_toml_and_names_the_place_of_errors() {
        let mut fields = Fields::from_toml("[refresh]\nmin = \"270s\"\n").unwrap();
        assert_eq!(fields.span("refresh.min", Duration::ZERO, ANY), Duration::from_secs(270));
        assert!(fields.finish().unwrap().is_empty());
        let text = Fields::from_json("{\n  nonsense").unwrap_err().to_string();
        assert!(text.contains("line 2"), "{text}");
        assert!(Fields::from_json("[]").is_err());
        assert!(Fields::from_toml("a = ").is_err());
    }
}
