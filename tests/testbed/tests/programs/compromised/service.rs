// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node asks of migration-service, at its port for agents.

use http::Method;
use sdc_clients::http::Call;
use serde_json::json;
use testbed::moving::subject::VM;
use tokio::time::Instant;
use trust::exchange::{Asks, Join, State};

use super::super::common::{centre::Centre, cut};
use super::node::Compromised;
use super::rows::{NOT_ALLOWED, Rows, told};

const NO_ROUTE: &str = "404 ResourceNotFound";

pub async fn asked(centre: &Centre, node: &Compromised, rows: &mut Rows) {
    let live = node.holder.live().unwrap();
    let (own, knows) = (live.about.key.clone(), live.held.knows());
    let service = node.service();
    let post = |path: &[&str], body: &serde_json::Value| Call::new(Method::POST, path).json(body);
    let (cn, other) = (node.cn.to_string(), node.other.to_string());

    let another = trust::new_key().unwrap();
    let asks =
        |key: &str, request| json!(Asks { key: key.to_owned(), knows: knows.clone(), request });
    let of_other = trust::key_of(&another.request().unwrap()).unwrap();
    let join = json!(Join {
        secret: "0".repeat(48),
        cn: Some(node.other),
        request: another.request().unwrap(),
    });
    let agents = |cn: &str| Call::get(&["agents", cn, "replaced"]);
    for (name, want, call) in [
        ("another node's copies", NOT_ALLOWED, agents(&other)),
        ("another key", "403 NoSuchKey", post(&["trust", "state"], &asks(&of_other, None))),
        (
            "a certificate for another key",
            "403 InvalidRequest",
            post(&["trust", "state"], &asks(&own, Some(another.request().unwrap()))),
        ),
        ("a token that was never made", "403 InvalidToken", post(&["trust", "join"], &join)),
        (
            "make a token",
            NOT_ALLOWED,
            post(&["trust", "tokens"], &json!({"for": "any_cn", "seconds": 9})),
        ),
        (
            "approve a key",
            NOT_ALLOWED,
            post(&["trust", "approve"], &json!({"who": cn, "key": own})),
        ),
        ("revoke another node", NOT_ALLOWED, post(&["trust", "revoke"], &json!({"who": other}))),
        ("rotate", NOT_ALLOWED, post(&["trust", "rotate"], &json!({"without": true}))),
        ("read the authorities", NOT_ALLOWED, Call::get(&["trust", "export"])),
        ("require it", NOT_ALLOWED, post(&["trust", "require"], &json!({"off": true}))),
        ("adopt a migration", NOT_ALLOWED, post(&["migrations", VM, "adopt"], &json!({}))),
        ("give a command", NO_ROUTE, post(&["vms", VM], &json!({"action": "migrate"}))),
        ("read the records", NO_ROUTE, Call::get(&["migrations"])),
    ] {
        rows.row(name, want, &told(&service.execute(call).await));
    }

    // However often it asks, what is kept of it does not grow.
    let mut serials = Vec::new();
    for _ in 0..3 {
        let call = post(&["trust", "state"], &asks(&own, Some(live.held.request().unwrap())));
        let state: State = service.execute(call).await.unwrap().json("a state").unwrap();
        serials.push(trust::About::of(&state.certificate.unwrap()).unwrap().serial);
    }
    serials.dedup();
    rows.row("renew again and again", "1 certificate", &format!("{} certificate", serials.len()));

    // A later revision of somebody else's migration was never heard there.
    let open = format!("{}.{}", node.foreign, u64::MAX / 2);
    let claim = service.execute(agents(&cn).query("open", open)).await.unwrap();
    let claim: serde_json::Value = claim.json("which are known").unwrap();
    rows.row("which others there are", "[]", &claim["known"].to_string());
    rows.row("a later revision of another migration, asked", "followed", followed(centre).await);
}

/// The node is revoked: what it has claimed of VMs of others is shown no more.
pub async fn revoked(centre: &Centre, node: &Compromised, rows: &mut Rows) {
    let claims = format!("the copy on {} is said", node.cn);
    let shown = async || centre.typed("migration-service status").await.stdout.contains(&claims);
    assert!(shown().await);
    let kept = node.kept().await;
    let begun = Instant::now();
    centre.good("sdc-migrate trust list").await;
    let machine = begun.elapsed();
    centre.good(&format!("sdc-migrate trust revoke {}", node.cn)).await;
    for (name, is_cut) in cut(kept, machine).await {
        rows.row(name, "cut", if is_cut { "cut" } else { "open" });
    }
    for (name, is_refused) in node.refused().await {
        rows.row(name, "refused", if is_refused { "refused" } else { "open" });
    }
    rows.row("what a revoked node claims", "gone", if shown().await { "shown" } else { "gone" });
}

/// Whether the migration that the node has nothing to do with still takes commands.
pub async fn followed(centre: &Centre) -> &'static str {
    let done = centre.typed(&format!("sdc-migrate schedule {VM} '3 days'")).await;
    if done.code == Some(0) { "followed" } else { "stopped" }
}
