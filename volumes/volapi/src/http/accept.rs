// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The type of answer that a request takes.

use http::{HeaderMap, header};

/// In which type an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// The usual one.
    Json,
    /// The same text under another name.
    Text,
    /// Nothing but the headers, as deployed.
    Bytes,
}

const TYPES: [(&str, Type); 3] = [
    ("application/json", Type::Json),
    ("text/plain", Type::Text),
    ("application/octet-stream", Type::Bytes),
];

impl Type {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        TYPES.iter().find(|(_, it)| *it == self).map_or("application/json", |(name, _)| name)
    }
}

/// Returns the type of the answer; none if the request takes none of them.
pub(super) fn answer_type(headers: &HeaderMap) -> Option<Type> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok()) else {
        return Some(Type::Json);
    };
    let mut ranges: Vec<(f32, &str)> = accept
        .split(',')
        .map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            (weight.unwrap_or(1.0), name)
        })
        .filter(|(weight, _)| *weight > 0.0)
        .collect();
    ranges.sort_by(|a, b| b.0.total_cmp(&a.0));
    let fits = |range: &str, name: &str| {
        let group = range.strip_suffix('*').filter(|group| group.ends_with('/'));
        range == "*/*" || range == name || group.is_some_and(|group| name.starts_with(group))
    };
    ranges.iter().find_map(|(_, range)| {
        TYPES.iter().find(|(name, _)| fits(range, name)).map(|(_, kind)| *kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test] // V10
    fn types_are_negotiated() {
        for (accept, expected) in [
            ("*/*", Some(Type::Json)),
            ("text/*", Some(Type::Text)),
            ("text/html", None),
            ("text/html, application/json;q=0.5", Some(Type::Json)),
            ("application/json;q=0.1, text/plain", Some(Type::Text)),
            ("application/octet-stream", Some(Type::Bytes)),
        ] {
            assert_eq!(answer_type(&with(header::ACCEPT, accept)), expected, "{accept}");
        }
        assert_eq!(answer_type(&HeaderMap::new()), Some(Type::Json));
    }
}
