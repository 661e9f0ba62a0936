// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A client and a server of one process.

use std::sync::{Arc, Mutex};

use ::http::{HeaderMap, Method, StatusCode};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::{Refused, Secret, Signed, Verifier};
use crate::error::{Class, Error};
use crate::http::{Call, Http, Request, Response, Transport};

fn secret(byte: u8) -> Secret {
    Secret::of(&[byte; 32]).unwrap()
}

/// What is changed on the way.
type Change = fn(&mut Request);

/// A server that counts what it obeys and keeps what it heard.
struct Server {
    verifier: Mutex<Arc<Verifier>>,
    obeyed: Mutex<Vec<Vec<u8>>>,
    heard: Mutex<Vec<Request>>,
    change: Mutex<Change>,
    forged: Mutex<bool>,
    answered: Mutex<Vec<Response>>,
    /// Who stands between them answers with what was recorded.
    replays: Mutex<bool>,
}

impl Server {
    fn new() -> Arc<Server> {
        Arc::new(Server {
            verifier: Mutex::new(Arc::new(Verifier::new(secret(1), "cn-1", [1; 32]))),
            obeyed: Mutex::default(),
            heard: Mutex::default(),
            change: Mutex::new(|_| {}),
            forged: Mutex::new(false),
            answered: Mutex::default(),
            replays: Mutex::new(false),
        })
    }

