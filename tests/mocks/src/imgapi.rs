// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock IMGAPI: the images, as a process of the real service shows them (`docs/contract/peers.md`): what it
//! answered it remembers for five minutes, whatever another process does meanwhile. An import is a job, and the
//! image is there when that has ended.

mod imports; // images that other servers have, and the jobs that fetch them

mod search; // the parameters of GET /images

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::faults::{self, Door, Listed, bad};
use crate::records::{Keeper, Record, Records};
use crate::restify::{self, Endpoint};
use crate::router::{Answer, Router, Way};
use crate::workflow;
use imports::Imports;

/// How long an answer is remembered.
const REMEMBERED_MS: i64 = 300_000;

/// The images of a mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Store {
    images: Records,
    imports: Arc<Mutex<Imports>>,
    cache: Arc<Mutex<Cache>>,
}

/// What the process answered, with the time when it forgets that.
#[derive(Debug, Default)]
struct Cache {
    lists: BTreeMap<String, (i64, Vec<Record>)>,
    images: BTreeMap<String, (i64, Record)>,
}

/// A mock IMGAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without images. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}

impl Store {
    /// Adds an image, or changes the fields of the one that has its uuid, as another process of IMGAPI does it. A
    /// new one gets what each has.
    pub fn put(&self, mut image: Map<String, Value>) {
        let known = image.get("uuid").and_then(Value::as_str).and_then(|it| self.images.get(it));
        if known.is_none() {
            complete(&mut image, self.images.now_ms());
        }
        self.images.put(image);
    }

    /// From now on the image server at `source` has this image.
    pub fn add_remote(&self, source: &str, image: Map<String, Value>) {
        self.imports().add_remote(source, image);
    }

    /// The owners that UFDS knows: an import of another's image fails, unless it is told not to look.
    pub fn know_owner(&self, owner: &str) {
        self.imports().owners.push(owner.to_owned());
    }

    /// Imports are jobs of this workflow API from now on.
    pub fn keep_jobs(&self, jobs: workflow::Store, url: &str) {
        self.imports().jobs = Some((jobs, url.to_owned()));
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.images.advance(by);
    }

    /// Drops all images, and what the process remembers.
    pub fn reset(&self) {
        self.images.clear();
        *self.cache() = Cache::default();
    }

    fn imports(&self) -> MutexGuard<'_, Imports> {
        self.imports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The imports whose time has come are there. They came by this process: it forgets what it knew.
    fn arrive(&self) {
        let now = self.images.now_ms();
        let arrived = self.imports().arrived(now);
        if !arrived.is_empty() {
            *self.cache() = Cache::default();
        }
        for mut image in arrived {
            complete(&mut image, now);
            self.images.put(image);
        }
    }

    /// One image, in any state, as this process knows it.
    fn image(&self, uuid: &str) -> Option<Record> {
        let now = self.images.now_ms();
        if let Some((until, image)) = self.cache().images.get(uuid)
            && now < *until
        {
            return Some(image.clone());
        }
        let image = self.images.get(uuid)?;
        self.cache().images.insert(uuid.to_owned(), (now + REMEMBERED_MS, image.clone()));
        Some(image)
    }

    fn list(&self, way: &Way) -> Option<Answer> {
        let now = self.images.now_ms();
        let wanted = match search::wanted(&way.query)? {
            Ok(wanted) => wanted,
            Err(refused) => return Some(refused),
        };
        let since = match wanted.marker() {
            None => None,
            Some(marker) if restify::is_uuid(marker) => match self.image(marker) {
                Some(image) => image.get("published_at").and_then(Value::as_str).map(str::to_owned),
                None => return Some(Answer::not_found(format!("image {marker} not found"))),
            },
            Some(time) => Some(time.to_owned()),
        };
        let key = json!(way.query).to_string();
        let remembered = self.cache().lists.get(&key).filter(|(until, _)| now < *until).cloned();
        let found = match remembered {
            Some((_, found)) => found,
            None => {
                let found = wanted.page(self.images.all(), since.as_deref());
                self.cache().lists.insert(key, (now + REMEMBERED_MS, found.clone()));
                found
            }
        };
        let shown = found.iter().map(|image| shown(image, wanted.for_admins));
        Some(Answer::ok(shown.collect()))
    }

