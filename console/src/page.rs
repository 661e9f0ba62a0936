// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The files of the page, embedded in the program. The page loads nothing from elsewhere and makes
//! no markup from text.

use daemon::http::{Body, reply};
use daemon::needs::NEEDS;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// Name below `/ui/`, content type and bytes of each file, from names by content type.
macro_rules! files {
    ($($kind:literal: $($name:literal)*;)*) => {
        &[$($(($name, $kind, include_bytes!(concat!("page/", $name))),)*)*]
    };
}

const FILES: &[(&str, &str, &[u8])] = files! {
    "text/css; charset=utf-8": "style.css";
    "text/javascript; charset=utf-8":
        "main.js" "place.js" "tabs.js" "feed.js" "shared.js" "stream.js" "source.js" "history.js" "alarms.js"
        "vms.js" "filter.js" "summary.js" "trends.js" "events.js" "health.js"
        "detail.js" "fields.js" "agents.js" "net-agent.js" "vm-agent.js" "kvmd.js"
        "migration-agent.js" "migrations.js" "volumes.js" "needs.js"
        "drawing.js" "dom.js" "format.js"
        "fleet.js" "fleet-nodes.js" "fleet-one.js";
};

/// How each page begins.
const HEAD: &str = include_str!("page/head.html");

/// A page: its title, its script, what follows the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page(&'static str, &'static str, &'static str);

/// The page of a node.
pub(crate) const NODE: Page = Page("Compute node", "main.js", include_str!("page/index.html"));
/// The page of the data centre.
#[cfg(any(feature = "fleet", test))]
pub(crate) const CENTRE: Page = Page("Data centre", "fleet.js", include_str!("page/fleet.html"));

impl Page {
    /// Returns the page.
    pub(crate) fn response(self) -> Response<Body> {
        typed(reply(StatusCode::OK, self.text()), "text/html; charset=utf-8")
    }

    fn text(self) -> String {
        let Page(title, script, body) = self;
        HEAD.replace("TITLE", title).replace("SCRIPT", script) + body
    }
}

/// The file that is made of the table of states that need a person.
const TABLE: &str = "table-of-needs.js";

/// The file of this name.
pub(crate) fn file(name: &str) -> Option<Response<Body>> {
    if name == TABLE {
        return Some(typed(reply(StatusCode::OK, table()), "text/javascript; charset=utf-8"));
    }
    let (_, kind, bytes) = FILES.iter().find(|file| file.0 == name)?;
    Some(typed(reply(StatusCode::OK, *bytes), kind))
}

fn typed(mut response: Response<Body>, kind: &'static str) -> Response<Body> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Returns the table of states that need a person as a module of the page.
fn table() -> String {
    let rows = NEEDS
        .iter()
        .map(|need| (need.name.to_owned(), json!({ "says": need.says, "command": need.command })));
    let rows: Map<String, Value> = rows.collect();
    format!("export const NEEDS = {:#};\n", Value::Object(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_the_page_proposes_is_in_the_table() {
        for (name, _, bytes) in FILES.iter().filter(|file| file.0.ends_with(".js")) {
            let text = std::str::from_utf8(bytes).unwrap();
            for (at, found) in text.match_indices("command('") {
                let asked: String =
                    text[at + found.len()..].chars().take_while(|c| *c != '\'').collect();
                assert!(daemon::needs::find(&asked).is_some(), "{name} asks for {asked:?}");
            }
            // An agent that the page does not know has no row.
            let own = text.replace("svcs -xv ${", "");
            for word in ["svcs -", "sdc-migrate ", "sdc-voladm r", "agent approve", "command: '"] {
                assert!(!own.contains(word), "{name} makes a command of its own: {word}");
            }
        }
        assert!(table().contains("\"migration-sync-failed\": {"));
    }

    #[test]
    fn names_only_files_that_exist_and_nothing_elsewhere() {
        let files = FILES.iter().map(|file| file.0);
        let known: Vec<&str> = files.chain(std::iter::once(TABLE)).collect();
        let files = FILES.iter().map(|file| (file.0, String::from_utf8(file.2.to_vec()).unwrap()));
        let pages = [("index.html", NODE.text()), ("fleet.html", CENTRE.text())];
        for (name, text) in files.chain(pages) {
            for (at, found) in text.match_indices("/ui/") {
                let rest = &text[at + found.len()..];
                let asked: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
                assert!(
                    ["agents", "fleet"].contains(&asked.as_str())
                        || known.contains(&asked.as_str()),
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
