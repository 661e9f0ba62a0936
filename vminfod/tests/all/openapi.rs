// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `docs/vminfod.openapi.json` is the interface: each route, parameter, status and top-level key in it is
//! the program's, and each of the program's is in it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::common::A;
use crate::common::scene::one_vm;

/// The sources that know routes and parameters.
const SOURCES: [&str; 4] = [
    include_str!("../../src/http/mod.rs"),
    include_str!("../../src/http/filter.rs"),
    include_str!("../../src/http/rewrite.rs"),
    include_str!("../../../daemon/src/http/events.rs"),
];

type Names = BTreeSet<String>;

fn document() -> Value {
    serde_json::from_str(include_str!("../../../docs/vminfod.openapi.json")).unwrap()
}

fn paths(document: &Value) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.map(|(path, item)| (path.as_str(), item["get"].as_object().unwrap()))
}

fn parameters<'a>(get: &'a Map<String, Value>, place: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = get.get("parameters").and_then(Value::as_array).into_iter().flatten();
    all.filter(move |one| one["in"] == place)
}

/// Returns the text in quotes that follows each of these beginnings.
fn quoted(source: &str, begin: &str) -> Names {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let found = code.split(begin).skip(1).filter_map(|rest| rest.split('"').nth(1));
    found.map(str::to_owned).collect()
}

#[test]
fn it_has_the_routes_and_parameters_of_the_program() {
    let document = document();
    let routes: Names = paths(&document).map(|(path, _)| path.to_owned()).collect();
    assert_eq!(routes, quoted(SOURCES[0], ".route("));

    let mut read: Names = [
        "query(query",
        "query(query.as_deref()",
        "wants(query",
        "value(query",
        "value(Some(query)",
        "value(text",
    ]
    .iter()
    .flat_map(|call| SOURCES.iter().flat_map(move |source| quoted(source, &format!("{call}, "))))
    .collect();
    // The lists of a filter are the arms of a match.
    let arms = SOURCES[1].lines().filter_map(|line| line.trim().split_once("\" => &mut filter."));
    read.extend(arms.map(|(key, _)| key.trim_matches('"').to_owned()));
    let told = paths(&document).flat_map(|(_, get)| parameters(get, "query"));
    let told: Names = told.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, read);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_answers_as_it_says() {
    let (_node, served) = one_vm().await;
    let document = document();
    let mut seen: BTreeMap<&str, Names> = BTreeMap::new();
    let client = reqwest::Client::new();
    // The head of an answer is enough: a stream has no end.
    let ask = async |target: &str, tag: &str| {
        let request = client.get(format!("{}{target}", served.url)).header("if-none-match", tag);
        request.send().await.unwrap()
    };
    for (path, get) in paths(&document) {
        let statuses = seen.entry(path).or_default();
        let of = |name: &str| path.replace("{name}", name);
        let mut targets = vec![of(A), of("nobody")];
        targets.extend(parameters(get, "query").map(|one| {
            let (name, example) = (one["name"].as_str().unwrap(), one["example"].as_str().unwrap());
            format!("{}?filter=1&{name}={example}", of(A))
        }));
        targets.push(format!("{}?epoch=0123456789abcdef&since=17", of(A)));
        for target in targets {
            let answer = ask(&target, "").await;
            statuses.insert(answer.status().as_u16().to_string());
            for header in ["etag", "vminfod-incomplete"] {
                let told = get["responses"]["200"]["headers"].as_object();
                let is_told = told
                    .is_some_and(|told| told.keys().any(|name| name.eq_ignore_ascii_case(header)));
                assert!(is_told || !answer.headers().contains_key(header), "{target}: {header}");
            }
            if let Some(tag) = answer.headers().get("etag") {
                let again = ask(&target, tag.to_str().unwrap()).await;
                statuses.insert(again.status().as_u16().to_string());
            }
        }
        // 503 needs a node that does not answer.
        let told: Names = get["responses"].as_object().unwrap().keys().cloned().collect();
        let (told, statuses) = (told.iter().filter(|it| *it != "503"), &seen[path]);
        assert_eq!(told.collect::<Vec<_>>(), statuses.iter().collect::<Vec<_>>(), "{path}");
    }
    for path in ["/ping", "/ready", "/status?full=true", "/sysinfo", &format!("/why/{A}")] {
        let answer = served.json(path).await;
        let path = path.split('?').next().unwrap().replace(A, "{name}");
        let schema = &document["paths"][&path]["get"]["responses"]["200"]["content"];
        let told = &schema["application/json"]["schema"]["properties"];
        let keys = |map: &Value| map.as_object().unwrap().keys().cloned().collect::<Names>();
        assert_eq!(keys(told), keys(&answer), "{path}");
    }
    // Each key of a VM that the document has is of its type.
    let (vm, mut known) = (served.json(&format!("/vms/{A}")).await, 0);
    for (key, schema) in document["components"]["schemas"]["Vm"]["properties"].as_object().unwrap()
    {
        let is_it = match (&vm[key], schema["type"].as_str().unwrap_or("null")) {
            (Value::Null, _) | (_, "null") => continue,
            (Value::String(_), kind) => kind == "string",
            (Value::Bool(_), kind) => kind == "boolean",
            (Value::Number(_), kind) => kind == "number",
            (Value::Array(_), kind) => kind == "array",
            (Value::Object(_), kind) => kind == "object",
        };
        assert!(is_it, "{key}: {}", vm[key]);
        known += 1;
    }
    assert!(known > 10, "{known}");
    // What a route of ours ignores it names; the shipped service's say nothing.
    for (target, named) in [("/ready?x=1&y", Some("x, y")), ("/ready", None), ("/ping?x=1", None)] {
        let answer = ask(target, "").await;
        let told = answer.headers().get("vminfod-ignored").map(|it| it.to_str().unwrap());
        assert_eq!(told, named, "{target}");
    }
    assert_eq!(served.json("/openapi.json").await, document);
    let other = client.post(format!("{}/vms", served.url)).send().await.unwrap();
    assert_eq!((other.status().as_u16(), served.get("/nothing").await.0), (400, 404));
}
