// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a tenant writes into its metadata: how much memory vminfod takes to read it, and gives back.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use testbed::held::memory;

use super::common::{Lab, program, status, text, until};

const MIB: u64 = 1 << 20;
/// The ring of events, which stay when the VMs are small again.
const RING: u64 = 64 * MIB;
/// What the allocator may keep, and what the rest of the program may take meanwhile.
const MARGIN: u64 = 48 * MIB;

/// A program that is the testbed with an allocator that gives large blocks back when they are freed.
/// glibc's learns to keep those of up to 32 MiB, as many as are freed last in each thread.
fn frugal(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("frugal");
    let program = program();
    // The commands of the node are links to the program, which goes by the name that it is called by.
    let lines = format!(
        "#!/bin/bash\nMALLOC_MMAP_THRESHOLD_=131072 exec -a \"$0\" '{}' \"$@\"\n",
        program.display()
    );
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// 1.2 million keys with this value.
fn metadata(value: u8) -> String {
    let keys: Vec<String> = (0..1_200_000).map(|n| format!("\"{n:06x}\":{value}")).collect();
    format!("{{\"customer_metadata\":{{{}}}}}", keys.join(","))
}

#[tokio::test(flavor = "multi_thread")] // F72
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_million_keys_take_forty_times_their_text_at_most_and_give_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let lab = Lab::start(|options| {
        options.program = frugal(dir.path());
        // A busy machine needs longer to read such a file than a node has for any.
        options.vminfod.insert("deadlines".to_owned(), json!({"files": "10m"}));
    })
    .await;
    let vms = lab.vms().await;
    let pid = lab.pid("vminfod").unwrap();
    let at_rest = memory(pid, "VmRSS").unwrap();
    let write = async |vm: usize, content: &str| {
        let config = lab.node().root().join(&text(&vms[vm], "zonepath")[1..]).join("config");
        std::fs::write(config.join("new"), content).unwrap();
        let seq = async || status(&lab.vminfod_url()).await["journal"]["seq"].clone();
        let before = seq().await;
        std::fs::rename(config.join("new"), config.join("metadata.json")).unwrap();
        until("the VM is shown", async || seq().await != before).await;
    };

    let first = metadata(1);
    let size = first.len() as u64;
    write(0, &first).await;
    write(1, &first).await;
    write(1, &metadata(2)).await;
    let peak = memory(pid, "VmHWM").unwrap();
    assert!(peak < 40 * size, "{} MiB at most for files of {} MiB", peak / MIB, size / MIB);
    until("what was needed to read them is given back", async || {
        // A text of the file and one of the object for each.
        memory(pid, "VmRSS").unwrap() < at_rest + RING + MARGIN + 4 * size
    })
    .await;
    write(0, "{}").await;
    write(1, "{}").await;
    until("all is given back", async || memory(pid, "VmRSS").unwrap() < at_rest + RING + MARGIN)
        .await;
    lab.stop().await;
}
