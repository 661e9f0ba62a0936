// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The quirks of the shipped interface that deployed clients rely on, and nothing else: how a
//! request line is understood, which texts a 404 carries, how `/status` writes durations.
//!
//! Pure. Must never grow behaviour of its own.

use std::time::Duration;

pub use daemon::http::query::value as query;

/// Body of a 404 for a path that is no route.
pub const UNSUPPORTED_PATH: &str = "Unsupported URL Path";

/// Body of a 404 for a VM that is not there.
pub fn vm_not_found(name: &str) -> String {
    format!("VM Not Found: {name}")
}

/// What a path asks for. Parts after those that are used are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `/ping`
    Ping,
    /// `/status`
    Status,
    /// `/vms` and `/vms/`
    Vms,
    /// `/vms/NAME`
    Vm(&'a str),
    /// `/events`
    Events,
    /// `/sysinfo`: ours
    Sysinfo,
    /// `/ready`: ours
    Ready,
    /// `/data`: RFD 39 has it, the shipped service does not
    Data,
    /// `/metrics`: ours
    Metrics,
    /// `/why/NAME`: ours
    Why(&'a str),
    /// All else.
    Unknown,
}

/// Collapses `//`, `.` and `..` as POSIX paths do; never decodes percent signs.
pub fn normalise(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts
}

/// Finds the route of normalised path parts.
pub fn route<'a>(parts: &[&'a str]) -> Route<'a> {
    match parts {
        ["ping", ..] => Route::Ping,
        ["status", ..] => Route::Status,
        ["vms"] => Route::Vms,
        ["vms", name, ..] => Route::Vm(name),
        ["events", ..] => Route::Events,
        ["sysinfo", ..] => Route::Sysinfo,
        ["ready", ..] => Route::Ready,
        ["data", ..] => Route::Data,
        ["metrics", ..] => Route::Metrics,
        ["why", name, ..] => Route::Why(name),
        _ => Route::Unknown,
    }
}

/// JavaScript's truth of a query value: any text but the empty one, `false` included.
pub fn wants(text: Option<&str>, key: &str) -> bool {
    query(text, key).is_some_and(|value| !value.is_empty())
}

/// Monotonic time as `/status` writes it: `1549.580650862`.
pub fn hrtime(at: Duration) -> String {
    format!("{}.{:09}", at.as_secs(), at.subsec_nanos())
}

/// A duration as `/status` writes it: `65.000000000s (1.08m)`.
pub fn pretty(span: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ];
    let nanos = span.as_nanos();
    let (unit, size) = UNITS.into_iter().find(|(_, size)| nanos >= *size).unwrap_or(("ns", 1));
    let hundredths = (nanos * 100 + size / 2) / size;
    let mut number = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    while number.ends_with('0') {
        number.pop();
    }
    let number = number.strip_suffix('.').unwrap_or(&number);
    format!("{}s ({number}{unit})", hrtime(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let at = |path| route(&normalise(path));
        for path in ["/ping", "//ping", "/./ping", "/a/../ping", "/../../ping", "/ping/x/y"] {
            assert_eq!(at(path), Route::Ping, "{path}");
        }
        for path in ["/vms", "/vms/", "/vms//"] {
            assert_eq!(at(path), Route::Vms, "{path}");
        }
        assert_eq!(at("/vms/z/x"), Route::Vm("z"));
        assert_eq!(at("/vms/%41"), Route::Vm("%41"));
        for path in ["/", "/PING", "/p%69ng", "/ping;a=b", "*", "/foo"] {
            assert_eq!(at(path), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn truth_as_in_javascript() {
        for text in ["full=true", "full=1", "full=false", "x=1&full=0"] {
            assert!(wants(Some(text), "full"), "{text}");
        }
        for text in ["full", "full=", "fuller=1", ""] {
            assert!(!wants(Some(text), "full"), "{text}");
        }
        assert!(!wants(None, "full"));
    }

    #[test]
    fn durations() {
        for (nanos, text) in [
            (0, "0.000000000s (0ns)"),
            (65_000_000_000, "65.000000000s (1.08m)"),
            (7_104_198_154, "7.104198154s (7.1s)"),
            (6_832_593_138, "6.832593138s (6.83s)"),
            (1_500, "0.000001500s (1.5us)"),
            (86_400_000_000_000, "86400.000000000s (1d)"),
        ] {
            assert_eq!(pretty(Duration::from_nanos(nanos)), text);
        }
    }
}
