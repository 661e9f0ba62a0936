// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The arguments of a command, and its end.

use crate::error::NodeError;

/// A status other than 0, and what stderr says.
#[derive(Debug)]
pub struct Failed(pub u8, pub String);

/// What a command prints, or how it failed.
pub(crate) type Ended = Result<String, Failed>;

/// What a command wrote, and how it ended: some go on after an operand that failed.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) status: u8,
    /// Without its last newline.
    pub(crate) stderr: String,
}

impl From<Ended> for Said {
    fn from(ended: Ended) -> Said {
        match ended {
            Ok(stdout) => Said { stdout, ..Said::default() },
            Err(Failed(status, stderr)) => Said { status, stderr, ..Said::default() },
        }
    }
}

impl Said {
    /// An operand failed: the others are printed all the same.
    pub(crate) fn complain(&mut self, what: &str) {
        let line = if self.stderr.is_empty() { "" } else { "\n" };
        (self.status, self.stderr) = (1, format!("{}{line}{what}", self.stderr));
    }
}

impl From<NodeError> for Failed {
    fn from(error: NodeError) -> Failed {
        Failed(1, error.to_string())
    }
}

/// Options and operands of a command.
#[derive(Default)]
pub(crate) struct Parsed {
    flags: String,
    values: Vec<(char, String)>,
    pub(crate) operands: Vec<String>,
}

impl Parsed {
    /// Splits as getopt does: `with` are the options that take a value.
    pub(crate) fn read(args: &[String], plain: &str, with: &str) -> Result<Parsed, String> {
        let mut parsed = Parsed::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(flags) = arg.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
                parsed.operands.push(arg.clone());
                parsed.operands.extend(args.cloned());
                break;
            };
            for (at, flag) in flags.char_indices() {
                if plain.contains(flag) {
                    parsed.flags.push(flag);
                } else if with.contains(flag) {
                    let attached = flags.get(at + 1..).filter(|rest| !rest.is_empty());
                    let value = attached.map(str::to_string).or_else(|| args.next().cloned());
                    let value =
                        value.ok_or_else(|| format!("missing argument for '{flag}' option"))?;
                    parsed.values.push((flag, value));
                    break;
                } else {
                    return Err(format!("invalid option '{flag}'"));
                }
            }
        }
        Ok(parsed)
    }

    pub(crate) fn has(&self, flag: char) -> bool {
        self.flags.contains(flag)
    }

    /// Every value of an option that may be given more than once.
    pub(crate) fn values(&self, flag: char) -> impl Iterator<Item = &str> {
        self.values.iter().filter(move |(f, _)| *f == flag).map(|(_, v)| v.as_str())
    }

    pub(crate) fn value(&self, flag: char) -> Option<&str> {
        self.values.iter().rev().find(|(f, _)| *f == flag).map(|(_, v)| v.as_str())
    }
}
