// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A page, or the comment of a module, that lists endpoints of a service in a table lists those that the service has.
//!
//! What a service has is in its OpenAPI document. A document is made of the table of which the service's router is, and
//! a test of `testbed openapi` holds it to that table; where paths are routed by hand, they are held to it here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::source::{self, Kind};

/// A page with such a table, the service, and which paths belong in it.
type Page = (&'static str, &'static str, fn(&str) -> bool);

const PAGES: [Page; 5] = [
    ("docs/http-vminfod.md", "vminfod", |_| true),
    ("docs/volume-snapshots.md", "volapi", |it| it.contains("snapshot") || it == "/volumehistory"),
    ("migration/core/src/protocol/mod.rs", "migration-agent", |it| {
        !it.contains("/snapshots") && it != "/ping"
    }),
    ("sdc-clients/src/snapshots.rs", "migration-agent", |it| it.contains("/snapshots")),
    ("trust/src/exchange.rs", "trust", |it| matches!(it, "/trust/join" | "/trust/state")),
];
/// Pages whose table is of no such service: console passes on what others answer.
const OTHERS: [&str; 1] = ["docs/config-console.md"];
/// Sources that route paths by hand, and the document that has them. Those without one are pages that only people,
/// Prometheus and console's own page read, and `/ping`.
const BY_HAND: [(&str, Option<&str>); 11] = [
    ("console/src/fleet/http.rs", None),
    ("console/src/http.rs", None),
    ("daemon/src/agent/routes.rs", Some("agents")),
    ("daemon/src/http/pages.rs", None),
    ("daemon/src/metrics.rs", None),
    ("migration/agent/src/pages.rs", Some("agents")),
    ("migration/service/src/pages.rs", None),
    ("net-agent/src/serve.rs", Some("agents")),
    ("vm-agent/src/serve.rs", Some("agents")),
    ("vminfod/src/http/mod.rs", Some("vminfod")),
    ("volumes/volapi/src/pages.rs", None),
];

/// Returns the document of a service.
fn document(service: &str) -> Value {
    let path = source::root().join(format!("docs/{service}.openapi.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Lists the paths that a source routes by hand.
fn routed(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |kind| matches!(kind, Kind::Code | Kind::Text);
    let parts = source::parts(code).into_iter().filter(|part| is_code(part.kind));
    let code: String = parts.map(|part| part.text).collect();
    let calls = code.split(".route(").skip(1);
    let path =
        |call: &str| Some(call.trim_start().strip_prefix('"')?.split('"').next()?.to_owned());
    calls.filter_map(path).collect()
}

#[test]
fn paths_that_are_routed_by_hand_are_in_the_document_of_their_service() {
    let root = source::root();
    let is_test = |path: &String| path.split('/').any(|part| part == "tests" || part == "tests.rs");
    let sources = source::files(&root, ".", "rs").into_iter().filter(|path| !is_test(path));
    let routed = sources.map(|path| {
        let paths = routed(&std::fs::read_to_string(root.join(&path)).unwrap());
        (path, paths)
    });
    let routed: BTreeMap<_, _> = routed.filter(|(_, paths)| !paths.is_empty()).collect();
    let known: BTreeSet<String> = BY_HAND.iter().map(|(path, _)| (*path).to_owned()).collect();
    assert_eq!(routed.keys().cloned().collect::<BTreeSet<_>>(), known, "others have a table");
    for service in ["agents", "vminfod"] {
        let own = BY_HAND.iter().filter(|(_, of)| *of == Some(service));
        let mut paths: BTreeSet<String> =
            own.flat_map(|(path, _)| routed[*path].iter().cloned()).collect();
        paths.insert("/ping".to_owned()); // the frame's
        let told: BTreeSet<String> =
            document(service)["paths"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(paths, told, "{service}: left the sources'");
    }
}

/// Lists the endpoints (`GET /vms/{}`) in a page's tables whose first column is headed `request` or `route`.
fn listed(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_table = false;
    for line in page.lines() {
        let line = line.strip_prefix("//! ").unwrap_or(line);
        let cell = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        match cell.map(|cell| cell.trim_matches('`')) {
            None => is_table = false,
            Some("request" | "route") => is_table = true,
            Some(cell) if is_table && cell.contains('/') => {
                found.insert(plain(cell));
            }
            Some(_) => {}
        }
    }
    found
}

/// Returns an endpoint without the names of its variables, which are capitals in a page and in braces in a document.
fn plain(endpoint: &str) -> String {
    let (method, path) = endpoint.split_once(' ').unwrap_or(("GET", endpoint));
    let is_variable = |part: &str| {
        part.starts_with('{') || !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase())
    };
    let parts = path.split('/').map(|part| if is_variable(part) { "{}" } else { part });
    format!("{method} {}", parts.collect::<Vec<_>>().join("/"))
}

/// Lists the endpoints of an OpenAPI document whose paths are these.
fn offered(document: &Value, kept: fn(&str) -> bool) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap().iter().filter(|(path, _)| kept(path));
    let methods = |(path, item): (&String, &Value)| -> Vec<String> {
        let methods = item.as_object().unwrap().keys();
        methods.map(|it| plain(&format!("{} {path}", it.to_uppercase()))).collect()
    };
    paths.flat_map(methods).collect()
}

#[test]
fn tables_of_endpoints_are_the_programs() {
    let root = source::root();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for (page, service, kept) in PAGES {
        let offered = offered(&document(service), kept);
        assert_eq!(listed(&read(page)), offered, "{page}: left the page's");
    }
    let with_table = |page: &String| !listed(&read(page)).is_empty();
    // The contract states what others answer.
    let ours = source::files(&root, ".", "md").into_iter().filter(|it| !it.contains("contract/"));
    let found = ours.chain(source::files(&root, ".", "rs")).filter(with_table);
    let found: BTreeSet<String> = found.collect();
    let known = PAGES.iter().map(|(page, ..)| *page).chain(OTHERS).map(str::to_owned);
    assert_eq!(found, known.collect(), "pages with a table of endpoints");
}

#[test]
fn endpoints_are_compared_without_the_names_of_their_variables() {
    let page = "| request | answer |\n| --- | --- |\n| `POST /vms/UUID/stop` | 202 |\n| `/ping` | 200 |\n\n| `/no` | |";
    let ours = ["POST /vms/{}/stop", "GET /ping"].map(str::to_owned);
    assert_eq!(listed(page), ours.into());
    let document =
        serde_json::json!({"paths": {"/vms/{uuid}/stop": {"post": {}}, "/ping": {"get": {}}}});
    assert_eq!(offered(&document, |_| true), listed(page));
    assert_eq!(offered(&document, |path| path.contains("stop")).len(), 1);
}
