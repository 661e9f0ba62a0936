// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A page that lists endpoints of a service in a table lists those that the service has.
//!
//! What a service has is in its OpenAPI document, which other tests hold to the table of its router.

use std::collections::BTreeSet;

use serde_json::Value;

use super::source;

/// The pages with such a table, the service, and a part of each path that belongs in it.
const PAGES: [(&str, &str, &[&str]); 2] = [
    ("docs/http-vminfod.md", "vminfod", &[""]),
    ("docs/volume-snapshots.md", "volapi", &["snapshot", "/volumehistory"]),
];
/// Pages whose table is of no such service: console passes on what others answer.
const OTHERS: [&str; 1] = ["docs/config-console.md"];

/// Lists the endpoints (`GET /vms/{}`) in a page's tables whose first column is headed `request` or `route`.
fn listed(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_table = false;
    for line in page.lines() {
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

/// Lists the endpoints of an OpenAPI document whose path has one of these parts.
fn offered(document: &Value, kept: &[&str]) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap().iter();
    let paths = paths.filter(|(path, _)| kept.iter().any(|part| path.contains(part)));
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
        let document = read(&format!("docs/{service}.openapi.json"));
        let document = serde_json::from_str(&document).unwrap();
        assert_eq!(listed(&read(page)), offered(&document, kept), "{page}: left the page's");
    }
    let with_table = |page: &String| !listed(&read(page)).is_empty();
    // The contract states what others answer.
    let ours = source::files(&root, ".", "md").into_iter().filter(|it| !it.contains("contract/"));
    let found: BTreeSet<String> = ours.filter(with_table).collect();
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
    assert_eq!(offered(&document, &[""]), listed(page));
    assert_eq!(offered(&document, &["stop"]).len(), 1);
}
