// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where VM objects come from: the daemon over HTTP, or the node itself. Both give the same
//! objects in the same order; whoever prints them cannot tell which it was.

use futures_util::future::BoxFuture;
use sdc_clients::http::{Call, Http};
use sdc_clients::vminfod::VmObject;
use sdc_clients::{Class, Error};
use serde_json::Value;

use crate::json;
use crate::load::{self, Ctx, LoadError};

/// A node with many VMs has long lists.
const LIST_CAP: usize = 256 << 20;

/// Why there are no objects. The texts of the first two are the shipped tools'.
#[derive(Debug, thiserror::Error)]
pub enum SupplyError {
    /// Nothing listens there.
    #[error("connect ECONNREFUSED")]
    Refused,
    /// An answer that is no success.
    #[error("bad statusCode: {0}")]
    Status(u16),
    /// It was waited for and did not come up.
    #[error("vminfod did not come up within {0:?}")]
    NotUp(std::time::Duration),
    /// The request failed in another way.
    #[error("{0}")]
    Request(String),
    /// The node cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<Error> for SupplyError {
    fn from(error: Error) -> SupplyError {
        match error.status() {
            Some(status) if error.class() != Class::Protocol || status != 200 => {
                SupplyError::Status(status)
            }
            _ if is_refused(&error) => SupplyError::Refused,
            _ => SupplyError::Request(daemon::log::chain(&error)),
        }
    }
}

/// Whether nothing listens where the request went.
fn is_refused(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Supplies VM objects.
pub trait Supplier: Send + Sync {
    /// All of the node's, in the daemon's order.
    fn vms(&self) -> BoxFuture<'_, Result<Vec<VmObject>, SupplyError>>;

    /// The one of this zone name.
    fn vm<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<VmObject>, SupplyError>>;
}

/// The daemon.
#[derive(Debug, Clone)]
pub struct FromDaemon {
    http: Http,
}

impl FromDaemon {
    /// The daemon at this URL, asked in the name of `program`.
    pub fn new(url: &str, program: &str) -> Result<FromDaemon, SupplyError> {
        let agent = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
        Ok(FromDaemon { http: Http::new(url, &agent)?.without_retries() })
    }

    /// The JSON that a route answers.
    pub async fn get(&self, call: Call) -> Result<Value, SupplyError> {
        let reply = self.http.execute(call.body_cap(LIST_CAP)).await?;
        if reply.status().as_u16() != 200 {
            return Err(SupplyError::Status(reply.status().as_u16()));
        }
        let parsed = json::parse(reply.body());
        parsed.map_err(|error| SupplyError::Request(format!("the answer: {error}")))
    }

    /// The service itself, for streams.
    pub fn http(&self) -> &Http {
        &self.http
    }
}

impl Supplier for FromDaemon {
    fn vms(&self) -> BoxFuture<'_, Result<Vec<VmObject>, SupplyError>> {
        Box::pin(async move { objects(self.get(Call::get(&["vms"])).await?) })
    }

    fn vm<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<VmObject>, SupplyError>> {
        Box::pin(async move {
            match self.get(Call::get(&["vms", name])).await {
                Ok(Value::Object(vm)) => Ok(Some(vm)),
                Ok(_) => Err(no_objects()),
                Err(SupplyError::Status(404)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

/// The node, read here and now.
#[derive(Clone)]
pub struct FromNode {
    ctx: Ctx,
}

impl FromNode {
    /// A node that is read through this.
    pub fn new(ctx: Ctx) -> FromNode {
        FromNode { ctx }
    }
}

impl Supplier for FromNode {
    fn vms(&self) -> BoxFuture<'_, Result<Vec<VmObject>, SupplyError>> {
        Box::pin(async move { objects(as_answered(&load::node(&self.ctx).await?.vms)?) })
    }

    fn vm<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<VmObject>, SupplyError>> {
        Box::pin(async move {
            let Some(vm) = load::vm(&self.ctx, name).await? else { return Ok(None) };
            Ok(objects(as_answered(&[vm])?)?.pop())
        })
    }
}

/// Once through text, as what comes from the daemon has been: keys and numbers are then the same in
/// any case.
fn as_answered(vms: &[VmObject]) -> Result<Value, SupplyError> {
    json::parse(json::to_ascii(vms).as_bytes()).map_err(|_| no_objects())
}

fn objects(value: Value) -> Result<Vec<VmObject>, SupplyError> {
    let Value::Array(list) = value else { return Err(no_objects()) };
    let object = |vm| match vm {
        Value::Object(vm) => Ok(vm),
        _ => Err(no_objects()),
    };
    list.into_iter().map(object).collect()
}

fn no_objects() -> SupplyError {
    SupplyError::Request("the answer holds no VM objects".to_owned())
}
