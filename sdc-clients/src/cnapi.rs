// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI: the data centre's record of a compute node. Reads only.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     axum::Json(serde_json::json!({ "uuid": "00000000-0000-4000-8000-000000000001", "status": "running" }))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let http = sdc_clients::Http::new(&url, "net-agent/1.0")?;
//! let cnapi = sdc_clients::cnapi::Cnapi::new(http);
//! let server = cnapi.get_server("00000000-0000-4000-8000-000000000001").await?;
//! assert_eq!(server.status.as_deref(), Some("running"));
//! # Ok(()) }
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http};

/// A compute node: the fields this project reads, and all others as they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The node.
    pub uuid: String,
    /// `running`, `unknown` or `rebooting`; an open set of words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Its host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A client of CNAPI.
#[derive(Debug, Clone)]
pub struct Cnapi {
    http: Http,
}

impl Cnapi {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Cnapi {
        Cnapi { http }
    }

    /// The answer of `/ping`.
    pub async fn ping(&self) -> Result<Map<String, Value>, Error> {
        self.http.execute(Call::get(&["ping"])).await?.object()
    }

    /// One compute node.
    pub async fn get_server(&self, uuid: &str) -> Result<Server, Error> {
        let reply = self.http.execute(Call::get(&["servers", uuid])).await?;
        let server: Server = reply.json("a server")?;
        if server.uuid != uuid {
            return Err(reply.unexpected(&format!("the server {uuid}")));
        }
        Ok(server)
    }
}
