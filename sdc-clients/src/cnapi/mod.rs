// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! CNAPI: the data centre's records of compute nodes, its locks, the choice of a node for a VM, and the
//! tasks that it gives nodes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use axum::{Json, routing::{get, post, put}};
//! # use serde_json::json;
//! # let ticket = json!({ "uuid": "t", "server_uuid": "default", "scope": "vm", "id": "v", "status": "active" });
//! # let queued = json!({ "uuid": "t", "queue": ["t"] });
//! # let app = axum::Router::new()
//! #     .route("/servers/default/tickets", post(async || (axum::http::StatusCode::ACCEPTED, Json(queued))))
//! #     .route("/tickets/t/wait", get(async || axum::http::StatusCode::NO_CONTENT))
//! #     .route("/tickets/t", get(async || Json(ticket)))
//! #     .route("/tickets/t/release", put(async || axum::http::StatusCode::NO_CONTENT));
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! # let in_ten_minutes = jiff::Timestamp::UNIX_EPOCH;
//! use std::time::Duration;
//! use sdc_clients::cnapi::{Cnapi, DEFAULT_SERVER, TicketOrder};
//!
//! let cnapi = Cnapi::new(sdc_clients::Http::new(&url, "my-service/1.0")?);
//! let order = TicketOrder {
//!     scope: "vm".into(),
//!     id: "v".into(),
//!     expires_at: in_ten_minutes,
//!     action: None,
//!     extra: None,
//! };
//! let ticket = cnapi.create_ticket(DEFAULT_SERVER, &order).await?;
//! cnapi.wait_ticket(&ticket, Duration::from_secs(60)).await?;
//! assert!(cnapi.get_ticket(&ticket).await?.is_active());
//! cnapi.release_ticket(&ticket).await?;
//! # Ok(()) }
//! ```
//!
//! Modules, highest first; each uses only modules listed below it.

mod tasks; // work for a node

mod tickets; // locks

mod servers; // nodes, and the choice of one

mod affinity; // beside which VMs one is placed

use std::collections::HashSet;
use std::time::Duration;

use ::http::{Method, StatusCode};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT, Reply};

pub use affinity::{Affinity, BadAffinity};
pub use servers::{Allocation, Placement, Server, ServerQuery, admin_ip};
pub use tasks::Task;
pub use tickets::{DEFAULT_SERVER, Queued, Ticket, TicketOrder};

use tasks::Started;

