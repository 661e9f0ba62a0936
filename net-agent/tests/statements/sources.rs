// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Only one module can write to NAPI, and the documents name what the sources have.

use std::path::{Path, PathBuf};

/// The paths and texts of all sources below `folder`.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn only_a_permit_leads_to_a_write() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (path, text) in sources(&root) {
        let writes = ["update_nic(", "delete_nic(", "create_nic("].iter().any(|w| text.contains(w));
        assert!(!writes || path.ends_with("permit.rs"), "{} writes to NAPI", path.display());
        let makes = text.contains("Permit {");
        assert!(!makes || path.ends_with("permit.rs"), "{} makes a permit", path.display());
    }
}

#[test]
fn documents_every_guard() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/config-net-agent.md")).unwrap();
    let names = std::fs::read_to_string(root.join("src/plan/guard.rs")).unwrap();
    let names: Vec<&str> =
        names.split('"').skip(1).step_by(2).filter(|name| name.len() > 5).collect();
    for name in ["hold", "brake"].iter().chain(&names) {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not in the table of guards");
    }
    assert_eq!(names.len(), 9, "{names:?}");
}
