// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each port speaks TLS 1.3, and nothing older.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

/// The record of an alert, and the alert that says that no version is common.
const ALERT: u8 = 21;
const PROTOCOL_VERSION: u8 = 70;

fn ports(lab: &Lab) -> [SocketAddr; 3] {
    let control = lab.migration_agent_url();
    let control = control.trim_start_matches("https://").parse().unwrap();
    [control, lab.migration_data_address(), lab.centre().migrations.trust]
}

/// What a client of this version and of no later one says first.
fn hello(minor: u8) -> Vec<u8> {
    let block = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let groups = [&[0, 10][..], &block(&block(&[0, 29, 0, 23]))].concat();
    let signatures = [&[0, 13][..], &block(&block(&[4, 3, 8, 4, 4, 1, 2, 1]))].concat();
    let ciphers = [0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x09, 0xc0, 0x13, 0, 0x2f];
    let extensions = block(&[groups, signatures].concat());
    let body = [&[3, minor][..], &[7; 32], &[0], &block(&ciphers), &[1, 0], &extensions].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &block(&message)].concat()
}

#[tokio::test] // M40
async fn each_port_speaks_tls_1_3_and_nothing_older() {
    let lab = lab().await;
    for port in ports(&lab) {
        // TLS 1.0, 1.1, 1.2.
        for minor in 1..=3 {
            let mut stream = TcpStream::connect(port).await.unwrap();
            stream.write_all(&hello(minor)).await.unwrap();
            let mut answer = [0; 7];
            timeout(Duration::from_secs(20), stream.read_exact(&mut answer))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (answer[0], answer[6]),
                (ALERT, PROTOCOL_VERSION),
                "{port}: 1.{}",
                minor - 1
            );
        }
    }
    lab.stop().await;
}

#[tokio::test]
#[ignore = "testssl: .ci/run does it where that is installed"]
async fn what_testssl_says_of_the_protocols_of_each_port() {
    let lab = lab().await;
    for port in ports(&lab) {
        let line = format!("testssl --color 0 --quiet --warnings off --protocols {port}");
        let done = process::run(Path::new("/bin/sh"), &["-c", &line], LATE).await.unwrap();
        let of = |name: &str| {
            let said = done.stdout.lines().find_map(|it| it.trim().strip_prefix(name));
            said.unwrap_or_else(|| panic!("{name}: {}{}", done.stdout, done.stderr))
                .trim()
                .to_owned()
        };
        for older in ["SSLv2", "SSLv3", "TLS 1 ", "TLS 1.1", "TLS 1.2"] {
            assert!(of(older).starts_with("not offered"), "{port}: {older} {}", of(older));
        }
        assert!(of("TLS 1.3").starts_with("offered"), "{port}: {}", done.stdout);
    }
    lab.stop().await;
}
