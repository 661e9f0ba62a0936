// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Migrations of VMs (RFD 34): the routes of migration-service, which has those of VMAPI and more.
//!
//! The routes by which the deployed service's jobs write records are not here: no other program may use them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     axum::Json(serde_json::json!([{ "vm_uuid": "u", "phase": "sync", "state": "paused" }]))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let http = sdc_clients::Http::new(&url, "my-tool/1.0")?;
//! let migrations = sdc_clients::migrations::Migrations::new(http);
//! for one in migrations.list(&Default::default()).await? {
//!     println!("{} is {} after {}", one.vm_uuid, one.state, one.phase);
//! }
//! # Ok(()) }
//! ```

mod watch;

mod evacuation;

mod client;

mod types;

mod ended;

pub use client::Migrations;
pub use ended::{Ended, EndedStep, HistoryQuery};
pub use evacuation::Evacuation;
pub use types::{
    Answer, Dataset, Estimate, Event, Migration, MigrationQuery, Options, Progress, Sign, Signs,
    Verification,
};
pub use watch::{News, Watcher, watch};
