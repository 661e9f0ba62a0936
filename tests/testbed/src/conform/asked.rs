// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A request to vminfod and what came for it.

/// A request and what came for it, as the list of deviations looks at it.
pub(super) struct Asked {
    /// What was sent.
    pub(super) text: String,
    /// The status of the first response.
    pub(super) status: Option<u16>,
}

impl Asked {
    /// The path of the first request.
    pub(super) fn path(&self) -> &str {
        let target = self.text.split(' ').nth(1).unwrap_or_default();
        target.split(['?', '#']).next().unwrap_or_default()
    }

    /// A plain GET of a route that the deployed daemon does not have.
    pub(super) fn is_our_route(&self) -> bool {
        let first = self.path().split('/').find(|part| !part.is_empty() && *part != ".");
        self.text.starts_with("GET /")
            && matches!(first, Some("data" | "sysinfo" | "metrics" | "ready"))
            && !self.path().contains("..")
            && !self.is_foreign()
    }

    /// A well-formed request for another host, or from a web page of one.
    pub(super) fn is_foreign(&self) -> bool {
        let header = |name: &str| {
            let lines = self.text.split("\r\n").skip(1).take_while(|line| !line.is_empty());
            let mut pairs = lines.filter_map(|line| line.split_once(':'));
            pairs.find_map(|(key, value)| {
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let host = header("host").unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        let local = host.starts_with('[') || !name.contains('.') || name == "127.0.0.1";
        let graphic = host.chars().all(|c| c.is_ascii_graphic());
        let same = |origin: String| origin.split_once("://").is_some_and(|(_, rest)| rest == host);
        graphic && (!local || header("origin").is_some_and(|origin| !same(origin)))
    }
}
