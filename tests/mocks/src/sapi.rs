// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock SAPI: applications, services and instances, and what config-agent reads of an instance. A second
//! `POST /instances` of a uuid replaces the first, and what it does not repeat is gone. Agents are not deployed; the VM
//! of another instance is made before the answer, with the params of application, service and instance.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::faults::{self, Listed};
use crate::records::{Keeper, Record, Records};
use crate::restify::Endpoint;
use crate::router::{Answer, Router, Way};

/// The records of a mock, with its rules and log. Clones share all of it.
#[derive(Clone, Default)]
pub struct Store(Records, Arc<OnceLock<Hands>>);

/// Makes the VM of an instance, from its params with its uuid, or says why it could not.
pub type Hands =
    Arc<dyn Fn(Map<String, Value>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.0).finish_non_exhaustive()
    }
}

/// A mock SAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without applications. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}

/// The fields by which each kind is listed. A record is of the first kind whose mark it has.
const KINDS: [(&str, &str, &[&str]); 3] = [
    ("instances", "service_uuid", &["service_uuid"]),
    ("services", "application_uuid", &["name", "application_uuid", "type"]),
    ("applications", "name", &["name", "owner_uuid"]),
];

/// Returns the index of a record's kind in [`KINDS`].
fn kind(record: &Record) -> Option<usize> {
    KINDS.iter().position(|(_, mark, _)| record.contains_key(*mark))
}

fn text<'a>(record: &'a Record, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Store {
    /// Adds an application, a service or an instance, or changes the fields of the one that has its uuid.
    pub fn put(&self, record: Record) {
        self.0.put(record);
    }

    /// Adds an application; returns its uuid.
    pub fn application(&self, name: &str, metadata: Value) -> String {
        self.add(json!({ "name": name, "owner_uuid": OWNER, "metadata": metadata }))
    }

    /// Adds a service of an application; returns its uuid.
    pub fn service(&self, application: &str, name: &str, kind: &str) -> String {
        self.add(json!({ "name": name, "application_uuid": application, "type": kind }))
    }

    fn add(&self, record: Value) -> String {
        let Value::Object(mut record) = record else { return String::new() };
        let uuid = uuid::Uuid::new_v4().to_string();
        record.insert("uuid".to_owned(), json!(uuid));
        self.0.put(record);
        uuid
    }

    /// From now on this makes the VMs of instances; the first that is set stays.
    pub fn set_hands(&self, hands: Hands) {
        drop(self.1.set(hands));
    }

    /// The params of an instance that is a VM: those of its application, its service and itself, each over the one
    /// before.
    fn vm(&self, instance: &Record) -> Option<Map<String, Value>> {
        let service = self.get(text(instance, "service_uuid"))?;
        if text(&service, "type") == "agent" {
            return None;
        }
        let application = self.get(text(&service, "application_uuid")).unwrap_or_default();
        let mut vm = Map::new();
        for record in [&application, &service, instance] {
            vm.extend(record.get("params").and_then(Value::as_object).cloned().unwrap_or_default());
        }
        vm.insert("uuid".to_owned(), json!(text(instance, "uuid")));
        Some(vm)
    }

    /// An application, a service or an instance.
    pub fn get(&self, uuid: &str) -> Option<Record> {
        self.0.get(uuid)
    }

    /// What config-agent reads of an instance: the metadata of its application, its service and itself, each
    /// over the one before, and the names of manifests that SAPI has itself.
    pub fn config(&self, instance: &str) -> Option<Value> {
        let of_kind = |uuid: &str, wanted| self.get(uuid).filter(|it| kind(it) == Some(wanted));
        let instance = of_kind(instance, 0)?;
        let service = of_kind(text(&instance, "service_uuid"), 1)?;
        let application = self.get(text(&service, "application_uuid")).unwrap_or_default();
        let mut metadata = Map::new();
        for record in [&application, &service, &instance] {
            metadata.extend(
                record.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
            );
        }
        Some(json!({ "manifests": [], "metadata": metadata }))
    }

    /// All of them.
    pub fn all(&self) -> Vec<Record> {
        self.0.all()
    }

    fn list(&self, wanted: usize, way: &Way) -> Answer {
        let (_, _, fields) = KINDS[wanted];
        let asked = |field: &str| way.query.get(field).and_then(Value::as_str).map(str::to_owned);
        let fits = |record: &Record| {
            fields.iter().all(|field| asked(field).is_none_or(|value| text(record, field) == value))
        };
        let all = self.0.all().into_iter().filter(|record| kind(record) == Some(wanted));
        Answer::ok(json!(all.filter(fits).collect::<Vec<_>>()))
    }

    fn create(&self, wanted: usize, way: &Way) -> Answer {
        let (_, mark, _) = KINDS[wanted];
        let needs: &[&str] = if wanted == 0 { &[mark] } else { &["name", mark] };
        if let Some(missing) =
            needs.iter().find(|key| !way.given.get(**key).is_some_and(Value::is_string))
        {
            return Answer::error(409, "MissingParameter", format!("missing {missing}"));
        }
        let mut record: Record =
            way.given.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let parent = (wanted < 2).then(|| text(&record, mark).to_owned());
        if parent.is_some_and(|uuid| self.get(&uuid).is_none_or(|it| kind(&it) != Some(wanted + 1)))
        {
            return Answer::error(409, "InvalidArgument", format!("{mark} names nobody"));
        }
        record.entry("uuid").or_insert_with(|| json!(uuid::Uuid::new_v4().to_string()));
        match self.get(text(&record, "uuid")) {
            Some(_) => self.0.replace(record.clone()),
            None => self.0.put(record.clone()),
        }
        Answer::ok(Value::Object(record))
    }

    /// `PUT` with an `action`: `params`, `metadata` and `manifests` are changed key by key, replaced, or lose keys.
    fn change(&self, mut record: Record, way: &Way) -> Answer {
        let action = way.given.get("action").and_then(Value::as_str).unwrap_or("update");
        for group in ["params", "metadata", "manifests"] {
            let Some(given) = way.given.get(group).and_then(Value::as_object) else { continue };
            let known = record.entry(group).or_insert_with(|| json!({}));
            let Some(known) = known.as_object_mut() else { continue };
            match action {
                "update" => known.extend(given.clone()),
                "replace" => known.clone_from(given),
                "delete" => known.retain(|key, _| !given.contains_key(key)),
                _ => {
                    return Answer::error(
                        409,
                        "InvalidArgument",
                        format!("invalid action: {action}"),
                    );
                }
            }
        }
        self.0.replace(record.clone());
        Answer::ok(Value::Object(record))
    }
}

