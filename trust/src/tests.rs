// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Handshakes between programs of one process, with clocks that are moved.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use uuid::Uuid;

use crate::exchange::Known;
use crate::*;

mod replays; // an attacker who records connections, and plays them again
mod revoked; // a key that is revoked while its connections are open

const DAY: i64 = 86_400;
const NOW: i64 = 1_800_000_000;
const ONE: Identity = Identity::Agent(Uuid::from_u128(1));
const TWO: Identity = Identity::Agent(Uuid::from_u128(2));
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A clock that all programs of a test look at.
#[derive(Debug)]
struct Clock(AtomicI64);

impl Clock {
    fn at(now: i64) -> Arc<Clock> {
        Arc::new(Clock(AtomicI64::new(now)))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = u64::try_from(self.0.load(Ordering::SeqCst)).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now)))
    }
}

/// The serial numbers that an authority has revoked.
fn known(of: &[&Authority], revoked: &[&About]) -> Known {
    let lists = of.iter().map(|authority| {
        let name = authority.name().unwrap();
        let own = revoked.iter().filter(|it| it.issuer == name);
        let own: Vec<Revoked> =
            own.map(|it| Revoked { serial: it.serial.clone(), at: NOW }).collect();
        authority.list(&own, NOW).unwrap()
    });
    let roots = of.iter().map(|it| it.certificate.clone()).collect();
    Known { roots, revoked: lists.collect() }
}

/// A program that this authority has let in at `NOW`, and that knows this.
fn holder(clock: &Arc<Clock>, by: &Authority, name: Identity, known: Known) -> Arc<Holder> {
    let holder = Holder::with_clock(Admits::Known, clock.clone());
    holder.hold(by.equip(name, known, NOW).unwrap()).unwrap();
    holder
}

/// Says `ping` and waits for `pong` over this connection; returns who the server has found.
async fn spoken(
    (client, server): (&Holder, &Arc<Holder>),
    to: Identity,
) -> (std::io::Result<()>, std::io::Result<Option<Identity>>) {
    let (ours, theirs) = duplex(1 << 16);
    let doors = Doors::new(server);
    let asking = async {
        let mut stream = connect(client, ours, to).await?;
        stream.write_all(b"ping").await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"pong");
        Ok(())
    };
    let answering = async {
        let secured = doors.open(theirs, FROM).await?;
        let mut stream = secured.stream;
        stream.read_exact(&mut [0; 4]).await?;
        stream.write_all(b"pong").await?;
        stream.shutdown().await?;
        Ok(secured.peer)
    };
    tokio::join!(asking, answering)
}

#[tokio::test]
async fn both_ends_know_each_other() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
    let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
    let (asked, answered) = spoken((&one, &service), Identity::Service).await;
    asked.unwrap();
    assert_eq!(answered.unwrap(), Some(ONE));
}

#[tokio::test]
async fn a_peer_that_is_expired_revoked_foreign_or_another_is_refused_by_the_other_end() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let foreign = Authority::new(NOW).unwrap();
    let all = || known(&[&authority], &[]);
    let service = holder(&clock, &authority, Identity::Service, all());
    let one = holder(&clock, &authority, ONE, all());
    let about = one.live().unwrap().about.clone();
    let wary = holder(&clock, &authority, Identity::Service, known(&[&authority], &[&about]));
    let stranger = holder(&clock, &foreign, ONE, all());
    let stranger_service = holder(&clock, &foreign, Identity::Service, known(&[&foreign], &[]));

    // As clients.
    for (client, server, what) in
        [(&one, &wary, "revoked"), (&stranger, &service, "of a foreign authority")]
    {
        let (asked, answered) = spoken((client, server), Identity::Service).await;
        assert!(asked.is_err() && answered.is_err(), "{what}");
    }
    // As servers: one that is not who was asked for, one that is revoked, one of a foreign authority.
    for (client, server, to, what) in [
        (&one, &service, TWO, "another role"),
        (&service, &one, TWO, "another node"),
        (&service, &one, Identity::Service, "no service"),
        (&wary, &one, ONE, "revoked"),
        (&one, &stranger_service, Identity::Service, "of a foreign authority"),
    ] {
        let (asked, answered) = spoken((client, server), to).await;
        assert!(asked.is_err() && answered.is_err(), "{what}");
    }
    // A program without a certificate, at either end.
    let none = Holder::with_clock(Admits::Known, clock.clone());
    assert!(spoken((&none, &service), Identity::Service).await.0.is_err());
    assert!(spoken((&one, &none), Identity::Service).await.1.is_err());
    // Later than any certificate lives.
    clock.0.store(NOW + 91 * DAY, Ordering::SeqCst);
    let fresh = Holder::with_clock(Admits::Known, clock.clone());
    let held = authority.equip(Identity::Service, all(), NOW + 91 * DAY).unwrap();
    fresh.hold(held).unwrap();
    // Both ends say so in words: the one that refuses with the date, and the one that is refused.
    let ended = format!("its certificate has expired on {}", date(NOW + 90 * DAY));
    let (asked, answered) = spoken((&one, &fresh), Identity::Service).await;
    assert_eq!(answered.unwrap_err().to_string(), ended, "an expired client");
    let told = why(&asked.unwrap_err());
    assert_eq!(
        told,
        "the other end refuses this program's certificate: it has expired, or is not valid yet"
    );
    let (asked, answered) = spoken((&fresh, &one), ONE).await;
    assert_eq!(asked.unwrap_err().to_string(), ended, "an expired server");
    assert!(answered.unwrap_err().to_string().ends_with("not valid yet"));
}

