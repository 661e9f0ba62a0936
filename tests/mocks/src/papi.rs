// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock PAPI: the packages, listed by `active`, `name` (a `*` stands for any text) and any other field, and
//! sorted by a field.

use std::cmp::Ordering;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Map, Value, json};

use crate::faults::{self, Listed, glob};
use crate::records::{Keeper, Records, not_found};
use crate::restify;

/// The packages of a mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Store(Records);

/// A mock PAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without packages. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}

impl Store {
    /// Adds a package, or changes the fields of the one that has its uuid.
    pub fn put(&self, package: Map<String, Value>) {
        self.0.put(package);
    }

    /// Drops all packages.
    pub fn reset(&self) {
        self.0.clear();
    }
}

impl Keeper for Store {
    const SERVER: &'static str = "PAPI";

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds packages: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the packages"),
        ("POST", "reset", "drops the packages; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.0
    }

    fn operate(&self, request: &Request<Bytes>) -> (u16, Value) {
        let path = request.uri().path();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["ping"]) => (200, json!({ "pid": 1, "backend": "up" })),
            (&Method::GET, ["packages"]) => {
                let mut query = restify::from_query(request.uri().query().unwrap_or_default());
                let sort = query.remove("sort");
                let mut found = self.0.all();
                found
                    .retain(|package| query.iter().all(|(name, value)| fits(package, name, value)));
                if let Some(field) = sort.as_ref().and_then(Value::as_str) {
                    let key = |package: &Map<String, Value>| package.get(field)?.as_f64();
                    found.sort_by(|a, b| key(a).partial_cmp(&key(b)).unwrap_or(Ordering::Equal));
                }
                (200, json!(found))
            }
            (&Method::GET, ["packages", uuid]) => match self.0.get(uuid) {
                Some(package) => (200, json!(package)),
                None => not_found(&format!("Package {uuid} does not exist")),
            },
            _ => not_found(&format!("{path} does not exist")),
        }
    }
}

fn fits(package: &Map<String, Value>, name: &str, wanted: &Value) -> bool {
    let (Some(is), Some(wanted)) = (package.get(name), wanted.as_str()) else { return false };
    match is {
        Value::String(is) => glob(wanted, is),
        Value::Bool(is) => wanted == if *is { "true" } else { "false" },
        is => is.as_f64() == wanted.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdc_clients::Http;
    use sdc_clients::papi::{PackageQuery, Papi};

    use super::*;
    use crate::transport::InProcess;

    #[tokio::test]
    async fn packages_are_found_by_their_fields_and_sorted() {
        let store = Store::default();
        for (n, (name, quota, active)) in [
            ("sdc_volume_nfs_20", 20480, true),
            ("sdc_volume_nfs_10", 10240, true),
            ("other", 1, true),
            ("sdc_volume_nfs_5", 5, false),
        ]
        .into_iter()
        .enumerate()
        {
            let package =
                json!({ "uuid": n.to_string(), "name": name, "quota": quota, "active": active });
            store.put(package.as_object().unwrap().clone());
        }
        let transport = Arc::new(InProcess::new(store));
        let papi = Papi::new(Http::with_transport("http://papi.sim", "t/1", transport).unwrap());
        let query = PackageQuery {
            active: Some(true),
            name: Some("sdc_volume_nfs*".into()),
            sort: Some("quota".into()),
        };
        let found = papi.list_packages(&query).await.unwrap();
        assert_eq!(found.iter().map(|it| it.quota).collect::<Vec<_>>(), [Some(10240), Some(20480)]);
        assert_eq!(papi.get_package("3").await.unwrap().name, "sdc_volume_nfs_5");
        assert!(papi.get_package("9").await.unwrap_err().is_not_found_resource());
    }
}
