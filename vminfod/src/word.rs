// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The few words that thousands of VMs have in common (states, brands) without memory of their own.

use std::borrow::Cow;

/// A text that is nearly always one of few.
pub type Word = Cow<'static, str>;

const WORDS: &[&str] = &[
    "running",
    "stopped",
    "installed",
    "configured",
    "incomplete",
    "ready",
    "mounted",
    "shutting_down",
    "down",
    "unavailable",
    "uninitialized",
    "initialized",
    "provisioning",
    "receiving",
    "failed",
    "stopping",
    "joyent",
    "joyent-minimal",
    "lx",
    "kvm",
    "bhyve",
    "builder",
];

/// This text; one of the usual words takes no memory.
pub fn word(text: &str) -> Word {
    match WORDS.iter().find(|word| **word == text) {
        Some(word) => Word::Borrowed(word),
        None => Word::Owned(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_stays_what_it_is() {
        for text in ["running", "lx", "", "a brand of tomorrow"] {
            assert_eq!(word(text), text);
        }
        assert!(matches!(word("kvm"), Word::Borrowed(_)));
    }
}