    fn read(&self, way: &Way) -> Answer {
        let account = way.query.get("account").and_then(Value::as_str);
        if let Some(account) = account.filter(|account| !restify::is_uuid(account)) {
            let message = format!("invalid \"account\": not a UUID: \"{account}\"");
            return search::invalid("account", message);
        }
        let Some(image) = self.image(&way.id) else {
            return Answer::not_found(format!("image {} not found", way.id));
        };
        if account.is_some_and(|account| !search::may_see(&image, account)) {
            return Answer::not_found("image not found");
        }
        let body = shown(&image, way.query.get("inclAdminFields").is_some_and(|it| it == "true"));
        let tag = format!("\"{:016x}\"", fnv(body.to_string().as_bytes()));
        Answer::ok(body).with("etag", tag)
    }
}

/// Gives an image what each has.
fn complete(image: &mut Map<String, Value>, now_ms: i64) {
    for (name, value) in [
        ("v", json!(2)),
        ("name", json!("image")),
        ("version", json!("1.0.0")),
        ("owner", json!("930896af-bf8c-48d4-885c-6573a94b1853")),
        ("state", json!("active")),
        ("public", json!(true)),
        ("type", json!("zone-dataset")),
        ("os", json!("smartos")),
    ] {
        image.entry(name).or_insert(value);
    }
    let state = image.get("state").cloned().unwrap_or_default();
    image.entry("disabled").or_insert(json!(state == "disabled"));
    if state == "unactivated" {
        image.entry("files").or_insert(json!([]));
        return;
    }
    image.entry("published_at").or_insert_with(|| json!(restify::iso(now_ms)));
    let file = json!({ "sha1": "9e32fdfacf2faecd84dd128c05e5a4328e86cf09", "size": 204, "compression": "gzip" });
    image.entry("files").or_insert_with(|| json!([file]));
}

