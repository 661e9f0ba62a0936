// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub migrate` and the like, by the program as it is built.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn what_belongs_to_us_is_run_as_it_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("ours");
    let others = dir.path().join("others");
    for (folder, word) in [(&ours, "ours"), (&others, "theirs")] {
        fs::create_dir(folder).unwrap();
        let script = folder.join("sdc-migrate");
        fs::write(&script, format!("#!/bin/sh\necho {word} \"$@\"\nexit 130\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let _bytes = fs::copy(env!("CARGO_BIN_EXE_hub"), ours.join("hub")).unwrap();
    // As the link in a folder of commands, where another program has the name, too.
    std::os::unix::fs::symlink(ours.join("hub"), others.join("hub")).unwrap();
    #[allow(clippy::disallowed_methods)] // a test's own child
    let run = |args: &[&str]| {
        let path = std::env::join_paths([&others]).unwrap();
        Command::new(others.join("hub")).args(args).env("PATH", path).output().unwrap()
    };
    let done = run(&["migrate", "migrate", "--help", "-n", "cn 1", "--", "-x"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "ours migrate --help -n cn 1 -- -x\n");
    assert_eq!(done.status.code(), Some(130), "the status is the program's own");

    let done = run(&["voladm", "check"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("hub-tools/bin/sdc-voladm; install the package hub-tools"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
