// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Query strings, read as Node's parser reads them.

/// Returns the value of a key, not decoded: the last one if it is repeated, empty if it has no `=`.
pub fn value<'a>(query: Option<&'a str>, key: &str) -> Option<&'a str> {
    query?
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| *name == key)
        .map(|(_, value)| value)
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn the_last_of_equal_keys_wins() {
        assert_eq!(value(Some("a=1&b&a=2"), "a"), Some("2"));
        assert_eq!(value(Some("a=1&b&a=2"), "b"), Some(""));
        assert_eq!(value(Some("a=1"), "c"), None);
        assert_eq!(value(None, "a"), None);
    }
}
