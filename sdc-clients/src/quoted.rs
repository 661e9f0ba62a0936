// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Text of tenants, of other services and of command lines, as a message quotes it.

use std::fmt;

/// Returns the text between quotation marks; its quotation marks, control characters and marks that change the
/// direction of text are escaped. The text cannot end the quotation, begin another line or control a terminal.
///
/// ```
/// assert_eq!(sdc_clients::quoted("a\"b\u{1b}[2J\n\u{202e}").to_string(), r#""a\"b\u{1b}[2J\n\u{202e}""#);
/// ```
pub fn quoted(text: &str) -> impl fmt::Display {
    Quoted(text)
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A string's Debug has these very escapes.
        fmt::Debug::fmt(self.0, f)
    }
}
