// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What becomes of trust when the service's store is lost or older, and when a key is used on two machines.

use std::sync::Arc;

use http::Method;
use sdc_clients::identity::Identity;
use serde_json::json;
use trust::exchange::{Asks, State};
use trust::{About, Admits, Held, Holder};

use super::*;

fn store(lab: &Lab) -> PathBuf {
    lab.dir().join("cn/migration-service/store.redb")
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap();
}

async fn is_in(lab: &Lab) {
    until("the agent is in, and nothing is refused", async || {
        let now = certificate(lab).await;
        now["until"].is_string() && now["needs"].is_null()
    })
    .await;
}

async fn is_refused(lab: &Lab, with: &str) {
    until(with, async || {
        certificate(lab).await["needs"].as_str().is_some_and(|it| it.contains(with))
    })
    .await;
}

async fn without_service(lab: &mut Lab, act: impl FnOnce(&Path)) {
    lab.end("migration-service", false).await.unwrap();
    act(&store(lab));
    lab.start_migration_service().await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_lost_asks_for_each_agent_and_the_authority_stays() {
    let mut lab = lab().await;
    is_in(&lab).await;
    let (cn, before) = (lab.node().cn_uuid().to_owned(), certificate(&lab).await);
    without_service(&mut lab, |store| std::fs::remove_file(store).unwrap()).await;
    is_refused(&lab, "trust approve").await;
    let key = before["key"].as_str().unwrap();
    let refused = typed(&lab, &format!("sdc-migrate trust approve {cn}")).await;
    assert!(refused.code == Some(1) && refused.stderr.contains(key), "{}", refused.stderr);
    good(&lab, &format!("sdc-migrate trust approve {cn} --key {key}")).await;
    is_in(&lab).await;
    assert_eq!(certificate(&lab).await["authority"], before["authority"]);
    lab.stop().await;
}

#[tokio::test]
async fn a_store_that_was_restored_does_not_know_what_was_revoked_since() {
    let mut lab = lab().await;
    is_in(&lab).await;
    let (cn, kept) = (lab.node().cn_uuid().to_owned(), lab.dir().join("kept.redb"));
    without_service(&mut lab, |store| copy(store, &kept)).await;
    good(&lab, &format!("sdc-migrate trust revoke {cn}")).await;
    is_refused(&lab, "evoked").await;
    without_service(&mut lab, |store| copy(&kept, store)).await;
    is_in(&lab).await;
    good(&lab, &format!("sdc-migrate trust revoke {cn}")).await;
    is_refused(&lab, "evoked").await;
    lab.stop().await;
}

#[tokio::test]
async fn a_key_on_two_machines_is_one_nodes_and_is_revoked_on_both() {
    let lab = lab().await;
    is_in(&lab).await;
    let cn = lab.node().cn_uuid().to_owned();
    let clone = Holder::new(Admits::Known);
    let held = Held::read(&trust_dir(&lab).join("identity.json")).unwrap().unwrap();
    clone.hold(held.clone()).unwrap();
    let url = format!("https://{}", lab.centre().migrations.trust);
    let http = Http::with_transport(&url, "clone", Arc::new(trust::Client::new(&clone))).unwrap();
    let http = http.without_retries().to_peer(Identity::Service);
    let key = clone.live().unwrap().about.key.clone();
    let asks = json!(Asks { key, knows: held.knows(), request: Some(held.request().unwrap()) });
    let ask = async || http.execute(Call::new(Method::POST, &["trust", "state"]).json(&asks)).await;
    // Both have the same certificate, and the store one key.
    let state: State = ask().await.unwrap().json("a state").unwrap();
    let about = About::of(&state.certificate.unwrap()).unwrap();
    assert_eq!(about.identity, Identity::Agent(cn.parse().unwrap()));
    assert_eq!(about.serial, clone.live().unwrap().about.serial);
    let listed: Value =
        serde_json::from_str(&good(&lab, "sdc-migrate trust list -j").await).unwrap();
    assert_eq!(listed["members"].as_array().map(Vec::len), Some(1), "{listed}");
    good(&lab, &format!("sdc-migrate trust revoke {cn}")).await;
    is_refused(&lab, "evoked").await;
    assert!(ask().await.is_err(), "the clone is in");
    lab.stop().await;
}
