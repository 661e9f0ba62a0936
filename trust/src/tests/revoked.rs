// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A key that is revoked while its connections are open.

use daemon::Shutdown;
use daemon::http::{Acceptor, Limits, Router, Server, with_ping};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

/// What is open is cut within this time.
const SECOND: Duration = Duration::from_secs(1);

/// The other one's certificate is revoked as far as this program knows.
fn revokes(holder: &Holder, by: &Authority, other: &Holder) {
    let about = other.live().unwrap().about.clone();
    let known = known(&[by], &[&about]);
    let held = Held { known, ..holder.live().unwrap().held.clone() };
    holder.hold(held).unwrap();
}

#[tokio::test] // M190
async fn a_connection_ends_at_either_end_when_the_other_end_s_certificate_is_revoked() {
    for is_server in [true, false] {
        let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
        let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
        let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
        let (ours, theirs) = duplex(1 << 16);
        let doors = Doors::new(&service);
        let (client, server) =
            tokio::join!(connect(&one, ours, Identity::Service), doors.open(theirs, FROM));
        let (mut client, mut server) = (client.unwrap(), server.unwrap());
        client.write_all(b"a").await.unwrap();
        client.flush().await.unwrap();
        server.stream.read_exact(&mut [0]).await.unwrap();
        // A list that names another one changes nothing.
        let other = holder(&clock, &authority, TWO, known(&[&authority], &[]));
        revokes(&service, &authority, &other);
        assert!(!(server.is_revoked)());
        server.stream.write_all(b"b").await.unwrap();
        server.stream.flush().await.unwrap();
        client.read_exact(&mut [0]).await.unwrap();
        let mut bytes = [0];
        let waiting = async {
            match is_server {
                true => server.stream.read_exact(&mut bytes).await,
                false => client.read_exact(&mut bytes).await,
            }
        };
        let revoking = async {
            tokio::task::yield_now().await;
            match is_server {
                true => revokes(&service, &authority, &one),
                false => revokes(&one, &authority, &service),
            }
        };
        let (waited, ()) = tokio::join!(timeout(SECOND, waiting), revoking);
        let error = waited.unwrap().unwrap_err();
        assert!(error.to_string().contains("revoked"), "{is_server}: {error}");
        assert_eq!((server.is_revoked)(), is_server);
    }
}

/// A port with routes, and how it ends.
async fn port(service: &Arc<Holder>) -> (u16, Shutdown) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, shutdown) = (listener.local_addr().unwrap().port(), Shutdown::new());
    let server = Server::new(Limits::default(), shutdown.clone()).under_any_name();
    let doors = Acceptor::Secure(listener, Arc::new(Doors::new(service)));
    tokio::spawn(server.serve(doors, with_ping(Router::new())));
    (port, shutdown)
}

#[tokio::test] // M190
async fn a_kept_connection_of_a_revoked_key_is_cut_within_a_second_and_carries_no_other_request() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
    let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
    let (port, shutdown) = port(&service).await;
    const ASKED: &[u8] = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..2 {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut stream = connect(&one, stream, Identity::Service).await.unwrap();
        stream.write_all(ASKED).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        kept.push(stream);
    }
    revokes(&service, &authority, &one);
    let _may_be_cut = kept[1].write_all(ASKED).await;
    for mut stream in kept {
        let mut rest = Vec::new();
        let ended = timeout(SECOND, stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection is still open");
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("HTTP/1.1 200"), "a request of a revoked key was answered: {text}");
    }
    shutdown.trigger();
}
