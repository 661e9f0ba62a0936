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

// Blank lines keep the modules in layer order.

mod fields; // typed look-ups

mod error; // why a configuration cannot be used

mod sapi; // keys that config-agent fills in from SAPI

mod file; // the bytes of a file, and its unknown keys

mod values; // URLs, uuids, durations

pub use error::ConfigError;
pub use fields::Fields;
pub use values::{Window, environment, http_url, https_url, lower_uuid, parse_span};

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::time::Duration;

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
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("0", 0),
        ] {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5s", "soon", "5 parsecs"] {
            assert!(parse_span(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn bounds_are_shown_as_a_configuration_has_them() {
        let mut fields = Fields::from_json(r#"{"every": "90m"}"#).unwrap();
        let bounds = Duration::from_millis(1500)..=Duration::from_secs(3600);
        fields.span("every", Duration::from_secs(10), bounds);
        let text = fields.finish().unwrap_err().to_string();
        assert!(text.contains("every: 90m is not within 1s500ms to 1h"), "{text}");
    }

    proptest::proptest! {
        #[test]
        fn a_written_span_reads_as_the_same(nanos: u64, unit in 0_u32..=9) {
            let span = Duration::from_nanos(nanos / 10_u64.pow(unit) * 10_u64.pow(unit));
            proptest::prop_assert_eq!(parse_span(&values::written_span(span)), Ok(span));
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
