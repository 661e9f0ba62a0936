// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Parses vmadm's options: options and operands may be mixed, long names may be abbreviated, and an
//! unknown option consumes the next argument. Pure.

use std::collections::BTreeMap;

/// An option of a command: its letter, its long name and its kind.
pub type Spec = (char, &'static str, Kind);

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A flag.
    Flag,
    /// It takes a text.
    Text,
    /// A letter that turns off the flag of this name.
    Off,
}

/// Parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    flags: BTreeMap<&'static str, bool>,
    texts: BTreeMap<&'static str, String>,
    /// Operands, in order.
    pub operands: Vec<String>,
}

impl Parsed {
    /// Returns true if a flag was given, and not turned off.
    pub fn has(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// A flag's value; `None` if it was not given.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.flags.get(name).copied()
    }

    /// An option's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }
}

/// Parses arguments with these options.
pub fn parse(args: &[String], specs: &[Spec]) -> Parsed {
    let mut parsed = Parsed::default();
    // A stack: the next argument is the last element.
    let mut rest: Vec<String> = args.iter().rev().cloned().collect();
    while let Some(arg) = rest.pop() {
        if is_end(&arg) {
            parsed.operands.extend(rest.drain(..).rev());
            break;
        }
        if !arg.starts_with('-') {
            parsed.operands.push(arg);
            continue;
        }
        let name = match arg.split_once('=') {
            Some((name, value)) => {
                rest.push(value.to_owned());
                name.trim_start_matches('-')
            }
            None => arg.trim_start_matches('-'),
        };
        match letters(name, specs) {
            Some(meant) => rest.extend(meant.into_iter().rev()),
            None => option(name, specs, &mut rest, &mut parsed),
        }
    }
    parsed
}

/// Expands short options, one or several letters. `None` if the word abbreviates a long name or has an
/// unknown letter.
fn letters(name: &str, specs: &[Spec]) -> Option<Vec<String>> {
    let meant = |letter: char| {
        let (_, long, kind) = specs.iter().find(|(known, ..)| *known == letter)?;
        Some(if *kind == Kind::Off { format!("--no-{long}") } else { format!("--{long}") })
    };
    let meant: Vec<String> = name.chars().map(meant).collect::<Option<_>>()?;
    (meant.len() == 1 || long(name, specs).is_none()).then_some(meant)
}

/// The option with this name, or the only one that begins with it.
fn long(name: &str, specs: &[Spec]) -> Option<(&'static str, Kind)> {
    if name.is_empty() {
        return None;
    }
    let longs = specs.iter().filter(|(.., kind)| *kind != Kind::Off);
    let mut fits =
        longs.filter(|(_, long, _)| long.starts_with(name)).map(|(_, long, kind)| (*long, *kind));
    let exact = fits.clone().find(|(long, _)| *long == name);
    exact.or_else(|| fits.next().filter(|_| fits.next().is_none()))
}

fn option(name: &str, specs: &[Spec], rest: &mut Vec<String>, parsed: &mut Parsed) {
    let (mut name, mut no) = (name, false);
    while name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("no-")) {
        no = !no;
        name = name.get(3..).unwrap_or_default();
    }
    let spec = long(name, specs);
    if no || spec.is_some_and(|(_, kind)| kind == Kind::Flag) {
        let mut value = !no;
        if let Some(next @ ("true" | "false")) = rest.last().map(String::as_str) {
            value = (next == "true") != no;
            rest.pop();
        }
        match spec {
            Some((long, Kind::Text)) => drop(parsed.texts.insert(long, value.to_string())),
            Some((long, _)) => drop(parsed.flags.insert(long, value)),
            None => {}
        }
        return;
    }
    let value = if rest.last().is_some_and(|next| is_end(next)) { None } else { rest.pop() };
    let value = value.unwrap_or_else(|| "true".to_owned());
    if let Some((long, _)) = spec {
        parsed.texts.insert(long, value.trim_matches(super::value::is_space).to_owned());
    }
}

/// Returns true for two or more dashes: only operands follow.
pub fn is_end(arg: &str) -> bool {
    arg.len() >= 2 && arg.bytes().all(|b| b == b'-')
}

#[cfg(test)]
mod tests {
    use super::super::options::{LIST, LOOKUP};
    use super::*;

    fn list(line: &str) -> String {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let parsed = parse(&args, LIST);
        let flags = parsed.flags.iter().map(|(name, value)| format!("{name}={value}"));
        let texts = parsed.texts.iter().map(|(name, value)| format!("{name}:{value}"));
        let all: Vec<String> = flags.chain(texts).chain(parsed.operands.clone()).collect();
        all.join(" ")
    }

    #[test]
    fn lines() {
        for (line, meaning) in [
            ("a=1 -p b=2", "parsable=true a=1 b=2"),
            ("-pH", "header=false parsable=true"),
            ("-Ho alias x", "header=false order:alias x"),
            ("--ord=uuid", "order:uuid"),
            ("-o=uuid", "order:uuid"),
            ("-ouuid next x", "x"),
            ("-x state=running y", "y"),
            ("-x=1 y", "y"),
            ("--no-header", "header=false"),
            ("--no-no-header", "header=true"),
            ("--header false", "header=false"),
            ("--no-header false", "header=true"),
            ("-p false", "parsable=false"),
            ("-o", "order:true"),
            ("-o -p", "order:-p"),
            ("-o -- -p", "order:true -p"),
            ("-o a -o b", "order:b"),
            ("-- -p", "-p"),
            ("--- -p", "-p"),
            ("- x", "x"),
            ("-p=3", "parsable=true 3"),
            ("---parsable", "parsable=true"),
            ("-vd", "debug=true verbose=true"),
            ("--no-x y", "y"),
            ("--no-order x", "order:false x"),
            ("-h -p", "header=true parsable=true"),
            ("-1 x y", "y"),
        ] {
            assert_eq!(list(line), meaning, "{line}");
        }
    }

    #[test]
    fn texts_are_trimmed_and_lookup_has_its_own() {
        let args = ["-o", "  a,b ", "-1j", "-H", "x"].map(str::to_owned);
        let parsed = parse(&args, LOOKUP);
        assert_eq!(parsed.text("output"), Some("a,b"));
        assert_eq!((parsed.flag("unique"), parsed.flag("json")), (Some(true), Some(true)));
        assert!(parsed.operands.is_empty(), "what is unknown takes the next argument");
    }
}
