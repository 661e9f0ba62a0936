// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Runs a program over a text, going back to the last open choice whenever it fails. Pure.

use super::super::value::is_space;
use super::{Regexp, STEPS, Step, TooLong, fold};

/// What has to be put back when a choice is taken again.
enum Undo {
    /// Go on there.
    Choice {
        pc: usize,
        at: usize,
    },
    Slot(usize, Option<usize>),
    Counter(usize, usize),
}

pub(super) struct Machine<'a> {
    regexp: &'a Regexp,
    text: &'a [u16],
    slots: Vec<Option<usize>>,
    counters: Vec<usize>,
    steps: usize,
}

impl<'a> Machine<'a> {
    pub(super) fn new(regexp: &'a Regexp, text: &'a [u16]) -> Self {
        let slots = vec![None; (regexp.groups + 1) * 2];
        Machine { regexp, text, slots, counters: vec![0; regexp.counters], steps: 0 }
    }

    /// Whether the program matches from this step at this place.
    pub(super) fn run(&mut self, pc: usize, at: usize) -> Result<bool, TooLong> {
        let mut trail: Vec<Undo> = Vec::new();
        let (mut pc, mut at) = (pc, at);
        loop {
            self.steps += 1;
            if self.steps > STEPS {
                return Err(TooLong);
            }
            let Some(step) = self.regexp.program.get(pc) else { return Ok(false) };
            let next = match step {
                Step::Done => return Ok(true),
                Step::Jump(to) => Some((*to, at)),
                Step::Split(first, second) => {
                    trail.push(Undo::Choice { pc: *second, at });
                    Some((*first, at))
                }
                Step::Save(slot) => {
                    self.set_slot(*slot, Some(at), &mut trail);
                    Some((pc + 1, at))
                }
                Step::Forget(from, to) => {
                    for slot in from * 2..to * 2 {
                        self.set_slot(slot, None, &mut trail);
                    }
                    Some((pc + 1, at))
                }
                Step::Begin(counter) => {
                    if let Some(place) = self.counters.get_mut(*counter) {
                        trail.push(Undo::Counter(*counter, *place));
                        *place = at;
                    }
                    Some((pc + 1, at))
                }
                Step::Look { negated, end } => {
                    let before = self.slots.clone();
                    let matched = self.run(pc + 1, at)?;
                    if matched && !negated {
                        // What the look-ahead found stays, unless this way is given up.
                        for (slot, old) in before.iter().enumerate() {
                            trail.push(Undo::Slot(slot, *old));
                        }
                    } else {
                        self.slots = before;
                    }
                    (matched != *negated).then_some((*end, at))
                }
                simple => self.simple(simple, at).map(|at| (pc + 1, at)),
            };
            match next {
                Some((to, place)) => (pc, at) = (to, place),
                None => match self.back(&mut trail) {
                    Some((to, place)) => (pc, at) = (to, place),
                    None => return Ok(false),
                },
            }
        }
    }

    fn set_slot(&mut self, slot: usize, value: Option<usize>, trail: &mut Vec<Undo>) {
        if let Some(place) = self.slots.get_mut(slot) {
            trail.push(Undo::Slot(slot, *place));
            *place = value;
        }
    }

    fn back(&mut self, trail: &mut Vec<Undo>) -> Option<(usize, usize)> {
        loop {
            match trail.pop()? {
                Undo::Choice { pc, at } => return Some((pc, at)),
                Undo::Slot(slot, old) => {
                    if let Some(place) = self.slots.get_mut(slot) {
                        *place = old;
                    }
                }
                Undo::Counter(counter, old) => {
                    if let Some(place) = self.counters.get_mut(counter) {
                        *place = old;
                    }
                }
            }
        }
    }

    /// Steps that take something or check the place: where it goes on, or nowhere.
    fn simple(&self, step: &Step, at: usize) -> Option<usize> {
        match step {
            Step::Unit(unit) => (self.folded(at)? == *unit).then_some(at + 1),
            Step::Any => (!is_line_end(*self.text.get(at)?)).then_some(at + 1),
            Step::Class { ranges, negated } => {
                (self.in_class(*self.text.get(at)?, ranges) != *negated).then_some(at + 1)
            }
            Step::TextStart => (at == 0).then_some(at),
            Step::TextEnd => (at == self.text.len()).then_some(at),
            Step::Boundary(wanted) => {
                let before = at.checked_sub(1).and_then(|at| self.text.get(at));
                let is_word = |unit: Option<&u16>| unit.is_some_and(|unit| is_word(*unit));
                ((is_word(before) != is_word(self.text.get(at))) == *wanted).then_some(at)
            }
            Step::Moved(counter) => (self.counters.get(*counter) != Some(&at)).then_some(at),
            Step::Back(group) => {
                let begin = self.slots.get(group * 2).copied().flatten();
                let end = self.slots.get(group * 2 + 1).copied().flatten();
                // A group that took nothing matches nothing.
                let Some((begin, end)) = begin.zip(end) else { return Some(at) };
                let same = (begin..end).enumerate().all(|(n, place)| {
                    self.folded(place).is_some() && self.folded(place) == self.folded(at + n)
                });
                same.then_some(at + end.saturating_sub(begin))
            }
            _ => None,
        }
    }

    fn folded(&self, at: usize) -> Option<u16> {
        let unit = *self.text.get(at)?;
        Some(if self.regexp.ignore_case { fold(unit) } else { unit })
    }

    fn in_class(&self, unit: u16, ranges: &[(u16, u16)]) -> bool {
        let within = |unit: u16| ranges.iter().any(|(from, to)| (*from..=*to).contains(&unit));
        if !self.regexp.ignore_case {
            return within(unit);
        }
        let folded = fold(unit);
        if within(unit) || within(folded) {
            return true;
        }
        // Some other writing of the same letter.
        let lower = char::from_u32(u32::from(folded)).map(|c| c.to_lowercase());
        lower.into_iter().flatten().any(|c| {
            u16::try_from(u32::from(c)).is_ok_and(|unit| fold(unit) == folded && within(unit))
        })
    }
}

/// The end of a line: LF, CR, U+2028, U+2029.
pub(super) fn is_line_end(unit: u16) -> bool {
    matches!(unit, 0x0a | 0x0d | 0x2028 | 0x2029)
}

fn is_word(unit: u16) -> bool {
    u8::try_from(unit).is_ok_and(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The ranges of white space.
pub(super) fn spaces() -> Vec<(u16, u16)> {
    (0..=u16::MAX)
        .filter(|unit| char::from_u32(u32::from(*unit)).is_some_and(is_space))
        .map(|unit| (unit, unit))
        .collect()
}
