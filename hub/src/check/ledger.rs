// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The beliefs: rows of the ledger's tables that a check may cite.

const LEDGER: &str = include_str!("../../../docs/contract/beliefs.md");

/// A belief that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// Its number in the ledger, such as `B4`.
    pub number: &'static str,
    /// What is believed.
    pub sentence: &'static str,
    /// What it rests on: recorded, documented, or believed.
    pub evidence: &'static str,
}

/// Returns the beliefs of the ledger, in its order.
pub fn beliefs() -> impl Iterator<Item = Belief> {
    LEDGER.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| **")?.split(" | ");
        let number = cells.next()?.strip_suffix("**")?;
        Some(Belief {
            number,
            sentence: cells.next()?,
            evidence: cells.next()?.trim_end_matches(" |"),
        })
    })
}

/// Returns the belief of this number.
pub fn belief(number: &str) -> Option<Belief> {
    beliefs().find(|belief| belief.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_sentence_and_says_what_it_rests_on() {
        assert!(beliefs().count() > 20);
        for Belief { number, sentence, evidence } in beliefs() {
            assert!(number.starts_with('B') && sentence.ends_with('.'), "{number}: {sentence}");
            let kinds = ["recorded", "documented", "*believed*"];
            assert!(kinds.iter().any(|kind| evidence.starts_with(kind)), "{number}: {evidence}");
        }
    }
}
