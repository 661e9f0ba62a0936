// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! TLS to the servers. The certificates are of this test alone and end in a hundred years.

use std::path::PathBuf;
use std::process::Stdio;

use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, FleetError, FleetEvent, Follower, Shape, VMS, Wire, make};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{LONG, access, made, servers, until};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/real/tls").join(name)
}

/// Whether anything that is asked is answered.
async fn is_answered(access: &Access) -> bool {
    match Fleet::connect(access, "test", Jitter::from_seed(1)).await {
        Ok(fleet) => {
            make(fleet.jetstream(), &Shape { replicas: 1, ..Shape::default() }).await.is_ok()
        }
        Err(_) => false,
    }
}

/// What `sdc-fleet` says where it uses these servers in this way.
async fn said(nats: Value) -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    std::fs::write(&config, json!({"nats": nats}).to_string()).unwrap();
    #[allow(clippy::disallowed_methods)] // The program itself.
    let mut typed = Command::new(env!("CARGO_BIN_EXE_sdc-fleet"));
    typed.args(["nodes", "--config"]).arg(&config).stdin(Stdio::null());
    let done = typed.output().await.unwrap();
    assert!(!done.status.success());
    String::from_utf8(done.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_is_named_with_its_server_and_the_reason() {
    // N34
    for (cert, ca, why) in [
        ("server.pem", None, "no authority of this system issued it"),
        ("server.pem", Some("expired.pem"), "expired.pem issued it"),
        ("elsewhere.pem", Some("ca.pem"), "it is for another name (DnsName(\"nats0.example\"))"),
        ("expired.pem", Some("ca.pem"), "it has expired"),
    ] {
        let (cert, key) = (file(cert), file("server.key"));
        let tls = format!("tls {{ cert_file: {cert:?}, key_file: {key:?} }}");
        let Some(nats) = servers(1, Some(&tls)) else { return };
        let ca = ca.map(file);
        let said = said(json!({"servers": nats.servers(), "tls": true, "ca": ca})).await;
        let whose = format!("the certificate of {} is not trusted", nats.address(0));
        assert!(said.contains(&whose) && said.contains(why), "{said}");
    }
    let Some(plain) = servers(1, None) else { return };
    let said = said(json!({"servers": plain.servers(), "tls": true})).await;
    let whose = format!("cannot connect to {}: it does not speak TLS", plain.address(0));
    assert!(said.contains(&whose), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_publishes_and_who_follows_is_told_of_a_certificate_too() {
    // N34
    let (cert, key) = (file("expired.pem"), file("server.key"));
    let tls = format!("tls {{ cert_file: {cert:?}, key_file: {key:?} }}");
    let Some(nats) = servers(1, Some(&tls)) else { return };
    let access = Access { tls: true, ca: Some(file("ca.pem")), ..access(&nats) };
    let is_named = |error: &FleetError| matches!(error, FleetError::Untrusted { .. });
    let wire = Wire::new(access.connect("agent", Jitter::from_seed(1)).await.unwrap(), &access);
    until("fleet-agent", async || {
        wire.last(VMS, "vms.>").await.is_err_and(|error| is_named(&error))
    })
    .await;
    let fleet = Fleet::connect(&access, "console", Jitter::from_seed(2)).await.unwrap();
    let mut follower = Follower::new(&fleet, "vms.*.*", Jitter::from_seed(3));
    let lost = async {
        while !matches!(follower.next().await, FleetEvent::Lost(error) if is_named(&error)) {}
    };
    tokio::time::timeout(LONG, lost).await.expect("console");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_no_authority_of_ours_knows_gets_no_word() {
    // N17
    let (cert, key) = (file("server.pem"), file("server.key"));
    let tls = format!("tls {{ cert_file: {cert:?}, key_file: {key:?} }}");
    let (Some(secret), Some(plain)) = (servers(1, Some(&tls)), servers(1, None)) else { return };
    let ours = |nats| Access { tls: true, ca: Some(file("ca.pem")), ..access(nats) };
    made(&ours(&secret), 1).await;
    let foreign = Access { ca: None, ..ours(&secret) };
    let open = ours(&plain);
    assert_eq!(tokio::join!(is_answered(&foreign), is_answered(&open)), (false, false));
}
