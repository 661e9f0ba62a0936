// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The keys that an agent reads are those of its configuration page.

use std::path::Path;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The keys that this source reads from a configuration.
fn read_by(source: &str) -> Vec<String> {
    let source = source.split("mod tests").next().unwrap();
    let mut keys = Vec::new();
    for verb in "span spans text url loopback parse flag path number optional_text required window"
        .split(' ')
    {
        for (at, call) in source.match_indices(&format!(".{verb}(")) {
            let Some(rest) = source[at + call.len()..].trim_start().strip_prefix('"') else {
                continue;
            };
            let key = rest.split('"').next().unwrap();
            match verb {
                "window" => keys.extend([format!("{key}.min"), format!("{key}.max")]),
                _ => keys.push(key.to_owned()),
            }
        }
    }
    // The services whose address follows from that of the agent's own one.
    for other in ["cnapi", "napi"].into_iter().filter(|_| source.contains("sibling::optional(")) {
        keys.extend(source.contains(&format!("\"{other}\"")).then(|| format!("{other}.url")));
    }
    keys.extend(source.contains(".metrics()").then(|| "metrics.listen".to_owned()));
    keys
}

#[test]
fn each_agent_documents_every_configuration_key() {
    for agent in ["net-agent", "vm-agent"] {
        let page = text(&format!("docs/config-{agent}.md"));
        let mut documented: Vec<&str> = Vec::new();
        for line in
            page.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"))
        {
            documented.extend(line.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
        }
        let mut read = read_by(&text(&format!("{agent}/src/config.rs")));
        read.extend(read_by(&text("daemon/src/agent/basics.rs")));
        read.extend(read_by(&text("daemon/src/agent/hub.rs")));
        assert!(read.len() > 15, "{read:?}");
        for key in &read {
            assert!(documented.contains(&key.as_str()), "{key} is not in docs/config-{agent}.md");
        }
        for key in documented {
            assert!(read.iter().any(|known| known == key), "{agent}: {key} is never read");
        }
    }
}

#[test]
fn volapi_documents_every_configuration_key() {
    let page = text("docs/config-volapi.md");
    let read = read_by(&text("volumes/volapi/src/config.rs"));
    assert!(read.len() > 10, "{read:?}");
    for key in read {
        assert!(page.contains(&format!("`{key}`")), "{key} is not in docs/config-volapi.md");
    }
}
