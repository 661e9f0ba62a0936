// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The document of the configuration names what the source reads.

#![allow(missing_docs, clippy::unwrap_used)] // a test: a panic is a failed test

use std::path::Path;

#[test]
fn documents_every_configuration_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/config-vm-agent.md")).unwrap();
    let mut documented: Vec<&str> = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        documented.extend(line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    }
    let source = std::fs::read_to_string(root.join("src/config.rs")).unwrap();
    let source = source.split("mod tests").next().unwrap();
    let mut read: Vec<String> = Vec::new();
    for verb in ["span", "text", "parse", "flag", "path", "number", "required", "window"] {
        for (at, call) in source.match_indices(&format!(".{verb}(")) {
            let Some(rest) = source[at + call.len()..].trim_start().strip_prefix('"') else {
                continue;
            };
            let key = rest.split('"').next().unwrap();
            match verb {
                "window" => read.extend([format!("{key}.min"), format!("{key}.max")]),
                _ => read.push(key.to_owned()),
            }
        }
    }
    assert!(read.len() > 15, "{read:?}");
    for key in &read {
        assert!(documented.contains(&key.as_str()), "{key} is not in docs/config-vm-agent.md");
    }
    for key in documented {
        assert!(read.iter().any(|known| known == key), "{key} is documented and never read");
    }
}
