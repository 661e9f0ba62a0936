// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock NAPI held to the statements of the NIC contract, over real sockets.

mod faults;
mod lists;
mod replay;
mod seeds;
mod writes;

use std::net::{Ipv4Addr, SocketAddr};

use mocks::napi::{Era, NewNic, Options, Server};
use serde_json::{Value, json};

pub(crate) const CN: &str = "30000000-0000-4000-8000-000000000001";
pub(crate) const OTHER_CN: &str = "30000000-0000-4000-8000-000000000002";
pub(crate) const VM: &str = "40000000-0000-4000-8000-000000000001";
pub(crate) const OWNER: &str = "50000000-0000-4000-8000-000000000001";
pub(crate) const MAC: &str = "90:b8:d0:00:00:01";

/// An answer, taken apart.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn etag(&self) -> String {
        self.headers.get("etag").expect("an etag").to_str().unwrap().to_owned()
    }

    pub(crate) fn fields(&self) -> Vec<String> {
        let errors = self.body["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|e| e["field"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn macs(&self) -> Vec<String> {
        let list = self.body.as_array().expect("a list");
        list.iter().map(|nic| nic["mac"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

pub(crate) async fn start(era: Era) -> Server {
    Server::start(local(), Options::era(era)).await.unwrap()
}

/// A server with the one NIC most tests begin with.
pub(crate) async fn with_nic(era: Era) -> Server {
    let server = start(era).await;
    server.store().add_nic(NewNic::zone(MAC, VM, CN)).unwrap();
    server
}

pub(crate) async fn send(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> Answer {
    try_send(server, method, path, headers, body).await.unwrap()
}

pub(crate) async fn try_send(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<Value>,
) -> reqwest::Result<Answer> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut request = client.request(method.parse().unwrap(), format!("{}{path}", server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(Answer { status, headers, body, text })
}

pub(crate) async fn get(server: &Server, path: &str) -> Answer {
    send(server, "GET", path, &[], None).await
}

pub(crate) async fn put(server: &Server, path: &str, body: Value) -> Answer {
    send(server, "PUT", path, &[], Some(body)).await
}

pub(crate) async fn post(server: &Server, path: &str, body: Value) -> Answer {
    send(server, "POST", path, &[], Some(body)).await
}

/// Deletes, on a condition if there is one.
pub(crate) async fn delete(server: &Server, path: &str, if_match: Option<&str>) -> Answer {
    let condition = if_match.map(|tag| ("if-match", tag));
    send(server, "DELETE", path, condition.as_slice(), None).await
}

pub(crate) fn minimal(mac: &str) -> Value {
    json!({ "mac": mac, "belongs_to_type": "zone", "belongs_to_uuid": VM, "owner_uuid": OWNER })
}