#[tokio::test]
async fn a_clock_that_is_behind_by_hours_accepts_a_new_certificate() {
    let (clock, authority) = (Clock::at(NOW - DAY / 2), Authority::new(NOW).unwrap());
    let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
    let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
    spoken((&one, &service), Identity::Service).await.0.unwrap();
    clock.0.store(NOW - 2 * DAY, Ordering::SeqCst);
    assert!(spoken((&one, &service), Identity::Service).await.0.is_err());
}

#[tokio::test]
async fn while_two_authorities_are_valid_certificates_of_both_are() {
    let (clock, old) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let new = Authority::new(NOW).unwrap();
    let both = || known(&[&old, &new], &[]);
    let one = holder(&clock, &old, ONE, both());
    let service = holder(&clock, &new, Identity::Service, both());
    spoken((&one, &service), Identity::Service).await.0.unwrap();
    spoken((&service, &one), ONE).await.0.unwrap();
    // One that has not heard of the new one yet refuses it.
    let late = holder(&clock, &old, TWO, known(&[&old], &[]));
    assert!(spoken((&late, &service), Identity::Service).await.0.is_err());
    assert_ne!(old.name().unwrap(), new.name().unwrap());
}

#[tokio::test]
async fn a_program_that_holds_another_certificate_from_now_on_needs_no_restart() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
    let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
    spoken((&one, &service), Identity::Service).await.0.unwrap();
    let about = one.live().unwrap().about.clone();
    let held = authority.equip(Identity::Service, known(&[&authority], &[&about]), NOW);
    service.hold(held.unwrap()).unwrap();
    assert!(spoken((&one, &service), Identity::Service).await.0.is_err());
    // What is of no use changes nothing.
    let before = service.live().unwrap().about.serial.clone();
    let mut broken = new_key().unwrap();
    broken.certificate = service.live().unwrap().held.certificate.clone();
    broken.known = known(&[&authority], &[]);
    assert!(service.hold(broken).is_err(), "the key is another one's");
    assert_eq!(service.live().unwrap().about.serial, before);
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_the_first_certificate_of_its_ends() {
    let (clock, authority) = (Clock::at(NOW + 89 * DAY), Authority::new(NOW).unwrap());
    let one = holder(&clock, &authority, ONE, known(&[&authority], &[]));
    let service = holder(&clock, &authority, Identity::Service, known(&[&authority], &[]));
    let (ours, theirs) = duplex(1 << 16);
    let doors = Doors::new(&service);
    let (client, server) =
        tokio::join!(connect(&one, ours, Identity::Service), doors.open(theirs, FROM));
    let (mut client, mut server) = (client.unwrap(), server.unwrap().stream);
    client.write_all(b"a").await.unwrap();
    client.flush().await.unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    let error = server.read_exact(&mut [0]).await.unwrap_err();
    assert!(error.to_string().contains("has expired"), "{error}");
    assert!(client.write_all(b"b").await.is_err());
}

#[tokio::test]
async fn a_program_with_only_a_token_knows_the_service_by_its_authority() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let service = Holder::with_clock(Admits::New, clock.clone());
    let held = authority.equip(Identity::Service, known(&[&authority], &[]), NOW).unwrap();
    service.hold(held).unwrap();
    let agent = Holder::with_clock(Admits::New, clock.clone());
    agent.hold(authority.equip(ONE, known(&[&authority], &[]), NOW).unwrap()).unwrap();
    let right = authority.fingerprint().unwrap();
    let other = Authority::new(NOW).unwrap().fingerprint().unwrap();
    for (print, server, is_good) in
        [(&right, &service, true), (&other, &service, false), (&right, &agent, false)]
    {
        let (ours, theirs) = duplex(1 << 16);
        let config = holder::knowing_only(print, clock.clone()).unwrap();
        let doors = Doors::new(server);
        let (client, server) =
            tokio::join!(doors::shake(config, ours, Identity::Service), doors.open(theirs, FROM));
        assert_eq!(client.is_ok(), is_good, "{print}");
        if is_good {
            assert_eq!(server.unwrap().peer, None);
        }
    }
}

