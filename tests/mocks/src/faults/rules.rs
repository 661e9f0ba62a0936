// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Fault rules as data: which requests a rule matches, and what then goes wrong.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The effect of a rule on a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Answers with this status (and body) instead of handling the request.
    Status {
        /// The status code.
        status: u16,
        /// The JSON body; none if absent.
        #[serde(default)]
        body: Option<Value>,
        /// Seconds for a `Retry-After` header.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Delays the request.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// Waits between the check and the commit of a write.
    DelayCommit {
        /// Milliseconds.
        ms: u64,
    },
    /// Handles the request after this time, even if the client is gone by then.
    Hang {
        /// Milliseconds.
        ms: u64,
    },
    /// Closes the connection without looking at the request.
    Cut,
    /// Handles the request, then closes the connection instead of answering.
    DropResponse,
    /// Handles the request, answers its status with this text as the body.
    Garbage {
        /// The body.
        #[serde(default = "garbage")]
        text: String,
    },
    /// Handles the request, answers with an empty body (status kept).
    EmptyBody,
    /// Handles the request, sends this many bytes of the body, then cuts.
    Truncate {
        /// Bytes of the body that are sent.
        bytes: usize,
    },
    /// The storage fails a PUT of several records once so many are written.
    FailWrite {
        /// Records.
        after: usize,
    },
    /// The task that the request starts fails (CNAPI).
    FailTask {
        /// Why.
        message: String,
    },
    /// The task that the request starts never ends (CNAPI).
    HangTask,
    /// Another writer changes the record between the check and the commit.
    ChangeRow,
    /// Another writer deletes the record between the check and the commit.
    DeleteRow,
    /// Another writer changes the NIC's address between the check and the commit (NAPI).
    ChangeAddress,
    /// A list answer carries a record that does not belong there.
    ForeignRecord {
        /// The record; a NIC of another node if absent.
        #[serde(default)]
        record: Option<Value>,
    },
    /// A list answer never has more than this many records.
    MaxPage {
        /// The cap.
        limit: usize,
    },
    /// A list answer repeats the first page whatever the offset says.
    RepeatPage,
}

fn garbage() -> String {
    "<html>gateway</html>".to_owned()
}

/// One rule: a match, a window of hits, an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The method; any if absent.
    #[serde(default)]
    pub method: Option<String>,
    /// The path; a `*` stands for any text; any path if absent.
    #[serde(default)]
    pub path: Option<String>,
    /// Text that the raw query has to contain.
    #[serde(default)]
    pub query: Option<String>,
    /// Matching requests that pass before the rule applies.
    #[serde(default)]
    pub skip: u64,
    /// How often it applies; without end if absent.
    #[serde(default)]
    pub times: Option<u64>,
    /// Applies to every n-th matching request only.
    #[serde(default)]
    pub every: Option<u64>,
    /// What happens.
    pub action: Action,
}

impl Rule {
    /// A rule that applies to all these requests.
    pub fn new(method: &str, path: &str, action: Action) -> Self {
        Self {
            method: Some(method.to_owned()),
            path: Some(path.to_owned()),
            query: None,
            skip: 0,
            times: None,
            every: None,
            action,
        }
    }

    /// A rule for every request.
    pub fn any(action: Action) -> Self {
        Self { method: None, path: None, query: None, skip: 0, times: None, every: None, action }
    }

    /// Applies this many times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// Lets this many matching requests pass first.
    #[must_use]
    pub fn after(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    fn matches(&self, method: &str, path: &str, query: &str) -> bool {
        self.method.as_deref().is_none_or(|m| m.eq_ignore_ascii_case(method))
            && self.path.as_deref().is_none_or(|p| glob(p, path))
            && self.query.as_deref().is_none_or(|q| query.contains(q))
    }
}

/// Returns true if the text matches the pattern, in which `*` stands for any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The rules of one mock, with their counters.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<(Rule, u64)>>);

impl Faults {
    /// Adds a rule at the end.
    pub fn add(&self, rule: Rule) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((rule, 0));
    }

    /// Removes the rules that are like this one.
    pub fn remove(&self, rule: &Rule) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(kept, _)| kept != rule);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The rules with the number of matching requests each has seen.
    pub fn list(&self) -> Vec<(Rule, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts the request against every rule and returns the actions that apply, in order.
    pub fn take(&self, method: &str, path: &str, query: &str) -> Vec<Action> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut actions = Vec::new();
        for (rule, seen) in rules.iter_mut() {
            if !rule.matches(method, path, query) {
                continue;
            }
            *seen += 1;
            let Some(nth) = seen.checked_sub(rule.skip + 1) else { continue };
            let every = rule.every.unwrap_or(1).max(1);
            if nth % every == 0 && rule.times.is_none_or(|times| nth / every < times) {
                actions.push(rule.action.clone());
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_text() {
        assert!(glob("/nics/*", "/nics/90b8d0"));
        assert!(glob("*", ""));
        assert!(glob("/a*c*", "/abcd"));
        assert!(!glob("/nics", "/nics/1"));
        assert!(glob("/nics*", "/nics"));
        assert!(!glob("/networks/*/nics", "/networks/1/ips"));
    }

    #[test]
    fn windows_of_hits() {
        let faults = Faults::default();
        faults.add(Rule::new("GET", "/nics", Action::Cut).after(1).times(2));
        let hits: Vec<usize> = (0..5).map(|_| faults.take("GET", "/nics", "").len()).collect();
        assert_eq!(hits, [0, 1, 1, 0, 0]);
        assert!(faults.take("PUT", "/nics", "").is_empty());
    }

    #[test]
    fn rules_are_data() {
        let rule: Rule = serde_json::from_str(
            r#"{"method":"PUT","path":"/nics/*","times":1,"action":{"do":"status","status":503}}"#,
        )
        .unwrap();
        assert_eq!(
            rule,
            Rule::new(
                "PUT",
                "/nics/*",
                Action::Status { status: 503, body: None, retry_after: None }
            )
            .times(1)
        );
        assert!(serde_json::from_str::<Rule>(r#"{"action":{"do":"nonsense"}}"#).is_err());
    }
}
