// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock PAPI: the packages, found by their fields and sorted by one of them, as the real service does it
//! (`docs/contract/peers.md`). Nobody makes packages here but [`Store::put`].

use std::cmp::Ordering;
use std::net::SocketAddr;

use serde_json::{Map, Value, json};

use crate::faults::{self, Listed, glob};
use crate::records::{Keeper, Records};
use crate::restify::{self, Endpoint, Params};
use crate::router::{Answer, Router, Way};

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
    /// All packages.
    pub fn all(&self) -> Vec<Map<String, Value>> {
        self.0.all()
    }

    /// Adds a package, or changes the fields of the one that has its uuid. A new one gets what each has.
    pub fn put(&self, mut package: Map<String, Value>) {
        let known = package.get("uuid").and_then(Value::as_str).and_then(|uuid| self.0.get(uuid));
        if known.is_none() {
            let now = json!(restify::iso(self.0.now_ms()));
            for (name, value) in
                [("version", json!("1.0.0")), ("created_at", now.clone()), ("updated_at", now)]
            {
                package.entry(name).or_insert(value);
            }
            package.entry("v").or_insert(json!(1));
        }
        self.0.put(package);
    }

    /// Drops all packages.
    pub fn reset(&self) {
        self.0.clear();
    }
}

impl Keeper for Store {
    const SERVER: &'static str = "SmartDataCenter Package API";

    const HEADERS: &'static [(&'static str, &'static str)] = &[("api-version", "7.2.5")];

    const ROUTER: Router = Router {
        endpoints: &[
            Endpoint::new("/ping", "GET", ()),
            Endpoint::new("/packages", "GET, HEAD, POST", ()),
            Endpoint::new("/packages/{uuid?}", "GET, HEAD, PUT, DELETE", ()),
        ],
        versions: &[[7, 0, 0]],
        not_acceptable: Some(crate::restify::SERVES),
        names_query: false,
    };

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds packages: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the packages"),
        ("POST", "reset", "drops the packages; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.0
    }

    fn seed(&self, package: Map<String, Value>) {
        self.put(package);
    }

    fn operate(&self, way: &Way) -> Option<Answer> {
        Some(match (way.route, way.method.as_str()) {
            ("/ping", _) => Answer::ok(json!({ "pid": std::process::id(), "backend": "up" })),
            ("/packages", "GET" | "HEAD") => {
                list(self.0.all(), &way.query).unwrap_or_else(|refused| refused)
            }
            ("/packages/{uuid?}", "GET" | "HEAD") => {
                let owners = way.query.get("owner_uuids").filter(|it| !restify::falsy(it));
                let is_shown = |package: &Map<String, Value>| {
                    owners.is_none_or(|owners| is_for(package, &values(owners)))
                };
                match self.0.get(&way.id).filter(is_shown) {
                    Some(package) => Answer::ok(Value::Object(package)),
                    None => Answer::not_found(format!("Package {} does not exist", way.id)),
                }
            }
            _ => Answer::not_kept("packages are seeded"),
        })
    }
}

/// How a field is searched.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Number,
    Bool,
    /// The storage has no index for it.
    Unindexed,
    /// The answer is 404 without a body.
    Broken,
}

const FIELDS: [(&str, Kind); 33] = [
    ("uuid", Kind::Text),
    ("name", Kind::Text),
    ("version", Kind::Text),
    ("brand", Kind::Text),
    ("os", Kind::Text),
    ("group", Kind::Text),
    ("description", Kind::Text),
    ("common_name", Kind::Text),
    ("parent", Kind::Text),
    ("billing_tag", Kind::Text),
    ("networks", Kind::Text),
    ("owner_uuids", Kind::Text),
    ("created_at", Kind::Number),
    ("updated_at", Kind::Number),
    ("vcpus", Kind::Number),
    ("cpu_cap", Kind::Number),
    ("max_lwps", Kind::Number),
    ("max_physical_memory", Kind::Number),
    ("max_swap", Kind::Number),
    ("quota", Kind::Number),
    ("zfs_io_priority", Kind::Number),
    ("fss", Kind::Number),
    ("cpu_burst_ratio", Kind::Number),
    ("ram_ratio", Kind::Number),
    ("v", Kind::Number),
    ("active", Kind::Bool),
    ("flexible_disk", Kind::Bool),
    ("default", Kind::Unindexed),
    ("disks", Kind::Unindexed),
    ("alloc_server_spread", Kind::Unindexed),
    ("overprovision_cpu", Kind::Unindexed),
    ("traits", Kind::Broken),
    ("min_platform", Kind::Broken),
];