    fn answer(&self, request: &Request) -> Response {
        let body = request.body.clone().unwrap_or_default();
        let verifier = Arc::clone(&self.verifier.lock().unwrap());
        let taken = verifier.take((&request.method, &request.target()), &request.headers, &body);
        let (status, text) = match &taken {
            Ok(_) => (StatusCode::OK, r#"{"done":true}"#),
            Err(_) => (StatusCode::UNAUTHORIZED, r#"{"code":"InvalidSignature","message":"no"}"#),
        };
        if taken.is_ok() {
            self.obeyed.lock().unwrap().push(body.to_vec());
        }
        let mut headers = HeaderMap::new();
        verifier.sign(taken.as_ref().ok(), status, &mut headers, text.as_bytes());
        let text = if *self.forged.lock().unwrap() { r#"{"done":"lie"}"# } else { text };
        Response { status, headers, body: text.into() }
    }

    /// The first exchange that was recorded, once more: the client is given the nonce of its request, and then its
    /// answer.
    fn replay(&self, request: &Request) -> Response {
        let (heard, answered) = (self.heard.lock().unwrap(), self.answered.lock().unwrap());
        let at = answered.iter().position(|it| it.status == StatusCode::OK).unwrap();
        let nonce = heard[at].headers["x-signed-nonce"].clone();
        if request.headers.get("x-signed-nonce") == Some(&nonce) {
            return answered[at].clone();
        }
        let headers = HeaderMap::from_iter([("x-signed-next".parse().unwrap(), nonce)]);
        Response { status: StatusCode::UNAUTHORIZED, headers, body: "".into() }
    }

    fn counts(&self) -> Vec<u64> {
        self.verifier.lock().unwrap().refusals().map(|(_, count)| count).collect()
    }
}

impl Transport for Server {
    fn send(&self, mut request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        (*self.change.lock().unwrap())(&mut request);
        let answer = match *self.replays.lock().unwrap() {
            true => self.replay(&request),
            false => self.answer(&request),
        };
        self.heard.lock().unwrap().push(request);
        self.answered.lock().unwrap().push(answer.clone());
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn client(server: &Arc<Server>, key: u8, audience: &str) -> Http {
    let server: Arc<dyn Transport> = Arc::clone(server) as Arc<dyn Transport>;
    let signed = Signed::new(server, secret(key), audience);
    Http::with_transport("http://cn", "test", Arc::new(signed)).unwrap().without_retries()
}

async fn order(http: &Http) -> Result<(), Error> {
    let call = Call::new(Method::POST, &["orders"]).query("a", 1).json(&json!({"do": "it"}));
    http.execute(call).await.map(|_| ())
}

#[tokio::test]
async fn a_client_asks_for_a_nonce_once_and_is_given_the_next_with_each_answer() {
    let server = Server::new();
    let http = client(&server, 1, "cn-1");
    for _ in 0..3 {
        order(&http).await.unwrap();
    }
    assert_eq!(server.obeyed.lock().unwrap().as_slice(), vec![br#"{"do":"it"}"#.to_vec(); 3]);
    assert_eq!(server.heard.lock().unwrap().len(), 4);
    assert!(server.heard.lock().unwrap()[0].body.as_ref().unwrap().is_empty());
    assert_eq!(server.counts(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_server_that_was_restarted_knows_no_old_nonce() {
    let server = Server::new();
    let http = client(&server, 1, "cn-1");
    order(&http).await.unwrap();
    let recorded = server.heard.lock().unwrap().last().unwrap().clone();
    *server.verifier.lock().unwrap() = Arc::new(Verifier::new(secret(1), "cn-1", [2; 32]));
    assert_eq!(server.answer(&recorded).status, StatusCode::UNAUTHORIZED);
    order(&http).await.unwrap();
    assert_eq!(server.counts(), [0, 2, 0, 0]);
}

#[tokio::test]
async fn what_was_recorded_is_not_obeyed_again() {
    let server = Server::new();
    order(&client(&server, 1, "cn-1")).await.unwrap();
    let recorded = server.heard.lock().unwrap().last().unwrap().clone();
    assert_eq!(server.answer(&recorded).status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.obeyed.lock().unwrap().len(), 1);
    assert_eq!(server.counts(), [1, 0, 1, 0]);
}

#[tokio::test]
async fn nothing_is_obeyed_that_was_not_signed_as_it_came() {
    let changes: [(&str, Change); 5] = [
        ("body", |request| request.body = Some("{}".into())),
        ("method", |request| request.method = Method::PUT),
        ("query", |request| request.url.set_query(Some("a=2"))),
        ("path", |request| request.url.set_path("/rate")),
        ("mac", |request| drop(request.headers.remove("x-signed-mac"))),
    ];
    for (what, change) in changes {
        let server = Server::new();
        *server.change.lock().unwrap() = change;
        let error = order(&client(&server, 1, "cn-1")).await.unwrap_err();
        assert_eq!(error.status(), Some(401), "{what}");
        assert!(server.obeyed.lock().unwrap().is_empty(), "{what}");
    }
    for (key, audience) in [(2, "cn-1"), (1, "cn-2")] {
        let server = Server::new();
        let error = order(&client(&server, key, audience)).await.unwrap_err();
        assert_eq!(error.status(), Some(401), "{key} {audience}");
        assert_eq!((server.counts(), server.obeyed.lock().unwrap().len()), (vec![1, 0, 0, 1], 0));
    }
}

#[tokio::test]
async fn an_answer_of_another_hand_is_an_error() {
    let server = Server::new();
    let http = client(&server, 1, "cn-1");
    order(&http).await.unwrap();
    *server.forged.lock().unwrap() = true;
    assert_eq!(order(&http).await.unwrap_err().class(), Class::Protocol);
}

#[tokio::test] // M122
async fn an_answer_that_was_recorded_is_not_taken_for_the_same_request_again() {
    let server = Server::new();
    order(&client(&server, 1, "cn-1")).await.unwrap();
    *server.replays.lock().unwrap() = true;
    let error = order(&client(&server, 1, "cn-1")).await.expect_err("it was taken");
    assert_eq!(error.class(), Class::Protocol);
    assert_eq!(server.obeyed.lock().unwrap().len(), 1);
}

#[test]
fn only_so_many_nonces_are_outstanding_and_each_is_taken_once() {
    let verifier = Verifier::new(secret(1), "cn-1", [1; 32]);
    let issue = || {
        let mut headers = HeaderMap::new();
        verifier.sign(None, StatusCode::UNAUTHORIZED, &mut headers, b"");
        headers["x-signed-next"].to_str().unwrap().to_owned()
    };
    let take = |nonce: &str| {
        let parts = [b"cn-1".as_slice(), b"GET", b"/node", nonce.as_bytes(), b"1", b""];
        let mac = secret(1).of_request(parts).to_hex();
        let mut headers = HeaderMap::new();
        headers.insert("x-signed-nonce", nonce.parse().unwrap());
        headers.insert("x-signed-fresh", "1".parse().unwrap());
        headers.insert("x-signed-mac", mac.as_str().parse().unwrap());
        verifier.take((&Method::GET, "/node"), &headers, b"").map(|_| ())
    };
    let (first, second) = (issue(), issue());
    assert_eq!(take(&second), Ok(()));
    assert_eq!(take(&second), Err(Refused::UsedNonce));
    (0..4095).for_each(|_| drop(issue()));
    assert_eq!(take(&first), Err(Refused::UnknownNonce));
    for odd in ["", ".", "ffffffffffffffffff.0", "1.", &format!("1.{}", "0".repeat(32))] {
        assert_eq!(take(odd), Err(Refused::UnknownNonce), "{odd}");
    }
}
