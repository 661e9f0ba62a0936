// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The client: signs each request, and takes no answer that is not the server's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::secret::{FRESH, MAC, NEXT, NONCE, Secret, is_same};
use crate::error::{Class, Error};
use crate::http::{Permit, Request, Response, Transport};

/// Nonces that are kept for requests at once.
const KEPT: usize = 8;

/// Requests to one server, signed. An answer other than 401 that the server did not sign is an error.
pub struct Signed {
    inner: Arc<dyn Transport>,
    secret: Secret,
    audience: String,
    nonces: Mutex<Vec<String>>,
}

impl Signed {
    /// Signs what `inner` carries to the server of this name.
    pub fn new(inner: Arc<dyn Transport>, secret: Secret, audience: &str) -> Signed {
        Signed { inner, secret, audience: audience.to_owned(), nonces: Mutex::default() }
    }

    fn nonces(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.nonces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, mut request: Request, nonce: &str) -> Result<Response, Error> {
        let (method, target) = (request.method.clone(), request.target());
        let body = request.body.clone().unwrap_or_default();
        let (audience, verb) = (self.audience.as_bytes(), method.as_str().as_bytes());
        let fresh = Uuid::new_v4().simple().to_string();
        let parts = [audience, verb, target.as_bytes(), nonce.as_bytes(), fresh.as_bytes(), &body];
        let mac = self.secret.of_request(parts).to_hex();
        if !nonce.is_empty() {
            for (name, text) in [(NONCE, nonce), (FRESH, fresh.as_str()), (MAC, mac.as_str())] {
                let value = HeaderValue::from_str(text).map_err(|error| {
                    let what = "the nonce is not a header value";
                    Error::new(Class::Protocol, &method, target.as_str(), what).with_source(error)
                })?;
                request.headers.insert(HeaderName::from_static(name), value);
            }
        }
        let answer = self.inner.send(request).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let (next, sent) = (text(&answer.headers, NEXT), text(&answer.headers, MAC));
        let status = answer.status.as_u16().to_be_bytes();
        let parts = [audience, mac.as_bytes(), &status, next.as_bytes(), &answer.body];
        if nonce.is_empty() || !is_same(&self.secret.of_answer(parts), sent) {
            let (status, expected) = (Some(answer.status), "an answer that the server signed");
            return Err(Error::protocol(&method, target, status, expected, &answer.body));
        }
        let mut nonces = self.nonces();
        if nonces.len() < KEPT {
            nonces.push(next.to_owned());
        }
        drop(nonces);
        Ok(answer)
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl Transport for Signed {
    fn admit(&self) -> BoxFuture<'_, Permit> {
        self.inner.admit()
    }

    fn patience(&self, usual: Duration) -> Duration {
        self.inner.patience(usual)
    }

    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let nonce = self.nonces().pop();
            let mut first = request.clone();
            if nonce.is_none() {
                // It only asks for a nonce.
                first.body = first.body.map(|_| bytes::Bytes::new());
            }
            let answer = self.attempt(first, &nonce.unwrap_or_default()).await?;
            let fresh = text(&answer.headers, NEXT);
            if answer.status != StatusCode::UNAUTHORIZED || fresh.is_empty() {
                return Ok(answer);
            }
            self.attempt(request, fresh).await
        })
    }
}
