// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Pattern → tree, with the old grammar's leniencies: a brace that is no quantifier, a closing
//! bracket and an escape without meaning stand for themselves. Pure.

mod class;

use super::matching::spaces;

/// Why a text is no regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A quantifier without anything before it.
    #[error("nothing to repeat")]
    NothingToRepeat,
    /// A group that does not end.
    #[error("unterminated group")]
    OpenGroup,
    /// A group's end without its beginning.
    #[error("unmatched ')'")]
    StrayGroupEnd,
    /// A class that does not end.
    #[error("unterminated character class")]
    OpenClass,
    /// A range that ends before it begins.
    #[error("range out of order in character class")]
    Range,
    /// A quantifier whose most is less than its least.
    #[error("numbers out of order in {{}} quantifier")]
    Quantifier,
    /// A backslash at the end.
    #[error("\\ at end of pattern")]
    LoneBackslash,
    /// `(?` and something unknown: what came after ECMAScript 5 is not there.
    #[error("invalid group (of (?: (?= (?! none is meant)")]
    Group,
    /// Counted repetitions that are too long written out, or groups too deep in each other.
    #[error("regular expression too large")]
    TooLarge,
}

pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) groups: usize,
}

pub(super) enum Node {
    Unit(u16),
    Any,
    Class { ranges: Vec<(u16, u16)>, negated: bool },
    TextStart,
    TextEnd,
    Boundary(bool),
    Back(usize),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    Group(usize, Box<Node>),
    Look { negated: bool, inner: Box<Node> },
    Repeat { inner: Box<Node>, least: u32, most: Option<u32>, greedy: bool, groups: (usize, usize) },
}

/// Groups may stand in each other this deep.
const DEEPEST: usize = 200;

pub(super) fn parse(pattern: &[u16]) -> Result<Tree, Fault> {
    let mut parser = Parser { pattern, at: 0, groups: 0, all: count_groups(pattern), depth: 0 };
    let root = parser.either()?;
    if parser.at < pattern.len() {
        return Err(Fault::StrayGroupEnd);
    }
    Ok(Tree { root, groups: parser.groups })
}

/// Back references may come before their groups, so these are counted first.
fn count_groups(pattern: &[u16]) -> usize {
    let (mut count, mut in_class, mut at) = (0, false, 0);
    while let Some(unit) = pattern.get(at) {
        match u8::try_from(*unit).unwrap_or(b' ') {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'(' if !in_class && pattern.get(at + 1) != Some(&u16::from(b'?')) => count += 1,
            _ => {}
        }
        at += 1;
    }
    count
}

