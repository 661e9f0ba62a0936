// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Suppliers of VM objects: the daemon over HTTP, or the node itself. Both return the same objects in
//! the same order.

use std::io;
use std::iter::successors;

use daemon::log::chain;
use futures_util::future::BoxFuture;
use sdc_clients::http::{Call, Http, StreamResponse};
use sdc_clients::vminfod::VmObject;
use sdc_clients::{Class, Error};
use serde_json::Value;

use crate::node::{Ctx, LoadError, load};
use vm_model::js as json;

/// Largest list that is read.
const LIST_CAP: usize = 256 << 20;

/// Why no objects could be read. The texts of the first two are the shipped tools'.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    /// Nothing listens at this URL.
    #[error("connect ECONNREFUSED")]
    Refused(String),
    /// An answer with an error status.
    #[error("bad statusCode: {0}")]
    Status(u16),
    /// What answers at this URL is not vminfod.
    #[error("another program than vminfod answers on {0}")]
    Another(String),
    /// The daemon did not start in time.
    #[error("vminfod did not come up within {time}", time = daemon::cli::span(*.0))]
    NotUp(std::time::Duration),
    /// Any other failure of the request.
    #[error("{0}")]
    Request(String),
    /// The node cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Returns true if the connection was refused.
fn is_refused(error: &Error) -> bool {
    let causes = successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut kinds = causes.filter_map(|error| Some(error.downcast_ref::<io::Error>()?.kind()));
    kinds.any(|kind| kind == io::ErrorKind::ConnectionRefused)
}

/// VM objects, or why there are none.
pub type Supplied<'a> = BoxFuture<'a, Result<Vec<VmObject>, SupplyError>>;

/// Supplies VM objects.
pub trait Supplier: Send + Sync {
    /// All VMs of the node in the daemon's order, or the one whose zone has this name, if it exists.
    fn objects<'a>(&'a self, only: Option<&'a str>) -> Supplied<'a>;
}

/// The daemon.
#[derive(Debug, Clone)]
pub struct FromDaemon {
    url: String,
    http: Http,
}

impl FromDaemon {
    /// A client of the daemon at `url`, with `program` as its user agent.
    pub fn new(url: &str, program: &str) -> Result<FromDaemon, SupplyError> {
        let agent = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
        let http = Http::new(url, &agent).map_err(|error| SupplyError::Request(chain(&error)))?;
        Ok(FromDaemon { url: url.to_owned(), http: http.without_retries() })
    }

    /// Sends a request and returns the JSON of the answer.
    pub async fn get(&self, call: Call) -> Result<Value, SupplyError> {
        let reply = self.http.execute(call.body_cap(LIST_CAP)).await;
        let reply = reply.map_err(|error| self.named(error))?;
        if reply.status().as_u16() != 200 {
            return Err(SupplyError::Status(reply.status().as_u16()));
        }
        let parsed = json::parse(reply.body());
        parsed.map_err(|error| SupplyError::Request(format!("the answer: {error}")))
    }

    /// Sends a request and returns the object of the answer. vminfod's always has the field `mark`.
    pub async fn object(&self, call: Call, mark: &str) -> Result<Value, SupplyError> {
        let value = self.get(call).await?;
        match value.get(mark) {
            Some(_) => Ok(value),
            None => Err(SupplyError::Another(self.url.clone())),
        }
    }

    /// Sends a request and returns the VM objects of the answer.
    pub async fn list(&self, call: Call) -> Result<Vec<VmObject>, SupplyError> {
        objects(self.get(call).await?)
    }

    /// Opens a stream.
    pub async fn open(&self, call: Call) -> Result<StreamResponse, SupplyError> {
        self.http.open(call).await.map_err(|error| self.named(error))
    }

    fn named(&self, error: Error) -> SupplyError {
        match error.status() {
            Some(status) if error.class() != Class::Protocol || status != 200 => {
                SupplyError::Status(status)
            }
            _ if is_refused(&error) => SupplyError::Refused(self.url.clone()),
            _ => SupplyError::Request(format!("no answer from {}: {}", self.url, chain(&error))),
        }
    }
}

impl Supplier for FromDaemon {
    fn objects<'a>(&'a self, only: Option<&'a str>) -> Supplied<'a> {
        Box::pin(async move {
            let Some(name) = only else { return self.list(Call::get(&["vms"])).await };
            match self.object(Call::get(&["vms", name]), "zonename").await {
                Ok(vm) => objects(Value::Array(vec![vm])),
                Err(SupplyError::Status(404)) => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        })
    }
}

/// The node, read directly.
impl Supplier for Ctx {
    fn objects<'a>(&'a self, only: Option<&'a str>) -> Supplied<'a> {
        Box::pin(async move {
            let vms = match only {
                Some(name) => load::object(self, name).await?.into_iter().collect(),
                None => load::objects(self).await?.vms,
            };
            // Keys and numbers are exactly those of an HTTP answer.
            objects(json::parse(json::to_ascii(&vms).as_bytes()).map_err(|_| no_objects())?)
        })
    }
}

fn objects(value: Value) -> Result<Vec<VmObject>, SupplyError> {
    serde_json::from_value(value).map_err(|_| no_objects())
}

fn no_objects() -> SupplyError {
    SupplyError::Request("the answer holds no VM objects".to_owned())
}
