// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! docs/config-vminfod.md and the program have the same keys and defaults.
use std::path::Path;

use daemon::Fields;
use serde_json::{Map, Value};
use vminfod::config::Config;

/// Keys with their defaults, as the page's tables tell them; no default where that is prose.
fn told() -> Vec<(String, Option<String>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config-vminfod.md");
    let page = std::fs::read_to_string(page).unwrap();
    let quoted = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let mut told = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').collect();
        let (keys, defaults) = (quoted(cells[1]), quoted(cells[2]));
        let plain = defaults.len() == keys.len() && cells[2].trim().starts_with('`');
        for (at, key) in keys.into_iter().enumerate() {
            told.push((key, defaults.get(at).filter(|_| plain).cloned()));
        }
    }
    assert!(told.len() > 25, "{told:?}");
    told
}

#[test]
fn documented_keys_exist_with_their_defaults() {
    let mut settings = Map::new();
    for (key, default) in told() {
        let Some(default) = default else { continue };
        // Numbers, lists and flags stand as in JSON; all else is text, and so is a mode like 0660.
        let value = serde_json::from_str(&default).unwrap_or(Value::from(default));
        settings.insert(key, value);
    }
    // A key of earlier versions, which moved to console's configuration, only warns.
    settings.insert("agents".into(), serde_json::json!({"net-agent": "127.0.0.1:5311"}));
    let (config, unknown) =
        Config::read(Fields::from_json(&Value::from(settings).to_string()).unwrap()).unwrap();
    assert_eq!(unknown, ["agents"], "named on the page and never read");
    assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
}

#[test]
fn every_key_is_documented() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let source = source.split("mod tests").next().unwrap();
    let told = told();
    let mut seen = 0;
    for call in ["path(", "parse(", "flag(", "span(", "number(", "count(", "text(", "get("] {
        for (at, _) in source.match_indices(call) {
            let Some(rest) = source[at + call.len()..].trim_start().strip_prefix('"') else {
                continue;
            };
            let key = rest.split('"').next().unwrap();
            assert!(told.iter().any(|(named, _)| named == key), "{key} is not on the page");
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn a_file_is_checked_without_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vminfod.json");
    let nowhere = r#"{"root": "/nowhere", "commands": {"zoneadm": "/nowhere/zoneadm"}}"#;
    std::fs::write(&file, nowhere).unwrap();
    #[allow(clippy::disallowed_methods)] // the program under test
    let mut vminfod = std::process::Command::new(env!("CARGO_BIN_EXE_vminfod"));
    let ended = vminfod.arg("--check-config").arg("--config").arg(&file).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn daemon_and_commands_read_the_file_of_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vminfod.json");
    std::fs::write(&file, r#"{"listen": 5}"#).unwrap();
    for args in [["serve", "--check-config"], ["status", "-j"]] {
        #[allow(clippy::disallowed_methods)] // the program under test
        let mut vminfod = std::process::Command::new(env!("CARGO_BIN_EXE_vminfod"));
        let ended = vminfod.args(args).env("VMINFOD_CONFIG", &file).env_remove("SMF_FMRI").output();
        let ended = ended.unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(file.to_str().unwrap()), "{args:?}: {said}");
    }
}
