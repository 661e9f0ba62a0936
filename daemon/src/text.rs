// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Text of others, made harmless for terminals and logs that people read; numbers of things.

use std::fmt::Display;

/// Escapes what is not shown, except newlines, as `\u001b`, which in JSON is the same text.
pub fn harmless(text: &str) -> String {
    escaped(text, |c| c != '\n' && is_hidden(c))
}

/// Escapes all that is not shown as `\u001b`: the result is one line, in the order that it is read.
pub fn visible(text: &str) -> String {
    escaped(text, is_hidden)
}

/// Returns a number of things: `1 VM`, `2 VMs`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, more: &str) -> String {
    let what = if count == N::from(1) { one } else { more };
    format!("{count} {what}")
}

/// Returns true for control characters, line separators, and marks that change the direction of the text
/// around them (Unicode's `Bidi_Control`): in a name they could forge a row or hide a part of one.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || c.is_control()
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    if !text.contains(&is_escaped) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            shown.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_many() {
        let said = |count: usize| counted(count, "volume", "volumes");
        assert_eq!([said(0), said(1), said(2)], ["0 volumes", "1 volume", "2 volumes"]);
    }

    #[test]
    fn hidden_characters_show_and_do_nothing() {
        let evil = "a\u{1b}[2J\u{9b}31m\u{7}\tb\n";
        assert_eq!(harmless(evil), "a\\u001b[2J\\u009b31m\\u0007\\u0009b\n");
        assert_eq!(visible(evil), "a\\u001b[2J\\u009b31m\\u0007\\u0009b\\u000a");
        // Right-to-left override, isolate, Arabic letter mark, line separator; not a joiner or an emoji.
        assert_eq!(
            visible("a\u{202e}b\u{2066}c\u{61c}d\u{2028}e\u{200d}\u{1f600}"),
            "a\\u202eb\\u2066c\\u061cd\\u2028e\u{200d}\u{1f600}"
        );
    }
}
