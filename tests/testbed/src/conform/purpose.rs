// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where ours answers otherwise than a recorded service on purpose, as rules: a predicate on the exchange, what has
//! to hold of our answer nevertheless, and the defect that is not copied.

use serde_json::Value;

use super::transcript::Exchange;

/// An exchange whose answer, or whose calls, are not the recorded ones.
pub(super) struct Case<'a> {
    /// What was recorded.
    pub(super) one: &'a Exchange,
    /// Our status; none where the connection closed.
    pub(super) status: Option<u16>,
    /// Our body, with the recorded names for what the service named.
    pub(super) body: Value,
    /// It is what was asked of others that differs.
    pub(super) is_of_calls: bool,
    /// Our answer, or our calls, without what is only ours, are the recorded ones.
    pub(super) is_same_without: bool,
    /// The storage is away.
    pub(super) storage_away: bool,
    /// The workflow API is away, or was in this group.
    pub(super) jobs_away: bool,
    /// Whether a VM is none of the data centre's any more.
    pub(super) is_gone: &'a dyn Fn(&str) -> bool,
}

impl Case<'_> {
    /// The recorded body.
    pub(super) fn recorded(&self) -> &Value {
        self.one.response.body.as_ref().unwrap_or(&Value::Null)
    }

    /// The method and the path begin and end so.
    pub(super) fn asks(&self, method: &str, begins: &str, ends: &str) -> bool {
        let asked = &self.one.request;
        asked.method == method && asked.path.starts_with(begins) && asked.path.ends_with(ends)
    }

    /// Our answer is an error with this code.
    pub(super) fn is_refused(&self, status: u16, code: &str) -> bool {
        self.status == Some(status) && self.body["code"] == code
    }
}

/// One way of being better than what was recorded.
pub(super) struct Rule {
    /// The defect of the recorded service.
    pub(super) defect: &'static str,
    /// Which cases it is for.
    pub(super) covers: fn(&Case<'_>) -> bool,
    /// What holds of ours nevertheless.
    pub(super) holds: fn(&Case<'_>) -> bool,
}

/// The rules of one kind, and how many cases each was for.
pub(super) struct Rules {
    all: &'static [Rule],
    met: Vec<usize>,
}

impl Rules {
    pub(super) fn new(all: &'static [Rule]) -> Rules {
        Rules { all, met: vec![0; all.len()] }
    }

    /// Returns what is wrong with an answer that differs so: nothing if it does on purpose. The first rule that
    /// covers the case judges it.
    pub(super) fn judge(&mut self, case: &Case<'_>, difference: String) -> Option<String> {
        let covering = self.all.iter().zip(&mut self.met).find(|(rule, _)| (rule.covers)(case));
        let Some((rule, met)) = covering else { return Some(difference) };
        *met += 1;
        let beyond = || format!("{difference}\n  which is more than: {}", rule.defect);
        (!(rule.holds)(case)).then(beyond)
    }

    /// How many cases the rules were for.
    pub(super) fn count(&self) -> usize {
        self.met.iter().sum()
    }

    /// The rules that no case of a whole recording needed.
    pub(super) fn idle(&self) -> impl Iterator<Item = String> {
        let idle = self.all.iter().zip(&self.met).filter(|(_, met)| **met == 0);
        idle.map(|(rule, _)| format!("FAIL no exchange deviates any more: {}", rule.defect))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conform::transcript::{Answered, Asked};

    const RULES: [Rule; 2] = [
        Rule {
            defect: "the process dies",
            covers: |case| case.one.response.status.is_none(),
            holds: |case| case.is_refused(409, "ValidationError"),
        },
        Rule { defect: "never", covers: |_| false, holds: |_| true },
    ];

    #[test]
    fn a_rule_excuses_what_it_says_and_no_more() {
        let exchange = |status: Option<u16>| Exchange {
            id: "x".to_owned(),
            request: Asked::default(),
            response: serde_json::from_value::<Answered>(serde_json::json!({ "status": status }))
                .unwrap(),
            concurrent: None,
        };
        let (dies, lives) = (exchange(None), exchange(Some(200)));
        let mut rules = Rules::new(&RULES);
        let mut judged = |one: &Exchange, code: &str| {
            let case = Case {
                one,
                status: Some(409),
                body: serde_json::json!({ "code": code }),
                is_of_calls: false,
                is_same_without: false,
                storage_away: false,
                jobs_away: false,
                is_gone: &|_| false,
            };
            rules.judge(&case, "it differs".to_owned())
        };
        assert_eq!(judged(&dies, "ValidationError"), None);
        assert!(judged(&dies, "Other").is_some_and(|what| what.contains("more than")));
        assert_eq!(judged(&lives, "ValidationError"), Some("it differs".to_owned()));
        assert_eq!((rules.count(), rules.idle().count()), (2, 1));
    }
}
