// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Values that are checked: URLs, uuids, durations.

use std::ffi::OsString;
use std::time::Duration;

use sdc_clients::quoted;

/// Bounds of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Shortest.
    pub min: Duration,
    /// Longest.
    pub max: Duration,
}

/// Checks a base URL, `http://host[:port]`, and returns it without a slash at its end.
pub fn http_url(text: &str) -> Result<String, String> {
    let parsed = url::Url::parse(text).map_err(|err| format!("{}: {err}", quoted(text)))?;
    if parsed.scheme() == "https" {
        return Err(format!("{}: https is not supported (no TLS is built in)", quoted(text)));
    }
    if parsed.scheme() != "http" || parsed.host_str().is_none() {
        return Err(format!("{}: expected http://host", quoted(text)));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Checks a base URL of a program that proves who it is, `https://host[:port]`, and returns it without a slash at its
/// end.
pub fn https_url(text: &str) -> Result<String, String> {
    let parsed = url::Url::parse(text).map_err(|err| format!("{}: {err}", quoted(text)))?;
    if parsed.scheme() != "https" || parsed.host_str().is_none() {
        return Err(format!("{}: expected https://host", quoted(text)));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// Checks a uuid and returns it in lower case.
pub fn lower_uuid(text: &str) -> Result<String, String> {
    let parsed = uuid::Uuid::try_parse(text).map_err(|err| format!("{}: {err}", quoted(text)))?;
    Ok(parsed.hyphenated().to_string())
}

/// Parses a duration: a number and its unit, several joined (`"1h30m"`), or whole days (`"7d"`).
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{} is not a duration (write 250ms, 10s, 5m, 2h, 1h30m, 7d)", quoted(text));
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    if let Some(days) = text.trim().strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        return Ok(Duration::from_secs(u64::from(days) * 86_400));
    }
    let signed: jiff::SignedDuration = text.trim().parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

/// Returns a duration as [`parse_span`] takes it, without loss: `"250ms"`, `"1h30m"`, `"7d"`.
pub(super) fn written_span(span: Duration) -> String {
    const DAY: u64 = 86_400;
    if span.is_zero() {
        return "0s".to_owned();
    }
    let seconds = span.as_secs();
    if span.subsec_nanos() == 0 && seconds.is_multiple_of(DAY) {
        return format!("{}d", seconds / DAY);
    }
    let nanos = span.subsec_nanos();
    let parts = [
        (seconds / 3600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
        (u64::from(nanos / 1_000_000), "ms"),
        (u64::from(nanos / 1000 % 1000), "us"),
        (u64::from(nanos % 1000), "ns"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, unit)| format!("{number}{unit}")).collect()
}

/// Returns the value of an environment variable; an empty one counts as none.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
