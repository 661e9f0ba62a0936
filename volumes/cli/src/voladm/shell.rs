// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Texts that others chose, made safe to be typed into a shell. Pure.

use daemon::cli::screen::visible;

/// Returns the text as one word of a shell's command line: as it is where that is safe, else between quotes.
/// What is not shown is written out, so that the word is one line.
pub(super) fn word(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_-./:=,@%+".contains(c);
    // A word that begins with a dash would be a flag.
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_safe) {
        return text.to_owned();
    }
    format!("'{}'", visible(text).replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V80
    fn what_a_shell_would_obey_stands_between_quotes() {
        for (text, want) in [
            ("data-1_a.b", "data-1_a.b"),
            ("", "''"),
            ("-rf", "'-rf'"),
            ("$(reboot)", "'$(reboot)'"),
            ("a b;c", "'a b;c'"),
            ("it's", r"'it'\''s'"),
            ("a\nb\u{1b}[2J\u{202e}", "'a\\u000ab\\u001b[2J\\u202e'"),
            (r#"{"vm":"x"}"#, r#"'{"vm":"x"}'"#),
        ] {
            assert_eq!(word(text), want);
        }
    }
}
