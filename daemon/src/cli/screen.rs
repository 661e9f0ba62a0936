// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where a program prints: terminal or not, colours, and text made harmless for terminals.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

pub use crate::text::{harmless, visible};

/// The output and its abilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

/// Whether stderr's last line is progress, which the next text takes away.
static PAINTED: Mutex<bool> = Mutex::new(false);

/// Writes to stdout and flushes. Progress that is shown is erased first: a row would begin at its end.
pub fn write(text: &str) -> io::Result<()> {
    let mut is_painted = PAINTED.lock().unwrap_or_else(PoisonError::into_inner);
    erase(&mut is_painted, &mut io::stderr().lock());
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Shows progress in the place of what is shown; nothing where the text is empty.
pub(super) fn paint(text: &str) {
    let mut is_painted = PAINTED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut err = io::stderr().lock();
    erase(&mut is_painted, &mut err);
    // Progress that cannot be shown is left out.
    let _lost = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    *is_painted = !text.is_empty();
}

fn erase(is_painted: &mut bool, err: &mut impl Write) {
    if std::mem::take(is_painted) {
        let _lost = err.write_all(b"\r\x1b[K").and_then(|()| err.flush());
    }
}

/// Returns true if stderr is a terminal.
pub fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_erased_once_before_what_follows() {
        let (mut is_painted, mut err) = (true, Vec::new());
        erase(&mut is_painted, &mut err);
        erase(&mut is_painted, &mut err);
        assert_eq!(String::from_utf8(err).unwrap(), "\r\u{1b}[K");
    }

    #[test]
    fn only_a_terminal_needs_harmless_text() {
        let evil = "a\u{1b}[2J";
        let pipe = Screen { is_terminal: false, colour: false };
        assert_eq!(pipe.harmless(evil), evil);
        assert_eq!(pipe.paint(Tone::Bad, "x"), "x");
        let terminal = Screen { is_terminal: true, colour: true };
        assert_eq!(terminal.paint(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