struct Parser<'a> {
    pattern: &'a [u16],
    at: usize,
    groups: usize,
    all: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u16> {
        self.pattern.get(self.at).copied()
    }

    /// The next unit if it is ASCII.
    fn ascii(&self) -> Option<u8> {
        u8::try_from(self.peek()?).ok()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(u16::from(byte));
        self.at += usize::from(found);
        found
    }

    fn eat_all(&mut self, text: &[u8]) -> bool {
        let found = text
            .iter()
            .enumerate()
            .all(|(n, byte)| self.pattern.get(self.at + n) == Some(&u16::from(*byte)));
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn either(&mut self) -> Result<Node, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Fault::TooLarge);
        }
        let mut alternatives = vec![self.sequence()?];
        while self.eat(b'|') {
            alternatives.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(Node::Either(alternatives))
    }

    fn sequence(&mut self) -> Result<Node, Fault> {
        let mut nodes = Vec::new();
        while let Some(unit) = self.peek() {
            if unit == u16::from(b'|') || unit == u16::from(b')') {
                break;
            }
            let before = self.groups;
            let node = self.term()?;
            nodes.push(self.quantified(node, before)?);
        }
        Ok(Node::Sequence(nodes))
    }

    fn term(&mut self) -> Result<Node, Fault> {
        let unit = self.peek().unwrap_or_default();
        self.at += 1;
        Ok(match u8::try_from(unit).unwrap_or(b'a') {
            b'^' => Node::TextStart,
            b'$' => Node::TextEnd,
            b'.' => Node::Any,
            b'(' => self.group()?,
            b'[' => self.class()?,
            b'\\' => self.escape()?,
            b'*' | b'+' | b'?' => return Err(Fault::NothingToRepeat),
            b'{' => {
                self.at -= 1;
                if self.braces()?.is_some() {
                    return Err(Fault::NothingToRepeat);
                }
                self.at += 1;
                Node::Unit(unit)
            }
            _ => Node::Unit(unit),
        })
    }

    fn group(&mut self) -> Result<Node, Fault> {
        let look = if self.eat_all(b"?=") {
            Some(false)
        } else if self.eat_all(b"?!") {
            Some(true)
        } else {
            None
        };
        if let Some(negated) = look {
            let inner = Box::new(self.inside()?);
            return Ok(Node::Look { negated, inner });
        }
        if self.eat_all(b"?:") {
            return self.inside();
        }
        if self.peek() == Some(u16::from(b'?')) {
            return Err(Fault::Group);
        }
        self.groups += 1;
        let group = self.groups;
        Ok(Node::Group(group, Box::new(self.inside()?)))
    }

    fn inside(&mut self) -> Result<Node, Fault> {
        let inner = self.either()?;
        if self.eat(b')') { Ok(inner) } else { Err(Fault::OpenGroup) }
    }

    fn quantified(&mut self, node: Node, groups_before: usize) -> Result<Node, Fault> {
        let (least, most) = if self.eat(b'*') {
            (0, None)
        } else if self.eat(b'+') {
            (1, None)
        } else if self.eat(b'?') {
            (0, Some(1))
        } else if let Some(bounds) = self.braces()? {
            bounds
        } else {
            return Ok(node);
        };
        if matches!(node, Node::TextStart | Node::TextEnd | Node::Boundary(_)) {
            return Err(Fault::NothingToRepeat);
        }
        let greedy = !self.eat(b'?');
        let groups = (groups_before + 1, self.groups + 1);
        Ok(Node::Repeat { inner: Box::new(node), least, most, greedy, groups })
    }

    /// `{2}`, `{2,}`, `{2,5}`; anything else is left where it is.
    fn braces(&mut self) -> Result<Option<(u32, Option<u32>)>, Fault> {
        let start = self.at;
        let bounds = self.read_braces();
        match bounds {
            Some((least, Some(most))) if most < least => Err(Fault::Quantifier),
            None => {
                self.at = start;
                Ok(None)
            }
            some => Ok(some),
        }
    }

    fn read_braces(&mut self) -> Option<(u32, Option<u32>)> {
        if !self.eat(b'{') {
            return None;
        }
        let least = self.decimal()?;
        if self.eat(b'}') {
            return Some((least, Some(least)));
        }
        if !self.eat(b',') {
            return None;
        }
        let most = if self.ascii() == Some(b'}') { None } else { Some(self.decimal()?) };
        self.eat(b'}').then_some((least, most))
    }

    fn decimal(&mut self) -> Option<u32> {
        let start = self.at;
        let mut value = 0u32;
        while let Some(digit) = self.ascii().filter(u8::is_ascii_digit) {
            value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            self.at += 1;
        }
        (self.at > start).then_some(value)
    }

    fn escape(&mut self) -> Result<Node, Fault> {
        let Some(unit) = self.peek() else { return Err(Fault::LoneBackslash) };
        match u8::try_from(unit).unwrap_or(b'a') {
            b'b' | b'B' => {
                self.at += 1;
                return Ok(Node::Boundary(unit == u16::from(b'b')));
            }
            b'1'..=b'9' => {
                let start = self.at;
                let group = self.decimal().map_or(0, |n| n as usize);
                if group <= self.all {
                    return Ok(Node::Back(group));
                }
                self.at = start;
            }
            _ => {}
        }
        if let Some((ranges, negated)) = self.class_escape() {
            return Ok(Node::Class { ranges, negated });
        }
        Ok(Node::Unit(self.unit_escape()))
    }

    /// `\d \D \w \W \s \S`
    fn class_escape(&mut self) -> Option<(Vec<(u16, u16)>, bool)> {
        let letter = self.ascii()?;
        let of = |pairs: &[(u8, u8)]| {
            pairs.iter().map(|(from, to)| (u16::from(*from), u16::from(*to))).collect()
        };
        let ranges = match letter.to_ascii_lowercase() {
            b'd' => of(&[(b'0', b'9')]),
            b'w' => of(&[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')]),
            b's' => spaces(),
            _ => return None,
        };
        self.at += 1;
        Some((ranges, letter.is_ascii_uppercase()))
    }

    /// One unit after a backslash.
    fn unit_escape(&mut self) -> u16 {
        let unit = self.peek().unwrap_or(u16::from(b'\\'));
        self.at += 1;
        match u8::try_from(unit).unwrap_or(b'a') {
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'v' => 0x0b,
            b'0'..=b'7' => {
                self.at -= 1;
                self.octal()
            }
            b'c' => match self.ascii().filter(u8::is_ascii_alphabetic) {
                Some(letter) => {
                    self.at += 1;
                    u16::from(letter & 0x1f)
                }
                None => {
                    self.at -= 1;
                    u16::from(b'\\')
                }
            },
            b'x' => self.hex(2).unwrap_or(unit),
            b'u' => self.hex(4).unwrap_or(unit),
            _ => unit,
        }
    }

    /// Up to three digits, at most 0o377.
    fn octal(&mut self) -> u16 {
        let mut value = 0;
        for _ in 0..3 {
            let Some(digit) = self.ascii().filter(|b| (b'0'..=b'7').contains(b)) else { break };
            let next = value * 8 + u16::from(digit - b'0');
            if next > 0o377 {
                break;
            }
            value = next;
            self.at += 1;
        }
        value
    }

    fn hex(&mut self, count: usize) -> Option<u16> {
        let mut value = 0;
        for n in 0..count {
            let digit = char::from(u8::try_from(*self.pattern.get(self.at + n)?).ok()?);
            value = value * 16 + u16::try_from(digit.to_digit(16)?).ok()?;
        }
        self.at += count;
        Some(value)
    }
}
