// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! TLS to the servers. The certificates are of this test alone and end in a hundred years.

use std::path::PathBuf;

use sdc_clients::Jitter;
use sdc_clients::fleet::{Access, Fleet, Shape, make};

use super::{access, made, servers};

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
