// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The limit of open files, in a process of its own: it is the whole process's.

#![allow(clippy::unwrap_used)] // a test may stop at once

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn the_soft_limit_is_raised_as_needed() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let most = maximum.unwrap_or(u64::MAX);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum }).unwrap();
    let some = daemon::descriptors::raise(100);
    assert!(some == most.min(1124), "{some} of {most}");
    assert_eq!(daemon::descriptors::raise(1), some, "never lowered");
    // A hard limit that is not enough is gone up to, and no error.
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: Some(1000) }).unwrap();
    assert_eq!(daemon::descriptors::raise(16_384), 1000);
}