/// What is shown of an image: where its files are is for operators.
fn shown(image: &Record, for_admins: bool) -> Value {
    let mut image = image.clone();
    for file in image.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten() {
        if let (true, Some(file)) = (for_admins, file.as_object_mut()) {
            file.entry("stor").or_insert_with(|| json!("local"));
        }
    }
    Value::Object(image)
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What the door `remote` takes.
#[derive(Deserialize)]
struct Remote {
    source: String,
    image: Map<String, Value>,
}

impl Keeper for Store {
    const SERVER: &'static str = "IMGAPI/4.13.1";

    const ROUTER: Router = Router {
        endpoints: &[
            Endpoint::new("/ping", "GET", ()),
            Endpoint::new("/images", "GET, POST", ()),
            Endpoint::new("/images/{uuid=uuid}", "GET, POST, DELETE", ()),
        ],
        versions: &[[1, 0, 0], [2, 0, 0]],
        not_acceptable: None,
        names_query: true,
    };

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds images: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the images"),
        ("POST", "reset", "drops the images; fault rules and requests stay"),
        ("POST", "remote", "an image that another server has: {source, image}"),
    ];

    fn records(&self) -> &Records {
        &self.images
    }

    fn seed(&self, image: Record) {
        self.put(image);
    }

    fn clear(&self) {
        self.reset();
    }

    fn own_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        if (request.method(), what) != (&Method::POST, "remote") {
            return Ok(None);
        }
        let remote: Remote = serde_json::from_slice(request.body()).map_err(bad)?;
        self.add_remote(&remote.source, remote.image);
        Ok(Some(json!({})))
    }

    fn operate(&self, way: &Way) -> Option<Answer> {
        self.arrive();
        match (way.route, way.method.as_str()) {
            ("/ping", _) => Some(Answer::ok(
                json!({ "ping": "pong", "version": "4.13.1", "imgapi": true, "pid": std::process::id() }),
            )),
            ("/images", "GET") => self.list(way),
            ("/images/{uuid=uuid}", "GET") => Some(self.read(way)),
            ("/images/{uuid=uuid}", "POST")
                if way.query.get("action").is_some_and(|it| it == "import-remote") =>
            {
                let is_known = self.images.get(&way.id).is_some();
                Some(self.imports().order(way, is_known, self.images.now_ms()))
            }
            _ => Some(Answer::not_kept("images are seeded or imported")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdc_clients::Http;
    use sdc_clients::imgapi::Imgapi;

    use super::*;
    use crate::transport::InProcess;

    const IMAGE: &str = "06f07fa7-ddcf-4751-84d2-c07549264f16";
    const SOURCE: &str = "https://images.example.com";

    fn imgapi(store: &Store) -> Imgapi {
        let transport = Arc::new(InProcess::new(store.clone()));
        Imgapi::new(Http::with_transport("http://imgapi.sim", "t/1", transport).unwrap())
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[tokio::test] // D3
    async fn an_image_is_there_once_its_job_has_ended() {
        let store = Store::default();
        let imgapi = imgapi(&store);
        assert!(imgapi.get_image(IMAGE).await.unwrap_err().is_not_found_resource());
        let refused = imgapi.import_remote_image(IMAGE, SOURCE).await.unwrap_err();
        assert!(refused.message().contains("Unable to get manifest"), "{refused}");
        store.add_remote(SOURCE, object(json!({"uuid": IMAGE, "name": "remote"})));
        imgapi.import_remote_image(IMAGE, SOURCE).await.unwrap();
        assert!(imgapi.get_image(IMAGE).await.unwrap_err().is_not_found_resource(), "not yet");
        store.advance(Duration::from_secs(2));
        assert_eq!(imgapi.get_image(IMAGE).await.unwrap().state, "active");
    }

    #[tokio::test] // D3, D4
    async fn an_import_of_a_strangers_image_needs_to_say_so() {
        let (store, jobs) = (Store::default(), workflow::Store::default());
        store.keep_jobs(jobs.clone(), "http://workflow.sim");
        let stranger = "dead02c9-da0b-484a-92b9-055a4b268d51";
        store.add_remote(SOURCE, object(json!({"uuid": IMAGE, "owner": stranger})));
        let transport = Arc::new(InProcess::new(store.clone()));
        let http = Http::with_transport("http://imgapi.sim", "t/1", transport).unwrap();
        let order = sdc_clients::http::Call::new(Method::POST, &["images", IMAGE]);
        let order = order.query("action", "import-remote").query("source", SOURCE);
        http.execute(order.json(&json!({}))).await.unwrap();
        store.advance(Duration::from_secs(2));
        let imgapi = imgapi(&store);
        assert!(imgapi.get_image(IMAGE).await.unwrap_err().is_not_found_resource());
        let job = jobs.newest().unwrap();
        assert_eq!(job["execution"], "failed");
        assert_eq!(job["chain_results"][0]["error"]["restCode"], "OwnerDoesNotExist");
        imgapi.import_remote_image(IMAGE, SOURCE).await.unwrap();
        store.advance(Duration::from_secs(2));
        assert_eq!(imgapi.get_image(IMAGE).await.unwrap().state, "active");
    }

    #[tokio::test] // D2
    async fn what_was_answered_is_remembered_for_five_minutes() {
        let store = Store::default();
        let imgapi = imgapi(&store);
        assert!(imgapi.list_images("nfsserver").await.unwrap().0.is_empty());
        store.put(object(json!({"uuid": IMAGE, "name": "nfsserver"})));
        assert!(imgapi.list_images("nfsserver").await.unwrap().0.is_empty(), "of this query");
        assert_eq!(imgapi.get_image(IMAGE).await.unwrap().state, "active");
        store.put(object(json!({"uuid": IMAGE, "state": "disabled"})));
        assert_eq!(imgapi.get_image(IMAGE).await.unwrap().state, "active", "of this image");
        store.advance(Duration::from_millis(300_001));
        assert_eq!(imgapi.get_image(IMAGE).await.unwrap().state, "disabled");
        assert!(imgapi.list_images("nfsserver").await.unwrap().0.is_empty(), "active ones only");
    }
}
