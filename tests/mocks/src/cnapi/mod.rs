// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock CNAPI: nodes, the choice of one for a VM, waitlist tickets, and tasks, which a function of the
//! caller's carries out (`docs/contract/vmapi.md`, `docs/contract/migration.md`). Held to what the real
//! VMAPI and volapi were seen to ask.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use mocks::cnapi::{Order, Server};
//! use sdc_clients::cnapi::Cnapi;
//! use serde_json::{Map, Value, json};
//!
//! let mock = Server::start("127.0.0.1:0".parse()?).await?;
//! let cn = json!({ "uuid": "c0000000-0000-4000-8000-000000000001", "sysinfo": {} });
//! mock.store().put_server(cn.as_object().cloned().unwrap_or_default());
//! mock.store().set_hands(Arc::new(|order: Order| Box::pin(async move {
//!     match order.verb.as_str() {
//!         "delete" => Ok(json!({})),
//!         verb => Err(format!("this node cannot {verb}")),
//!     }
//! })));
//!
//! let cnapi = Cnapi::new(sdc_clients::Http::new(&mock.url(), "my-test/1.0")?);
//! let cn = &cnapi.list_servers(&Default::default()).await?[0].uuid;
//! let task = cnapi.delete_vm(cn, "40000000-0000-4000-8000-000000000001", true).await?;
//! assert!(cnapi.wait_task(&task, Duration::from_secs(10)).await?.is_complete());
//! let task = cnapi.create_vm(cn, &Map::from_iter([("alias".to_owned(), json!("web"))])).await?;
//! let failed = cnapi.wait_task(&task, Duration::from_secs(10)).await?;
//! assert_eq!(failed.error(), Some("this node cannot create"));
//! # Ok(()) }
//! ```

mod handler; // the way of a request: the routes and their checks

mod store; // the data, and who carries out tasks

mod servers; // the table of nodes, and the choice of one

mod tickets; // the queues

use std::net::SocketAddr;

use crate::faults;
pub use store::{Hands, Order, Store};

/// A mock CNAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without nodes. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}
