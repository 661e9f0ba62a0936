// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the tests talk to: a loopback server, and a transport that answers from a closure.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::{Error, Http};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Serves `router` on a free port for the rest of the test.
pub async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// Answers the n-th connection with the n-th text (the last one again and
/// again) after a whole request head came, and tells the heads.
pub async fn raw(answers: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&heads);
    tokio::spawn(async move {
        for n in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            let mut buffer = [0u8; 4096];
            while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => head.extend_from_slice(&buffer[..count]),
                }
            }
            log.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
            let answer = answers.get(n).or(answers.last()).copied().unwrap_or_default();
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    (base, heads)
}

type Handler = dyn Fn(Request) -> BoxFuture<'static, Result<Response, Error>> + Send + Sync;
type Opener = dyn Fn(Request) -> Result<StreamResponse, Error> + Send + Sync;

/// A transport that answers from closures and keeps every request with its time.
pub struct Script {
    handler: Box<Handler>,
    opener: Option<Box<Opener>>,
    pub log: Mutex<Vec<(Duration, Request)>>,
    started: tokio::time::Instant,
}

impl Script {
    pub fn new<F, Fut>(handler: F) -> Arc<Script>
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Response, Error>> + Send + 'static,
    {
        Arc::new(Script {
            handler: Box::new(move |request| Box::pin(handler(request))),
            opener: None,
            log: Mutex::default(),
            started: tokio::time::Instant::now(),
        })
    }

    pub fn streaming(
        opener: impl Fn(Request) -> Result<StreamResponse, Error> + Send + Sync + 'static,
    ) -> Arc<Script> {
        Arc::new(Script {
            handler: Box::new(|request| {
                Box::pin(async move { Err(Error::connect(&request.method, "", "streams only")) })
            }),
            opener: Some(Box::new(opener)),
            log: Mutex::default(),
            started: tokio::time::Instant::now(),
        })
    }

    pub fn http(self: &Arc<Script>) -> Http {
        let transport: Arc<dyn Transport> = self.clone();
        Http::with_transport("http://service.test", "test/1", transport).unwrap()
    }

    pub fn count(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    pub fn targets(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().map(|(_, request)| request.target()).collect()
    }

    pub fn times(&self) -> Vec<Duration> {
        self.log.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    fn note(&self, request: &Request) {
        self.log.lock().unwrap().push((self.started.elapsed(), request.clone()));
    }
}

impl Transport for Script {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        self.note(&request);
        (self.handler)(request)
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        self.note(&request);
        let opened = match &self.opener {
            Some(opener) => opener(request),
            None => Err(Error::connect(&request.method, request.target(), "no stream")),
        };
        Box::pin(std::future::ready(opened))
    }
}

/// An answer with a JSON body.
pub fn answer(status: u16, body: &Value) -> Response {
    Response {
        status: status.try_into().unwrap(),
        headers: Default::default(),
        body: Bytes::from(body.to_string()),
    }
}

/// A query value of a request.
pub fn query(request: &Request, key: &str) -> Option<String> {
    request.url.query_pairs().find(|(k, _)| k == key).map(|(_, v)| v.into_owned())
}
