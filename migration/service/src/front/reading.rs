// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which VM a request would change, by its method and path. VMAPI's HTTP library takes several paths for one; only
//! the one that all readers take alike is passed on. Pure.

use http::Method;
use thiserror::Error;

/// A way to change a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `POST /vms/UUID`, which names its action.
    Action,
    /// `DELETE /vms/UUID`.
    Deletion,
    /// What is below `/vms/UUID`: tags, metadata, roles.
    Maps,
}

/// Why a path is not passed on.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Unclear {
    #[error("The path has an empty segment: several slashes, or one at its end")]
    Empty,
    #[error("The path has a segment of dots")]
    Dots,
    #[error("The path has a backslash")]
    Backslash,
    #[error(
        "The path has a percent sign without two hexadecimal digits, or an encoding that is not UTF-8"
    )]
    Encoding,
    #[error(
        "The path has a percent-encoded letter, digit, dot, hyphen, underscore, slash, backslash or control character"
    )]
    Encoded,
}

/// Refuses a path that another reader could take for another path.
pub fn clear(path: &str) -> Result<(), Unclear> {
    let segments = path.strip_prefix('/').ok_or(Unclear::Empty)?;
    match segments.is_empty() {
        true => Ok(()),
        false => segments.split('/').try_for_each(clear_segment),
    }
}

fn clear_segment(segment: &str) -> Result<(), Unclear> {
    match segment {
        "" => return Err(Unclear::Empty),
        "." | ".." => return Err(Unclear::Dots),
        _ if segment.contains('\\') => return Err(Unclear::Backslash),
        _ => {}
    }
    let mut decoded = Vec::with_capacity(segment.len());
    let mut pieces = segment.split('%');
    decoded.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = byte.ok_or(Unclear::Encoding)?;
        if byte.is_ascii_alphanumeric() || byte.is_ascii_control() || br"./\-_".contains(&byte) {
            return Err(Unclear::Encoded);
        }
        decoded.push(byte);
        decoded.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(decoded).map(|_| ()).map_err(|_| Unclear::Encoding)
}

/// Returns how a request would change a VM, and the uuid in its path. What agents report changes none.
pub fn change<'a>(method: &Method, path: &'a str) -> Option<(Change, &'a str)> {
    let below = path.strip_prefix("/vms/")?;
    let (uuid, change) = match (below.split_once('/'), method) {
        (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => return None,
        (None, &Method::POST) => (below, Change::Action),
        (None, &Method::DELETE) => (below, Change::Deletion),
        (None, _) => return None,
        (Some((uuid, _)), _) => (uuid, Change::Maps),
    };
    Some((change, uuid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use url::Url;

    use super::*;

    #[test] // M95
    fn a_path_is_clear_or_says_why_not() {
        for (path, want) in [
            ("/", Ok(())),
            ("/vms/a-b/tags/a%20b%C3%A9~", Ok(())),
            ("", Err(Unclear::Empty)),
            ("*", Err(Unclear::Empty)),
            ("/vms/", Err(Unclear::Empty)),
            ("/vms/...", Ok(())),
            ("/vms/..", Err(Unclear::Dots)),
            ("/vms\\a", Err(Unclear::Backslash)),
            ("/vms/%", Err(Unclear::Encoding)),
            ("/vms/%+1", Err(Unclear::Encoding)),
            ("/vms/%é", Err(Unclear::Encoding)),
            ("/vms/%FF", Err(Unclear::Encoding)),
            ("/vms/%00", Err(Unclear::Encoded)),
            ("/vms/%2D", Err(Unclear::Encoded)),
        ] {
            assert_eq!(clear(path), want, "{path}");
        }
    }

    proptest! {
        #[test] // M95
        fn a_clear_path_names_the_same_for_who_resolves_it(path in r"(/([a. ]|%20|a%2e|\\|%5C|%2F){0,3}){1,3}") {
            if clear(&path).is_err() {
                return Ok(());
            }
            let mut url = Url::parse("http://vmapi.sim/").unwrap();
            url.set_path(&path);
            prop_assert_eq!(url.path().split('/').count(), path.split('/').count());
            prop_assert_eq!(url.path().replace("%20", " "), path.replace("%20", " "));
        }
    }
}
