// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The files of the page, embedded in the program. The page loads nothing from elsewhere and makes
//! no markup from text.

use daemon::http::{Body, reply};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

/// Name below `/ui/`, content type and bytes of each file, from names by content type.
macro_rules! files {
    ($($kind:literal: $($name:literal)*;)*) => {
        &[$($(($name, $kind, include_bytes!(concat!("page/", $name))),)*)*]
    };
}

const FILES: &[(&str, &str, &[u8])] = files! {
    "text/html; charset=utf-8": "index.html";
    "text/css; charset=utf-8": "style.css";
    "text/javascript; charset=utf-8":
        "main.js" "place.js" "tabs.js" "stream.js" "source.js" "history.js" "alarms.js"
        "vms.js" "filter.js" "summary.js" "trends.js" "events.js" "health.js"
        "detail.js" "fields.js" "agents.js" "net-agent.js" "vm-agent.js" "kvmd.js"
        "migration-agent.js" "migrations.js" "volumes.js"
        "drawing.js" "dom.js" "format.js";
};

/// The file of this name.
pub(crate) fn file(name: &str) -> Option<Response<Body>> {
    let (_, kind, bytes) = FILES.iter().find(|file| file.0 == name)?;
    let mut response = reply(StatusCode::OK, *bytes);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_only_files_that_exist_and_nothing_elsewhere() {
        let known: Vec<&str> = FILES.iter().map(|file| file.0).collect();
        for (name, _, bytes) in FILES.iter() {
            let text = std::str::from_utf8(bytes).unwrap();
            for (at, found) in text.match_indices("/ui/") {
                let rest = &text[at + found.len()..];
                let asked: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
                assert!(
                    asked == "agents" || known.contains(&asked.as_str()),
                    "{name} asks for {asked:?}"
                );
            }
            for (at, _) in text.match_indices("from './") {
                let asked: String = text[at + 8..].chars().take_while(|c| *c != '\'').collect();
                assert!(known.contains(&asked.as_str()), "{name} imports {asked:?}");
            }
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{name} uses {word}");
            }
            let mut links = text.match_indices("https://").map(|(at, _)| &text[at..]);
            assert!(links.all(|link| link.starts_with("https://mozilla.org/MPL/2.0/")), "{name}");
        }
    }
}
