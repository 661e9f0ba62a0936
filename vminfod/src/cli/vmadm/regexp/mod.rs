// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Regular expressions of JavaScript (ECMAScript 5, as the platform's node has them): filters are
//! written in them, with look-ahead and back references, which faster engines do not have. Pure.
//!
//! It tries alternatives one after the other. What an attacker's pattern could cost is bounded by
//! [`STEPS`]; nothing recurses as deep as the text is long.

mod matching;
mod parse;

pub use parse::Fault;

/// Steps one match may take; about a second.
pub const STEPS: usize = 20_000_000;

/// A pattern, ready to match.
#[derive(Debug)]
pub struct Regexp {
    program: Vec<Step>,
    groups: usize,
    counters: usize,
    ignore_case: bool,
}

/// The match took more than [`STEPS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("matching takes more than {STEPS} steps")]
pub struct TooLong;

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// This unit, folded if case does not count.
    Unit(u16),
    /// Anything but the end of a line.
    Any,
    /// One of a class, or none of it.
    Class {
        ranges: Vec<(u16, u16)>,
        negated: bool,
    },
    /// Goes on at the first; if that fails, at the second.
    Split(usize, usize),
    Jump(usize),
    /// Remembers the position: even numbers begin a group, odd ones end it.
    Save(usize),
    /// Forgets the groups from the first up to the second.
    Forget(usize, usize),
    /// Remembers where a repetition begins.
    Begin(usize),
    /// Fails if nothing was taken since.
    Moved(usize),
    TextStart,
    TextEnd,
    /// Between a word and something else; or not.
    Boundary(bool),
    /// What the group took, once more.
    Back(usize),
    /// What stands up to `end` matches here, or does not; nothing is taken.
    Look {
        negated: bool,
        end: usize,
    },
    Done,
}

impl Regexp {
    /// Understands a pattern.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Regexp, Fault> {
        let units: Vec<u16> = pattern.encode_utf16().collect();
        let tree = parse::parse(&units)?;
        let mut build = Build { program: Vec::new(), counters: 0, ignore_case };
        build.node(&tree.root)?;
        build.push(Step::Done)?;
        Ok(Regexp {
            program: build.program,
            groups: tree.groups,
            counters: build.counters,
            ignore_case,
        })
    }

    /// Whether it matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> Result<bool, TooLong> {
        let units: Vec<u16> = text.encode_utf16().collect();
        let mut machine = matching::Machine::new(self, &units);
        for start in 0..=units.len() {
            if machine.run(0, start)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A unit as it counts when case does not: its capital, unless that is several units or would make
/// ASCII of something else.
fn fold(unit: u16) -> u16 {
    let Some(c) = char::from_u32(u32::from(unit)) else { return unit };
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => match u16::try_from(u32::from(one)) {
            Ok(folded) if folded >= 128 || unit < 128 => folded,
            _ => unit,
        },
        _ => unit,
    }
}

struct Build {
    program: Vec<Step>,
    counters: usize,
    ignore_case: bool,
}

/// The longest program; counted repetitions are written out.
const LONGEST: usize = 100_000;

impl Build {
    fn push(&mut self, step: Step) -> Result<usize, Fault> {
        if self.program.len() >= LONGEST {
            return Err(Fault::TooLarge);
        }
        self.program.push(step);
        Ok(self.program.len() - 1)
    }

    fn here(&self) -> usize {
        self.program.len()
    }

    fn set(&mut self, at: usize, step: Step) {
        if let Some(place) = self.program.get_mut(at) {
            *place = step;
        }
    }

    fn node(&mut self, node: &parse::Node) -> Result<(), Fault> {
        use parse::Node;
        match node {
            Node::Unit(unit) => {
                let unit = if self.ignore_case { fold(*unit) } else { *unit };
                self.push(Step::Unit(unit))?;
            }
            Node::Any => drop(self.push(Step::Any)?),
            Node::Class { ranges, negated } => {
                self.push(Step::Class { ranges: ranges.clone(), negated: *negated })?;
            }
            Node::TextStart => drop(self.push(Step::TextStart)?),
            Node::TextEnd => drop(self.push(Step::TextEnd)?),
            Node::Boundary(there) => drop(self.push(Step::Boundary(*there))?),
            Node::Back(group) => drop(self.push(Step::Back(*group))?),
            Node::Sequence(nodes) => {
                for node in nodes {
                    self.node(node)?;
                }
            }
            Node::Either(alternatives) => self.either(alternatives)?,
            Node::Group(group, inner) => {
                self.push(Step::Save(group * 2))?;
                self.node(inner)?;
                self.push(Step::Save(group * 2 + 1))?;
            }
            Node::Look { negated, inner } => {
                let at = self.push(Step::Done)?;
                self.node(inner)?;
                self.push(Step::Done)?;
                let end = self.here();
                self.set(at, Step::Look { negated: *negated, end });
            }
            Node::Repeat { inner, least, most, greedy, groups } => {
                for _ in 0..*least {
                    let before = self.here();
                    self.once(inner, *groups)?;
                    // Nothing, as often as it may be, is nothing.
                    if self.here() == before {
                        break;
                    }
                }
                match most {
                    None => self.forever(inner, *greedy, *groups)?,
                    Some(most) => {
                        self.up_to(inner, most.saturating_sub(*least), *greedy, *groups)?
                    }
                }
            }
        }
        Ok(())
    }

    fn either(&mut self, alternatives: &[parse::Node]) -> Result<(), Fault> {
        let mut jumps = Vec::new();
        let last = alternatives.len().saturating_sub(1);
        for (n, alternative) in alternatives.iter().enumerate() {
            if n == last {
                self.node(alternative)?;
            } else {
                let split = self.push(Step::Done)?;
                self.node(alternative)?;
                jumps.push(self.push(Step::Done)?);
                self.set(split, Step::Split(split + 1, self.here()));
            }
        }
        for jump in jumps {
            self.set(jump, Step::Jump(self.here()));
        }
        Ok(())
    }

    fn once(&mut self, inner: &parse::Node, groups: (usize, usize)) -> Result<(), Fault> {
        if groups.0 < groups.1 {
            self.push(Step::Forget(groups.0, groups.1))?;
        }
        self.node(inner)
    }

    /// One more round, which has to take something.
    fn round(&mut self, inner: &parse::Node, groups: (usize, usize)) -> Result<(), Fault> {
        let counter = self.counters;
        self.counters += 1;
        self.push(Step::Begin(counter))?;
        self.once(inner, groups)?;
        self.push(Step::Moved(counter))?;
        Ok(())
    }

    fn forever(
        &mut self,
        inner: &parse::Node,
        greedy: bool,
        groups: (usize, usize),
    ) -> Result<(), Fault> {
        let split = self.push(Step::Done)?;
        self.round(inner, groups)?;
        self.push(Step::Jump(split))?;
        self.set(split, choice(split + 1, self.here(), greedy));
        Ok(())
    }

    fn up_to(
        &mut self,
        inner: &parse::Node,
        times: u32,
        greedy: bool,
        groups: (usize, usize),
    ) -> Result<(), Fault> {
        let mut splits = Vec::new();
        for _ in 0..times {
            splits.push(self.push(Step::Done)?);
            self.round(inner, groups)?;
        }
        for split in splits {
            self.set(split, choice(split + 1, self.here(), greedy));
        }
        Ok(())
    }
}

fn choice(again: usize, on: usize, greedy: bool) -> Step {
    if greedy { Step::Split(again, on) } else { Step::Split(on, again) }
}

#[cfg(test)]
mod tests;
