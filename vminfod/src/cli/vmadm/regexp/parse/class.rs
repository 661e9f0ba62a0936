// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What stands between brackets. Pure.

use super::{Fault, Node, Parser};

impl Parser<'_> {
    pub(super) fn class(&mut self) -> Result<Node, Fault> {
        let negated = self.eat(b'^');
        let mut ranges = Vec::new();
        loop {
            if self.peek().is_none() {
                return Err(Fault::OpenClass);
            }
            if self.eat(b']') {
                return Ok(Node::Class { ranges, negated });
            }
            let from = self.class_atom(&mut ranges)?;
            let is_range = self.ascii() == Some(b'-')
                && self.pattern.get(self.at + 1).is_some_and(|unit| *unit != u16::from(b']'));
            if !is_range {
                ranges.extend(from.map(|unit| (unit, unit)));
                continue;
            }
            self.at += 1;
            let to = self.class_atom(&mut ranges)?;
            match (from, to) {
                (Some(from), Some(to)) if from > to => return Err(Fault::Range),
                (Some(from), Some(to)) => ranges.push((from, to)),
                // A set at either end makes the dash a dash.
                (from, to) => {
                    let dash = Some(u16::from(b'-'));
                    ranges.extend([from, dash, to].into_iter().flatten().map(|unit| (unit, unit)));
                }
            }
        }
    }

    /// One unit, or none where it was a set, which is put in at once.
    fn class_atom(&mut self, ranges: &mut Vec<(u16, u16)>) -> Result<Option<u16>, Fault> {
        let unit = self.peek().ok_or(Fault::OpenClass)?;
        self.at += 1;
        if unit != u16::from(b'\\') {
            return Ok(Some(unit));
        }
        match self.ascii() {
            None if self.peek().is_none() => return Err(Fault::LoneBackslash),
            Some(b'b') => {
                self.at += 1;
                return Ok(Some(0x08));
            }
            _ => {}
        }
        if let Some((set, negated)) = self.class_escape() {
            if negated {
                ranges.extend(complement(set))
            } else {
                ranges.extend(set)
            }
            return Ok(None);
        }
        Ok(Some(self.unit_escape()))
    }
}

fn complement(mut set: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    set.sort_unstable();
    let mut rest = Vec::new();
    let mut next = 0u32;
    for (from, to) in set {
        if let (Ok(begin), Some(end)) = (u16::try_from(next), from.checked_sub(1))
            && begin <= end
        {
            rest.push((begin, end));
        }
        next = u32::from(to) + 1;
    }
    if let Ok(begin) = u16::try_from(next) {
        rest.push((begin, u16::MAX));
    }
    rest
}
