// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! PAPI: the packages that VMs are made of. Reads only.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     axum::Json(serde_json::json!([{ "uuid": "p", "name": "sdc_volume_nfs_10", "active": true, "quota": 10240 }]))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! use sdc_clients::papi::{PackageQuery, Papi};
//!
//! let papi = Papi::new(sdc_clients::Http::new(&url, "my-service/1.0")?);
//! let query = PackageQuery {
//!     active: Some(true),
//!     name: Some("sdc_volume_nfs*".into()),
//!     sort: Some("quota".into()),
//! };
//! assert_eq!(papi.list_packages(&query).await?.0[0].quota, Some(10240));
//! # Ok(()) }
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};
use crate::records::{Unreadable, records};

/// A package: the fields this project reads, and all others as they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// The package.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Whether new VMs may have it.
    #[serde(default)]
    pub active: bool,
    /// Disk space in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_physical_memory: Option<u64>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Which packages to list. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackageQuery {
    /// Only those that new VMs may have, or may not.
    pub active: Option<bool>,
    /// The name; a `*` stands for any text.
    pub name: Option<String>,
    /// The field to sort by.
    pub sort: Option<String>,
}

/// A client of PAPI.
#[derive(Debug, Clone)]
pub struct Papi {
    http: Http,
}

impl Papi {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Papi {
        Papi { http }
    }

    /// The packages that match, in the order that was asked for, and those that cannot be read.
    pub async fn list_packages(
        &self,
        query: &PackageQuery,
    ) -> Result<(Vec<Package>, Unreadable), Error> {
        let call = Call::get(&["packages"]).timeout(LIST_TIMEOUT);
        let call = call
            .query_opt("active", query.active)
            .query_opt("name", query.name.as_ref())
            .query_opt("sort", query.sort.as_ref());
        records(&self.http.execute(call).await?, "an array of packages")
    }

    /// One package, active or not.
    pub async fn get_package(&self, uuid: &str) -> Result<Package, Error> {
        let reply = self.http.execute(Call::get(&["packages", uuid])).await?;
        let package: Package = reply.json("a package")?;
        if package.uuid != uuid {
            return Err(reply.unexpected(&format!("the package {uuid}")));
        }
        Ok(package)
    }
}
