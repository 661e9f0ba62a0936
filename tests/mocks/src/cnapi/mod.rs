// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock CNAPI: nodes, the choice of one for a VM, waitlist tickets, and tasks, which a function of the
//! caller's carries out (`docs/contract/cnapi.md`). `testbed conform cnapi` holds it to recordings of the real one.
//!
//! A request that ends the real one's process ends this one, too: the connection closes, and it is down until
//! [`Store::restart`] or [`Store::reset`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use mocks::cnapi::{Order, Server};
//! use sdc_clients::cnapi::Cnapi;
//! use serde_json::json;
//!
//! let mock = Server::start("127.0.0.1:0".parse()?).await?;
//! let cn = json!({ "uuid": "c0000000-0000-4000-8000-000000000001", "sysinfo": {} });
//! mock.store().put_server(cn.as_object().cloned().unwrap_or_default());
//! mock.store().set_hands(Arc::new(|order: Order| Box::pin(async move {
//!     match order.verb.as_str() {
//!         "delete" => Ok(json!({})),
//!         verb => Err(format!("this node cannot {verb}").into()),
//!     }
//! })));
//!
//! let cnapi = Cnapi::new(sdc_clients::Http::new(&mock.url(), "my-test/1.0")?);
//! let cn = &cnapi.list_servers(&Default::default()).await?[0].uuid;
//! let task = cnapi.delete_vm(cn, "40000000-0000-4000-8000-000000000001", true).await?;
//! assert!(cnapi.wait_task(&task, Duration::from_secs(10)).await?.is_complete());
//! let image = "50000000-0000-4000-8000-000000000001";
//! let payload = json!({ "uuid": "40000000-0000-4000-8000-000000000002", "brand": "joyent", "image_uuid": image,
//!     "image": { "uuid": image, "files": [{ "compression": "gzip", "size": 1, "sha1": "" }] } });
//! let task = cnapi.create_vm(cn, &payload.as_object().cloned().unwrap_or_default()).await?;
//! let failed = cnapi.wait_task(&task, Duration::from_secs(10)).await?;
//! assert_eq!(failed.error(), Some("this node cannot create"));
//! # Ok(()) }
//! ```

mod handler; // the way of a request: side doors, the router, and the routes

mod orders; // orders for a node, and their tasks

mod store; // the data, the peers, and the deaths

mod choice; // the choice of a node for a VM, step by step

mod scores; // the scores of the nodes that are left

mod affinity; // beside which VMs, and away from which

mod left; // the nodes that are left, and the steps so far

mod body; // the body of an allocation, checked

mod servers; // the list of nodes, and the updates of one

mod node; // what a node has told, and what is shown of it

mod tickets; // the queues

mod refusal; // the two forms of errors, and the requests that end the process

use std::net::SocketAddr;

use crate::faults;
pub(crate) use body::affinity as against_affinity;
pub use store::{Hands, HasImage, Order, Store, TaskError, Vms};

/// A mock CNAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without nodes. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}
