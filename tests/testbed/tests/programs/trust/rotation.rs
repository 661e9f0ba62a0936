// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Another authority while a migration streams.

use testbed::moving::subject::VM;

use super::moving::{Pair, slow_stream};
use super::*;

#[tokio::test] // M44
async fn a_rotation_runs_while_a_migration_streams_and_nothing_stops() {
    let pair = Pair::start().await;
    let lab = &pair.lab;
    slow_stream(&pair).await;
    let old = certificate(lab).await["authority"].clone();
    good(lab, "sdc-migrate trust rotate").await;
    until("both agents have certificates of the new authority", async || {
        // A look at the list is also a look at who knows the new one.
        good(lab, "sdc-migrate trust list").await;
        let [one, two] = [certificate(lab).await, certificate(&pair.other).await];
        let is_new = |it: &Value| it["authority"].is_string() && it["authority"] != old;
        is_new(&one) && is_new(&two)
    })
    .await;
    good(lab, "sdc-migrate trust rotate").await;
    assert_eq!(pair.sync().await, "running", "the stream has run through all of it");
    good(lab, "sdc-migrate set zfs_send_mbps_limit 10000").await;
    until("the stream has arrived", async || pair.sync().await == "successful").await;
    let log = std::fs::read_to_string(lab.dir().join("cn/migration-agent.log")).unwrap();
    assert!(!log.contains("an order failed"), "{log}");
    good(lab, &format!("sdc-migrate verify {VM}")).await;
    pair.stop().await;
}