/// Who owns the applications.
const OWNER: &str = "00000000-0000-4000-8000-0000000000ad";

impl Keeper for Store {
    const SERVER: &'static str = "Services API";

    const ROUTER: Router = Router {
        endpoints: &[
            Endpoint::new("/ping", "GET", ()),
            Endpoint::new("/mode", "GET", ()),
            Endpoint::new("/applications", "GET, HEAD, POST", ()),
            Endpoint::new("/applications/{uuid?}", "GET, HEAD, PUT, DELETE", ()),
            Endpoint::new("/services", "GET, HEAD, POST", ()),
            Endpoint::new("/services/{uuid?}", "GET, HEAD, PUT, DELETE", ()),
            Endpoint::new("/instances", "GET, HEAD, POST", ()),
            Endpoint::new("/instances/{uuid?}", "GET, HEAD, PUT, DELETE", ()),
            Endpoint::new("/configs/{uuid?}", "GET, HEAD", ()),
        ],
        versions: &[[1, 0, 0], [2, 0, 0]],
        not_acceptable: None,
        names_query: false,
    };

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds applications, services and instances: an array"),
        ("GET", "dump", "the applications, services and instances"),
        ("POST", "reset", "drops them; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.0
    }

    fn before_answer(&self, way: &Way, answer: Answer) -> BoxFuture<'_, Answer> {
        let made = (way.method == "POST" && way.route == "/instances" && answer.status == 200)
            .then(|| answer.body.as_ref()?.as_object())
            .flatten();
        let vm = made.and_then(|instance| self.vm(instance));
        Box::pin(async move {
            let (Some(hands), Some(vm)) = (self.1.get(), vm) else { return answer };
            match hands(vm).await {
                Ok(()) => answer,
                Err(why) => Answer::error(500, "InternalError", why),
            }
        })
    }

    fn operate(&self, way: &Way) -> Option<Answer> {
        let name = way.route.trim_start_matches('/').split('/').next().unwrap_or_default();
        let wanted = KINDS.iter().position(|(kind, _, _)| *kind == name);
        let unknown = || Answer::not_found("Object not found");
        Some(match (wanted, way.method.as_str(), way.id.as_str()) {
            (None, _, _) if name == "ping" => Answer::ok(
                json!({ "mode": "full", "storType": "MorayStorage", "storAvailable": true }),
            ),
            (None, _, _) if name == "mode" => Answer::ok(json!("full")),
            (None, _, uuid) => self.config(uuid).map_or_else(unknown, |config| {
                let mut hash = DefaultHasher::new();
                config.to_string().hash(&mut hash);
                Answer::ok(config).with("etag", format!("{:x}", hash.finish()))
            }),
            (Some(wanted), "GET" | "HEAD", "") => self.list(wanted, way),
            (Some(wanted), "POST", "") => self.create(wanted, way),
            (Some(wanted), method, uuid) => {
                match self.get(uuid).filter(|it| kind(it) == Some(wanted)) {
                    None => unknown(),
                    Some(record) if ["GET", "HEAD"].contains(&method) => {
                        Answer::ok(Value::Object(record))
                    }
                    Some(record) if method == "PUT" => self.change(record, way),
                    Some(_) => Answer::not_kept("nothing of SAPI is deleted"),
                }
            }
        })
    }
}
