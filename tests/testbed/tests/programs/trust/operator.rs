// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! An operator with a certificate of his own, and the end of the days in which agents are replaced.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;

/// What an agent of the version before TLS answers to a handshake.
const OLD: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";

#[tokio::test] // M152
async fn an_operator_asks_with_a_certificate_of_his_own_until_it_is_revoked() {
    let lab = lab().await;
    let (cn, dir) = (lab.node().cn_uuid().to_owned(), lab.dir().join("operator"));
    let url = format!("https://{}", lab.centre().migrations.trust);
    let his = format!("--trust-url {url} --trust-dir {}", dir.display());
    // Without a certificate nobody gets in.
    let none = typed(&lab, &format!("sdc-migrate trust {his} list")).await;
    assert!(none.stderr.contains("neither a certificate nor a join token"), "{none:?}");

    let join = format!("sdc-migrate trust token operator | sdc-migrate trust {his} join");
    let waits = typed(&lab, &join).await;
    assert!(waits.stderr.contains("an operator's approval"), "{waits:?}");
    let key = waits.stderr.split("key ").nth(1).unwrap().split_whitespace().next().unwrap();
    good(&lab, &format!("sdc-migrate trust approve operator --key {key}")).await;
    let listed = good(&lab, &format!("sdc-migrate trust {his} list")).await;
    assert!(listed.contains("operator.sdc.internal enrolled"), "{listed}");
    assert!(!dir.join("join-token").exists(), "the token was used");
    good(&lab, &format!("sdc-migrate trust {his} token {cn}")).await;
    // There is nothing to adopt, says the service: it was asked.
    let vm = testbed::moving::subject::VM;
    let adopt = typed(&lab, &format!("sdc-migrate adopt {his} {vm}")).await;
    assert!(adopt.code == Some(1) && !adopt.stderr.contains("certificate"), "{adopt:?}");
    // In front of VMAPI, where nobody proves anything, nobody adopts.
    let front = Http::new(&format!("http://{}", lab.centre().migrations.listen), OWN_AGENT);
    let call = Call::new(http::Method::POST, &["migrations", vm, "adopt"]);
    let refused = front.unwrap().without_retries().execute(call).await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (Some(403), Some("NotAuthorized")));

    good(&lab, &format!("sdc-migrate trust revoke operator --key {key}")).await;
    let out = typed(&lab, &format!("sdc-migrate trust {his} list")).await;
    assert!(out.code == Some(1) && out.stderr.contains("evoked"), "{out:?}");
    lab.stop().await;
}

#[tokio::test] // M153
async fn trust_is_required_when_every_agent_that_answers_proves_who_it_is() {
    let mut lab = lab().await;
    let cn = lab.node().cn_uuid().to_owned();
    until("the agent is in", async || certificate(&lab).await["until"].is_string()).await;
    let at = lab.migration_agent_url().trim_start_matches("https://").to_owned();
    lab.end("migration-agent", false).await.unwrap();
    rig::port::refuses(at.parse().unwrap()).await.unwrap();
    let old = TcpListener::bind(&at).await.unwrap();
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = old.accept().await {
            let _ = stream.write_all(OLD).await;
            let _ = stream.shutdown().await;
        }
    });
    let early = typed(&lab, "sdc-migrate trust require").await;
    assert!(early.code == Some(1) && early.stderr.contains(&cn), "{early:?}");
    answering.abort();
    let _ended = answering.await;
    lab.start_migration_agent().await.unwrap();
    let listed = good(&lab, "sdc-migrate trust require").await;
    assert!(listed.contains("required of every node since"), "{listed}");
    let any = typed(&lab, "sdc-migrate trust token any").await;
    assert!(any.code == Some(1) && any.stderr.contains("trust token CN"), "{any:?}");
    good(&lab, &format!("sdc-migrate trust token {cn}")).await;
    good(&lab, "sdc-migrate trust require --off").await;
    good(&lab, "sdc-migrate trust token any").await;
    lab.stop().await;
}
