// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who asks, and through which program, as the header `user-agent` says it: `sdc-migrate/1.0.0 (root)`. Only people
//! read it: what a caller may do is decided elsewhere.

use http::HeaderMap;
use http::header::USER_AGENT;

/// So much of each is kept.
const MOST: usize = 128;

/// What a request reveals of its sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Who asks.
    pub by: Option<String>,
    /// Through which program.
    pub program: Option<String>,
}

impl Sender {
    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Sender {
        let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default().trim();
        let (program, rest) = agent.split_once(' ').unwrap_or((agent, ""));
        let by = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(by, _)| by);
        let kept = |text: &str| -> Option<String> {
            (!text.is_empty()).then(|| text.chars().take(MOST).collect())
        };
        Sender { by: by.and_then(kept), program: kept(program) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_says_program_and_person() {
        let long = format!("{} ({})", "p".repeat(300), "b".repeat(300));
        for (agent, program, by) in [
            ("sdc-migrate/1.0.0 (root)", Some("sdc-migrate/1.0.0"), Some("root")),
            (
                "restify/1.4.3 (x64-sunos; v8/3.14) node/0.10",
                Some("restify/1.4.3"),
                Some("x64-sunos; v8/3.14"),
            ),
            ("curl/7.88.1", Some("curl/7.88.1"), None),
            ("a (b", Some("a"), None),
            ("", None, None),
            (&long, Some(&*"p".repeat(128)), Some(&*"b".repeat(128))),
        ] {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]);
            let sender = Sender::of(&headers);
            let told = (sender.program.as_deref(), sender.by.as_deref());
            assert_eq!(told, (program, by), "{agent}");
        }
        assert_eq!(Sender::of(&HeaderMap::new()), Sender::default());
    }
}
