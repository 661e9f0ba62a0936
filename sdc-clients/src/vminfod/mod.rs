// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! vminfod: what this node's VMs look like, and every change of them. A client is a [`Vminfod`]: it asks
//! once. [`watch`] follows, and [`VmFields`] has the fields of a VM by name.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let ready = serde_json::json!({ "type": "ready", "date": "2026-01-05T10:00:00.000Z", "vms": "[]" });
//! # let app = axum::Router::new()
//! #     .route("/vms", axum::routing::get(|| async { "[]" }))
//! #     .route("/events", axum::routing::get(move || async move { format!("{ready}\n") }));
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! use sdc_clients::Jitter;
//! use sdc_clients::vminfod::{VmFields, Vminfod, WatchEvent, watch};
//!
//! let vminfod = Vminfod::new(&url, "my-agent/1.0")?;
//! for vm in vminfod.vms(false).await?.vms {
//!     println!("{:?} is {:?}", vm.alias(), vm.state());
//! }
//! let mut watcher = watch(&vminfod, Jitter::from_entropy());
//! loop {
//!     match watcher.next().await {
//!         WatchEvent::Synced(vms) => {
//!             println!("complete: {} VMs", vms.len());
//!             break; // a daemon goes on for ever
//!         }
//!         WatchEvent::Modified { changes, .. } => println!("{} changes", changes.len()),
//!         WatchEvent::Lost(error) => eprintln!("{error}"),
//!         _ => {}
//!     }
//! }
//! # Ok(()) }
//! ```

mod wait; // waits for a state, over the stream

mod watch; // the stream: resumed, and complete again after a gap

mod mirror; // the copy of the node that the stream keeps

mod event; // what the stream tells

mod fields; // the fields of a VM by name and type

mod filter; // what the service is to leave out

mod lines; // lines of a bounded length

mod client; // the other routes

mod left; // what is left of a VM that is not shown

mod view; // all VMs in one answer, and what it lacks

mod types; // objects and events on the wire

pub use client::Vminfod;
pub use event::{Vm, WatchEvent};
pub use fields::{VmFields, VmNic};
pub use filter::Filter;
pub use left::Left;
pub use lines::{LineTooLong, Lines};
pub use mirror::Mirror;
pub use types::{Action, BadLine, Change, Record, VmObject, key_of, parse_line, parse_ready};
pub use view::{INCOMPLETE, Incomplete, SYNCED, View};
pub use watch::{Watcher, watch, watch_filtered};