/// The packages that a query asks for, in its order; or why it is refused.
fn list(mut found: Vec<Map<String, Value>>, query: &Params) -> Result<Answer, Answer> {
    let not_valid = || Answer::error(409, "InvalidArgument", "Provided search filter is not valid");
    if query.get("filter").is_some_and(|filter| !restify::falsy(filter)) {
        return Err(Answer::not_kept("LDAP filters"));
    }
    for (name, wanted) in query {
        // What is no field of a package is ignored.
        let Some((_, kind)) = FIELDS.iter().find(|(field, _)| field == name) else { continue };
        let wanted = values(wanted);
        match kind {
            Kind::Unindexed => return Err(not_valid()),
            Kind::Broken => return Err(Answer::empty(404)),
            Kind::Bool if wanted.iter().any(|it| truth(it).is_none()) => return Err(not_valid()),
            _ if name == "owner_uuids" => found.retain(|package| is_for(package, &wanted)),
            kind => found.retain(|package| {
                let is = package.get(name).unwrap_or(&Value::Null);
                wanted.iter().any(|wanted| fits(is, *kind, wanted))
            }),
        }
    }
    let text = |name: &str| query.get(name).and_then(Value::as_str);
    if let Some(field) = text("sort") {
        let key = |package: &Map<String, Value>| package.get(field).cloned().unwrap_or_default();
        match FIELDS.iter().find(|(name, _)| *name == field) {
            Some((_, Kind::Text | Kind::Number | Kind::Bool)) => {}
            Some(_) => {
                return Err(Answer::storage("Invalid SQL: DEFAULT is not allowed in this context"));
            }
            None => return Err(Answer::storage(&format!("column \"{field}\" does not exist"))),
        }
        let is_down = text("order").is_some_and(|order| order.eq_ignore_ascii_case("DESC"));
        found.sort_by(|a, b| compare(&key(a), &key(b)));
        if is_down {
            found.reverse();
        }
    }
    let number = |name: &str| match text(name) {
        None => Ok(None),
        Some(text) => text.parse::<usize>().map(Some).map_err(|_| {
            Answer::storage(&format!(
                "findObjects expects \"options\" (args[2]) to be a valid options object: \
                 options.{name} should match pattern \"^[0-9]+$\""
            ))
        }),
    };
    let (limit, offset) = (number("limit")?.unwrap_or(1000), number("offset")?.unwrap_or(0));
    let count = found.len();
    let page: Vec<_> = found.into_iter().skip(offset).take(limit).collect();
    // The storage counts on the rows that it gives.
    let count = if page.is_empty() { 0 } else { count };
    Ok(Answer::ok(json!(page)).with("x-resource-count", count))
}

/// Returns true if the package is for one of these owners, or for all.
fn is_for(package: &Map<String, Value>, owners: &[String]) -> bool {
    let own = package.get("owner_uuids").and_then(Value::as_array);
    own.is_none_or(|own| own.iter().any(|own| owners.iter().any(|owner| own == owner)))
}

/// The values of a parameter: one, one for each time that it is given, or a list in JSON.
fn values(given: &Value) -> Vec<String> {
    let all = match given {
        Value::Array(all) => all.clone(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Array(all)) => all,
            _ => vec![given.clone()],
        },
        other => vec![other.clone()],
    };
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    all.into_iter().map(text).collect()
}

fn truth(text: &str) -> Option<bool> {
    text.to_ascii_lowercase().parse().ok()
}

fn fits(is: &Value, kind: Kind, wanted: &str) -> bool {
    match (kind, is) {
        (_, Value::Array(all)) => all.iter().any(|is| fits(is, kind, wanted)),
        (Kind::Text, Value::String(is)) => glob(wanted, is),
        (Kind::Number, Value::Number(is)) => is.as_f64() == wanted.parse().ok(),
        (Kind::Bool, Value::Bool(is)) => truth(wanted) == Some(*is),
        _ => false,
    }
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        // What a package lacks comes last.
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Greater,
        (_, Value::Null) => Ordering::Less,
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdc_clients::Http;
    use sdc_clients::papi::{PackageQuery, Papi};

    use super::*;
    use crate::transport::InProcess;

    fn papi() -> Papi {
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
        Papi::new(Http::with_transport("http://papi.sim", "t/1", transport).unwrap())
    }

    #[tokio::test]
    async fn packages_are_found_by_their_fields_and_sorted() {
        let papi = papi();
        let query = PackageQuery {
            active: Some(true),
            name: Some("sdc_volume_nfs*".into()),
            sort: Some("quota".into()),
        };
        let (found, _) = papi.list_packages(&query).await.unwrap();
        assert_eq!(found.iter().map(|it| it.quota).collect::<Vec<_>>(), [Some(10240), Some(20480)]);
        assert_eq!(papi.get_package("3").await.unwrap().name, "sdc_volume_nfs_5");
        assert!(papi.get_package("9").await.unwrap_err().is_not_found_resource());
    }

    #[tokio::test]
    async fn a_package_has_what_each_has() {
        let package = papi().get_package("0").await.unwrap();
        let has = |name: &str| package.other.contains_key(name);
        assert!(["version", "created_at", "updated_at", "v"].into_iter().all(has));
    }
}