#[test]
fn a_request_is_of_its_own_key_and_its_text_counts_for_nothing() {
    let authority = Authority::new(NOW).unwrap();
    let (one, two) = (new_key().unwrap(), new_key().unwrap());
    let request = one.request().unwrap();
    let about = About::of(&authority.issue(ONE, &request, NOW).unwrap()).unwrap();
    assert_eq!((about.identity, about.until), (ONE, NOW + 90 * DAY));
    assert_eq!(about.key, key_of(&request).unwrap());
    assert_ne!(about.key, key_of(&two.request().unwrap()).unwrap());
    assert_eq!(about.issuer, authority.name().unwrap());
    assert!((about.renews() - NOW - 60 * DAY).abs() < 2 * DAY, "two thirds");
    for bad in
        ["", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
    {
        assert!(key_of(bad).is_err() && authority.issue(ONE, bad, NOW).is_err());
    }
    // A request that was changed is not signed with its key any more.
    let at = request.len() / 2;
    let changed: String = request
        .char_indices()
        .map(|(n, char)| if n == at { if char == 'A' { 'B' } else { 'A' } } else { char })
        .collect();
    assert!(authority.issue(ONE, &changed, NOW).is_err());
    assert!(About::of(&authority.certificate).is_err(), "an authority is no program");
}

#[test]
fn keys_are_their_owners_and_never_shown() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trust/identity.json");
    assert_eq!(Held::read(&path).unwrap(), None);
    let authority = Authority::new(NOW).unwrap();
    let held = authority.equip(ONE, known(&[&authority], &[]), NOW).unwrap();
    held.write(&path).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!((mode(&path) & 0o777, mode(path.parent().unwrap()) & 0o777), (0o600, 0o700));
    assert_eq!(Held::read(&path).unwrap(), Some(held.clone()));
    assert_eq!(format!("{held:?} {authority:?}"), "Held Authority");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Held::read(&path).unwrap_err().to_string().contains("640"));
}

#[test]
fn a_token_is_read_as_it_is_printed() {
    let print = Authority::new(NOW).unwrap().fingerprint().unwrap();
    let token = Token::new(&print).unwrap();
    let text = token.text();
    assert_eq!(format!(" {text}\n").parse(), Ok(token.clone()));
    assert!(!format!("{token:?}").contains(&token.secret));
    for bad in ["", "sdc-join-1", &text[1..], &text[..text.len() - 1], &format!("{text}.x")] {
        assert_eq!(bad.parse::<Token>(), Err(NoToken), "{bad}");
    }
}

/// Sends `/ping` to this port as the agent of node 1; returns whether it succeeded, and whether a peer answered.
async fn is_there(client: &Arc<Holder>, port: u16, to: Identity) -> (bool, bool) {
    let transport = Arc::new(Client::new(client));
    let url = format!("https://127.0.0.1:{port}");
    let http = sdc_clients::Http::with_transport(&url, "test", transport).unwrap();
    let call = sdc_clients::http::Call::get(&["ping"]);
    match http.without_retries().to_peer(to).execute(call).await {
        Ok(_) => (true, true),
        Err(error) => (error.status().is_some(), has_answered(&error)),
    }
}

#[tokio::test] // M102
async fn a_peer_that_answers_a_handshake_is_there_whatever_the_certificate_says() {
    let (clock, authority) = (Clock::at(NOW), Authority::new(NOW).unwrap());
    let all = || known(&[&authority], &[]);
    let service = holder(&clock, &authority, Identity::Service, all());
    let agent = holder(&clock, &authority, ONE, all());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let shutdown = daemon::Shutdown::new();
    let server = daemon::http::Server::new(daemon::http::Limits::default(), shutdown.clone());
    let doors = daemon::http::Acceptor::Secure(listener, Arc::new(Doors::new(&agent)));
    let routes = daemon::http::with_ping(daemon::http::Router::new());
    let serving = tokio::spawn(server.under_any_name().serve(doors, routes));

    assert_eq!(is_there(&service, port, ONE).await, (true, true));
    // Another node's certificate, one that this end does not accept any more, one that the other end does not.
    assert_eq!(is_there(&service, port, TWO).await, (false, true));
    let about = agent.live().unwrap().about.clone();
    let wary = holder(&clock, &authority, Identity::Service, known(&[&authority], &[&about]));
    assert_eq!(is_there(&wary, port, ONE).await, (false, true));
    let foreign = Authority::new(NOW).unwrap();
    let stranger = holder(&clock, &foreign, Identity::Service, all());
    assert_eq!(is_there(&stranger, port, ONE).await, (false, true));
    // No listener, and a listener that speaks something else.
    shutdown.trigger();
    serving.await.unwrap();
    assert_eq!(is_there(&service, port, ONE).await, (false, false));
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let noise = tokio::spawn(async move {
        let (mut stream, _) = other.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1000]).await;
    });
    assert_eq!(is_there(&service, port, ONE).await, (false, true));
    noise.await.unwrap();
}