/// The server's own maximum.
const PAGE: usize = 1000;
const MOST_SERVERS: usize = 100_000;
const MOST_TICKETS: usize = 1_000_000;
/// Pages of tickets overlap by so many.
const OVERLAP: usize = 10;
/// How often an update is tried again that another write came before.
const ETAG_RETRIES: u32 = 5;
/// One wait for a task: far below what the server's timer holds.
const ONE_WAIT: Duration = Duration::from_secs(600);
/// The answer may be so much later than the wait.
const GRACE: Duration = Duration::from_secs(30);

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

    /// One compute node, with its sysinfo.
    pub async fn get_server(&self, uuid: &str) -> Result<Server, Error> {
        let reply = self.http.execute(Call::get(&["servers", uuid])).await?;
        let server: Server = reply.json("a server")?;
        if server.uuid != uuid {
            return Err(reply.unexpected(&format!("the server {uuid}")));
        }
        Ok(server)
    }

    /// Returns every compute node that matches, or an error.
    pub async fn list_servers(&self, query: &ServerQuery) -> Result<Vec<Server>, Error> {
        let mut found: Vec<Server> = Vec::new();
        let mut seen = HashSet::new();
        let mut offset = 0;
        loop {
            let call = query.apply(Call::get(&["servers"]).timeout(LIST_TIMEOUT));
            let reply =
                self.http.execute(call.query("limit", PAGE).query("offset", offset)).await?;
            let page: Vec<Server> = reply.json("an array of servers")?;
            if page.len() > PAGE {
                return Err(reply.unexpected(&format!("at most {PAGE} servers")));
            }
            let (count, before) = (page.len(), found.len());
            found.extend(page.into_iter().filter(|server| seen.insert(server.uuid.clone())));
            if count < PAGE {
                return Ok(found);
            }
            if found.len() == before || found.len() > MOST_SERVERS {
                return Err(reply.unexpected("another page than the ones before"));
            }
            offset += PAGE;
        }
    }

    /// Chooses a node for a VM. Where none fits CNAPI answers 409 `NoAllocatableServersError` with the reason in the
    /// error's message, as `No compute resources available: no servers with enough unreserved RAM`. Nothing is
    /// reserved: only tickets of scope `vm` with the action `provision` count besides the VMs that there are.
    pub async fn allocate(&self, placement: &Placement) -> Result<Allocation, Error> {
        let call = Call::new(Method::POST, &["allocate"]).json(placement).timeout(LIST_TIMEOUT);
        self.http.execute(call).await?.json("an allocation")
    }

    /// Orders a ticket of a node, or of [`DEFAULT_SERVER`], and returns its uuid. It is not active before
    /// those before it are released or expired.
    ///
    /// An order whose answer was lost may have made a ticket that no client knows: it ends when it expires.
    pub async fn create_ticket(
        &self,
        server_uuid: &str,
        order: &TicketOrder,
    ) -> Result<String, Error> {
        Ok(self.queue_ticket(server_uuid, order).await?.uuid)
    }

    /// The same, and returns the tickets of its queue too. One whose answer was lost is among them when another one
    /// is ordered.
    pub async fn queue_ticket(
        &self,
        server_uuid: &str,
        order: &TicketOrder,
    ) -> Result<Queued, Error> {
        let call = Call::new(Method::POST, &["servers", server_uuid, "tickets"]).json(order);
        let reply = self.http.execute(call).await?;
        reply.require(StatusCode::ACCEPTED)?;
        reply.json("a ticket")
    }

    /// Waits until the ticket is active, expired or released, and `within` at most: then the error's class
    /// is a timeout. [`Cnapi::get_ticket`] says which it is.
    pub async fn wait_ticket(&self, ticket: &str, within: Duration) -> Result<(), Error> {
        let call = Call::get(&["tickets", ticket, "wait"]).timeout(within);
        self.http.execute(call.final_if(Error::is_timeout)).await?;
        Ok(())
    }

    /// One ticket.
    pub async fn get_ticket(&self, ticket: &str) -> Result<Ticket, Error> {
        self.http.execute(Call::get(&["tickets", ticket])).await?.json("a ticket")
    }

    /// All tickets of a node, or of [`DEFAULT_SERVER`], oldest first: those that have ended stay among them for
    /// thirty days, and the newest are on the last page.
    pub async fn list_tickets(&self, server_uuid: &str) -> Result<Vec<Ticket>, Error> {
        let mut found: Vec<Ticket> = Vec::new();
        let mut seen = HashSet::new();
        let mut offset = 0;
        loop {
            let call = Call::get(&["servers", server_uuid, "tickets"]).timeout(LIST_TIMEOUT);
            let reply =
                self.http.execute(call.query("limit", PAGE).query("offset", offset)).await?;
            let page: Vec<Ticket> = reply.json("an array of tickets")?;
            let (count, before) = (page.len(), found.len());
            found.extend(page.into_iter().filter(|ticket| seen.insert(ticket.uuid.clone())));
            if count < PAGE {
                return Ok(found);
            }
            if found.len() == before || found.len() > MOST_TICKETS {
                return Err(reply.unexpected("another page than the ones before"));
            }
            // A ticket that goes meanwhile moves those after it to the front.
            offset += PAGE - OVERLAP;
        }
    }

    /// Gives a ticket back; the next one becomes active.
    pub async fn release_ticket(&self, ticket: &str) -> Result<(), Error> {
        let call = Call::new(Method::PUT, &["tickets", ticket, "release"]).json(&Map::new());
        self.http.execute(call).await?.require(StatusCode::NO_CONTENT)
    }

    /// A VM as its node sees it now; one that is hidden (`do_not_inventory`) only with `include_dni`.
    pub async fn get_vm(
        &self,
        server_uuid: &str,
        vm_uuid: &str,
        include_dni: bool,
    ) -> Result<Map<String, Value>, Error> {
        let call = Call::get(&["servers", server_uuid, "vms", vm_uuid]);
        self.http.execute(with_dni(call, include_dni)).await?.object()
    }

    /// Orders a node to create a VM from this payload, and returns the task.
    pub async fn create_vm(
        &self,
        server_uuid: &str,
        payload: &Map<String, Value>,
    ) -> Result<String, Error> {
        let call = Call::new(Method::POST, &["servers", server_uuid, "vms"]).json(payload);
        started(&self.http.execute(call).await?)
    }

    /// Orders a node to delete a VM, and returns the task; one that is hidden only with `include_dni`.
    pub async fn delete_vm(
        &self,
        server_uuid: &str,
        vm_uuid: &str,
        include_dni: bool,
    ) -> Result<String, Error> {
        let call = Call::new(Method::DELETE, &["servers", server_uuid, "vms", vm_uuid]);
        started(&self.http.execute(with_dni(call, include_dni)).await?)
    }

    /// Changes fields of a node's record, such as `reserved`. The node writes it, too, every few seconds: CNAPI is
    /// asked to try again where that came in between.
    pub async fn update_server(
        &self,
        uuid: &str,
        changes: &Map<String, Value>,
    ) -> Result<(), Error> {
        let mut changes = changes.clone();
        changes.entry("etag_retries").or_insert_with(|| ETAG_RETRIES.into());
        self.http.execute(Call::new(Method::POST, &["servers", uuid]).json(&changes)).await?;
        Ok(())
    }

    /// One task.
    pub async fn get_task(&self, id: &str) -> Result<Task, Error> {
        self.http.execute(Call::get(&["tasks", id])).await?.json("a task")
    }

    /// Waits until a task has ended, well or not, and returns it; `within` at most, in whole seconds: then it is
    /// active, and goes on.
    pub async fn wait_task(&self, id: &str, within: Duration) -> Result<Task, Error> {
        let mut left = within.as_secs().max(1);
        loop {
            let wait = left.min(ONE_WAIT.as_secs());
            let call = Call::get(&["tasks", id, "wait"]).query("timeout", wait);
            let call = call.timeout(Duration::from_secs(wait) + GRACE);
            let reply = self.http.execute(call.final_if(Error::is_timeout)).await?;
            let task: Task = reply.json("a task")?;
            left -= wait;
            if !task.is_active() || left == 0 {
                return Ok(task);
            }
        }
    }
}

fn with_dni(call: Call, include_dni: bool) -> Call {
    call.query_opt("include_dni", include_dni.then_some(true))
}

/// Returns the task that an order started: whatever the success is, it did if it names one.
fn started(reply: &Reply) -> Result<String, Error> {
    Ok(reply.json::<Started>("a task")?.id)
}
