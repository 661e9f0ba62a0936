// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The ledger of beliefs, `docs/contract/beliefs.md`, has a row for each program that the product runs and for
//! each route that it calls.

use super::source::{self, Kind};

const LEDGER: &str = "docs/contract/beliefs.md";

#[test]
fn every_program_and_route_is_in_the_ledger() {
    let root = source::root();
    let ledger = std::fs::read_to_string(root.join(LEDGER)).unwrap();
    let mut faults = Vec::new();
    let programs = std::fs::read_to_string(root.join("daemon/src/command/program.rs")).unwrap();
    let names: Vec<&str> = programs
        .lines()
        .filter_map(|line| line.split_once("=> (\"")?.1.split('"').next())
        .collect();
    assert!(names.len() > 5, "the table of programs is not where it was");
    for name in names.iter().filter(|name| !ledger.contains(&format!("\n| `{name}` |"))) {
        faults.push(format!("the program {name}"));
    }
    let mut found = 0;
    for path in source::files(&root, ".", "rs").iter().filter(|path| is_product(path)) {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        for route in routes(&text) {
            found += 1;
            if !ledger.contains(&format!("`{route}`")) {
                faults.push(format!("{path}: {route}"));
            }
        }
    }
    assert!(found > 60, "only {found} routes are found");
    faults.sort();
    faults.dedup();
    assert!(faults.is_empty(), "{LEDGER} has no row for\n{}", faults.join("\n"));
}

fn is_product(path: &str) -> bool {
    let is_ours = !["tests", "examples", "hub"]
        .iter()
        .any(|it| path.trim_start_matches("./").starts_with(it));
    is_ours && path.contains("/src/") && !path.contains("/tests")
}

/// Lists the routes that a file calls: `METHOD /PATH`, with `*` for each part that is no text.
fn routes(text: &str) -> Vec<String> {
    // Comments and test code out; texts stay.
    let mut code = String::new();
    for part in source::parts(text) {
        match part.kind {
            Kind::Code if part.text.contains("#[cfg(test)]") => break,
            Kind::Code | Kind::Text => code.push_str(&part.text),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for call in code.split("Call::").skip(1) {
        let Some((method, rest)) = call.split_once('(') else { continue };
        let rest = rest.trim_start();
        let (method, rest) = match rest.strip_prefix("Method::") {
            Some(rest) => rest.split_once(',').unwrap_or_default(),
            None => (method, rest),
        };
        let is_method = ["get", "post", "put", "delete"].contains(&method.to_lowercase().as_str());
        let Some((parts, _)) =
            rest.trim_start().strip_prefix("&[").and_then(|it| it.split_once(']'))
        else {
            continue;
        };
        if is_method {
            // A comma between parentheses is of an argument.
            let mut depth = 0_usize;
            let parts = parts.split(|c: char| {
                depth = match c {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                c == ',' && depth == 0
            });
            let parts = parts.map(str::trim).filter(|part| !part.is_empty());
            let part = |part: &str| match part.strip_prefix('"').and_then(|it| it.strip_suffix('"'))
            {
                Some(text) => format!("/{text}"),
                None => "/*".to_owned(),
            };
            found.push(format!(
                "{} {}",
                method.to_uppercase(),
                parts.map(part).collect::<String>()
            ));
        }
    }
    found
}

#[test]
fn routes_are_found_in_code() {
    let text = r#"
        // Call::get(&["comment"])
        let a = Call::get(&["servers", uuid, "tickets"]).timeout(X);
        let b = Call::new(Method::PUT, &["tickets", ticket, "release"]);
        let c = Call::get(list.segments());
        #[cfg(test)]
        mod tests { fn f() { Call::get(&["test"]); } }
    "#;
    assert_eq!(routes(text), ["GET /servers/*/tickets", "PUT /tickets/*/release"]);
}
