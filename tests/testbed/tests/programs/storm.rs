// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A short storm; `testbed storm` is the long one.

use testbed::churn::storm::{Options, storm};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_storm_leaves_everybody_agreed() {
    let options = Options { seed: Some(7), mutations: 300, vms: 20, listeners: 12, pairs: 0 };
    let passed = storm(&options).await.unwrap_or_else(|e| panic!("{e:#}"));
    // A busy machine folds more changes into one event; each VM had some.
    assert!(passed.mutations >= 300 && passed.events >= 20, "{passed:?}");
    assert!(passed.counts.resumes > 0 && passed.reads > 0, "{passed:?}");
}
