// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Real NFS servers, one beside the other.

use std::net::Ipv4Addr;

use rig::nfs::{self, Server};

#[test]
fn each_address_has_files_of_its_own() {
    if let Some(why) = nfs::why_not() {
        println!("skipped: {why}");
        return;
    }
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [1, 2].map(|n| {
        let address = Ipv4Addr::new(127, 91, u8::try_from(std::process::id() % 250).unwrap(), n);
        Server::start(address, dirs[usize::from(n) - 1].path(), "/exports/data").unwrap()
    });
    for (server, bytes) in servers.iter().zip([b"first ", b"second"]) {
        nfs::write(&server.path(), "file", bytes).unwrap();
    }
    for (server, dir, bytes) in
        [(&servers[0], &dirs[0], b"first "), (&servers[1], &dirs[1], b"second")]
    {
        assert_eq!(nfs::read(&server.path(), "file").unwrap(), bytes);
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), bytes);
    }
    assert!(nfs::read(&servers[0].path(), "none").is_err());
}
