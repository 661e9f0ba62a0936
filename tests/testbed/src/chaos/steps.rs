// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is done to the node.

use std::path::Path;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use simnode::{NodeError, Verbs, files};

use crate::storm::mutate::Mutation;

/// How many changes a seed makes: at least, and less than.
pub(super) const CHANGES: std::ops::Range<u32> = 10..40;

/// Changes something of a zone, a dataset or a file. Returns what was done to which VM.
///
/// # Errors
/// The change is not possible in the state that the VM is in; nothing, or a part of it, was done.
pub(super) async fn change(verbs: &Verbs, rng: &mut StdRng) -> Result<String, NodeError> {
    let zones: Vec<String> = verbs.node().zones()?.iter().map(|z| z.zonename.clone()).collect();
    if zones.is_empty() {
        let first = Mutation::Create("lx", rng.random());
        return first.perform(verbs, "").await.map(|()| format!("{first:?}"));
    }
    let vm = &zones[rng.random_range(0..zones.len())];
    if rng.random_range(0..5_u8) > 0 {
        let mutation = Mutation::draw(rng);
        return mutation.perform(verbs, vm).await.map(|()| format!("{mutation:?} {vm}"));
    }
    let zonepath = verbs.node().path(&verbs.node().zone(vm)?.zonepath);
    let name = ["metadata", "tags", "routes"][rng.random_range(0..3)];
    let how = edit(&zonepath.join(format!("config/{name}.json")), name, rng)?;
    Ok(format!("{name}.json {how} {vm}"))
}

/// Does to a configuration file what editors and other programs than vmadm do.
fn edit(file: &Path, name: &str, rng: &mut StdRng) -> Result<&'static str, NodeError> {
    let word = rng.random_range(0..1000_u16).to_string();
    let value = match name {
        "metadata" => json!({"customer_metadata": {"k": word}, "internal_metadata": {}}),
        "tags" => json!({"k": word}),
        _ => json!({format!("10.7.0.{}", word.len()): "10.7.0.1"}),
    };
    let text = value.to_string();
    Ok(match rng.random_range(0..4_u8) {
        0 => {
            files::remove_file(file)?;
            "removed"
        }
        1 => {
            files::replace(file, text.as_bytes())?;
            "replaced"
        }
        2 => {
            // Truncated first, as by a shell.
            files::write_in_place(file, b"")?;
            files::write_in_place(file, text.as_bytes())?;
            "emptied and written"
        }
        _ => {
            files::write_in_place(file, text.as_bytes())?;
            "written"
        }
    })
}
