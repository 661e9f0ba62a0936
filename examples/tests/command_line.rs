// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The example as a program. That cargo builds it for this is also what lets
//! `tests/testbed/tests/programs/docs.rs` run it against a lab, as `docs/agents.md` says.

#[test]
#[allow(clippy::disallowed_methods)] // It starts nothing but the program under test.
fn an_address_that_is_none_is_wrong_usage() {
    let program = env!("CARGO_BIN_EXE_boot-times");
    let done = std::process::Command::new(program).arg("no address").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!((done.status.code(), said.lines().count()), (Some(2), 1), "{said}");
}
