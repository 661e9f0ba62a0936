// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where a program prints: terminal or not, colours, and text made harmless for terminals.

use std::io::{self, IsTerminal, Write};

/// The output and its abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Stdout is a terminal.
    pub is_terminal: bool,
    /// Colours may be used.
    pub colour: bool,
}

/// What a word means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Worth a look.
    Odd,
    /// Not as it should be.
    Bad,
}

impl Screen {
    /// Returns stdout's. Colours are used only on a terminal, and not if `NO_COLOR` is set (no-color.org) or
    /// the terminal is dumb.
    pub fn of_stdout() -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Screen { is_terminal, colour: is_terminal && !set("NO_COLOR") && !dumb }
    }

    /// Returns a word in its colour.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Odd => 33,
            Tone::Bad => 31,
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Returns data for this output: on a terminal its control characters are escaped.
    pub fn harmless(self, text: &str) -> String {
        if self.is_terminal { harmless(text) } else { text.to_owned() }
    }
}

/// Escapes what is not shown, except newlines, as `\u001b`, which in JSON is the same text.
pub fn harmless(text: &str) -> String {
    escaped(text, |c| c != '\n' && is_hidden(c))
}

/// Escapes all that is not shown as `\u001b`: the result is one line, in the order that it is read.
pub fn visible(text: &str) -> String {
    escaped(text, is_hidden)
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

/// Writes to stdout and flushes.
pub fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Returns true if stderr is a terminal.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let pipe = Screen { is_terminal: false, colour: false };
        assert_eq!(pipe.harmless(evil), evil);
        assert_eq!(pipe.paint(Tone::Bad, "x"), "x");
        let terminal = Screen { is_terminal: true, colour: true };
        assert_eq!(terminal.paint(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
