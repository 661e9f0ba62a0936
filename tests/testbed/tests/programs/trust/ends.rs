// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A certificate that expires: running streams end, and new connections are refused with the date.

use migration_service::enrol::Authorities;
use sdc_clients::identity::Identity;
use testbed::moving::subject::VM;
use trust::Held;
use trust::exchange::Known;

use super::moving::{Pair, slow_stream};
use super::*;

const DAY: i64 = 86_400;

/// What the node's agent holds with a certificate that ends so soon, in seconds, for a key that the store does not know
/// and so does not renew.
fn ending(pair: &Pair, seconds: i64) -> Held {
    let file: Authorities = trust::read_private(&pair.lab.authority_file()).unwrap().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let (authority, now) = (&file.all[0], i64::try_from(now).unwrap());
    let known = Known {
        roots: vec![authority.certificate.clone()],
        revoked: vec![authority.list(&[], now).unwrap()],
    };
    let cn = pair.other.node().cn_uuid().parse().unwrap();
    authority.equip(Identity::Agent(cn), known, now - 90 * DAY + seconds).unwrap()
}

#[tokio::test] // M40, M44
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_stream_ends_with_its_certificate_and_a_new_one_is_refused_with_the_date() {
    let pair = Pair::start().await;
    let cn = pair.other.node().cn_uuid().to_owned();
    let dir = pair.lab.dir().join("cn2/migration-agent/trust");
    let held = ending(&pair, 30);
    let about = held.about().unwrap();
    held.write(&dir.join("identity.json")).unwrap();
    until("the agent uses it", async || certificate(&pair.other).await["key"] == about.key).await;
    slow_stream(&pair).await;
    let ended = format!("certificate has expired on {}", trust::date(about.until));
    let log = || std::fs::read_to_string(pair.lab.dir().join("cn/migration-agent.log")).unwrap();
    until("the stream ends", async || {
        log().contains("a certificate of this connection has expired")
    })
    .await;
    let told = || std::fs::read_to_string(pair.lab.dir().join("cn/migration-service.log")).unwrap();
    until("the service refuses it with the date", async || told().contains(&ended)).await;
    let needs = certificate(&pair.other).await["needs"].clone();
    assert!(needs.as_str().is_some_and(|it| it.contains(&ended)), "{needs}");

    // With a new token and a person's word the node is in again, and the migration goes on.
    let join = dir.join("join-token");
    let token = format!("umask 077; sdc-migrate trust token {cn} > {}", join.display());
    good(&pair.lab, &token).await;
    until("it waits", async || {
        let approve = format!("sdc-migrate trust approve {cn} --key {}", about.key);
        typed(&pair.lab, &approve).await.code == Some(0)
    })
    .await;
    until("it is in", async || certificate(&pair.other).await["needs"].is_null()).await;
    good(&pair.lab, "sdc-migrate set zfs_send_mbps_limit 10000").await;
    until("the stream arrives", async || match &*pair.sync().await {
        "successful" => true,
        // The attempts were over before somebody came.
        "failed" => typed(&pair.lab, &format!("sdc-migrate sync {VM}")).await.code == Some(0),
        _ => false,
    })
    .await;
    pair.stop().await;
}
