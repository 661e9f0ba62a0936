// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How deep JSON may nest, counted over the bytes before anything is built of them.

/// The most arrays and objects inside one another in an answer.
pub const JSON_DEPTH: usize = 100;

/// Whether `json` nests deeper than [`JSON_DEPTH`]. Text that is not JSON is
/// left to the parser to refuse.
pub(super) fn too_deep(json: &[u8]) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for byte in json {
        if quoted {
            (quoted, escaped) = match byte {
                _ if escaped => (true, false),
                b'\\' => (true, true),
                b'"' => (false, false),
                _ => (true, false),
            };
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > JSON_DEPTH {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_outside_of_strings_count() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!too_deep(nested(JSON_DEPTH).as_bytes()));
        assert!(too_deep(nested(JSON_DEPTH + 1).as_bytes()));
        let wide = format!("[{}[]]", "{},".repeat(500));
        assert!(!too_deep(wide.as_bytes()));
        let text = format!(r#"["\"{}"]"#, "[".repeat(500));
        assert!(!too_deep(text.as_bytes()));
        assert!(too_deep(format!(r#"["\\"{}"#, ",[".repeat(500)).as_bytes()));
    }
}
