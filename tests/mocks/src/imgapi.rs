// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The mock IMGAPI: the images, and the import of one from elsewhere, which is there at once.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Map, Value, json};

use crate::faults::{self, Listed};
use crate::records::{Keeper, Records, not_found};
use crate::restify;

/// The images of a mock, with its rules and log. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Store(Records);

/// A mock IMGAPI on a socket.
pub type Server = faults::Server<Store>;

impl Server {
    /// Starts one without images. Port 0 takes a free port.
    pub async fn start(listen: SocketAddr) -> std::io::Result<Self> {
        Self::with_store(listen, Store::default()).await
    }
}

impl Store {
    /// Adds an image, or changes the fields of the one that has its uuid.
    pub fn put(&self, image: Map<String, Value>) {
        self.0.put(image);
    }

    /// Drops all images.
    pub fn reset(&self) {
        self.0.clear();
    }
}

impl Keeper for Store {
    const SERVER: &'static str = "IMGAPI";

    const DOORS: &'static [Listed] = &[
        ("POST", "seed", "adds images: an array; of a known uuid the fields are changed"),
        ("GET", "dump", "the images"),
        ("POST", "reset", "drops the images; fault rules and requests stay"),
    ];

    fn records(&self) -> &Records {
        &self.0
    }

    fn operate(&self, request: &Request<Bytes>) -> (u16, Value) {
        let path = request.uri().path();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let query = restify::from_query(request.uri().query().unwrap_or_default());
        match (request.method(), parts.as_slice()) {
            (&Method::GET, ["ping"]) => (200, json!({ "ping": "pong" })),
            (&Method::GET, ["images"]) => (200, json!(self.0.all())),
            (&Method::GET, ["images", uuid]) => match self.0.get(uuid) {
                Some(image) => (200, json!(image)),
                None => not_found("image not found"),
            },
            (&Method::POST, ["images", uuid])
                if query.get("action").is_some_and(|it| it == "import-remote") =>
            {
                let image = json!({ "v": 2, "uuid": uuid, "name": "imported", "version": "1.0.0",
                    "state": "active", "disabled": false, "public": true, "type": "zone-dataset",
                    "os": "smartos", "requirements": {}, "files": [], "source": query.get("source") });
                self.put(image.as_object().cloned().unwrap_or_default());
                let job = uuid::Uuid::new_v4().to_string();
                (200, json!({ "image_uuid": uuid, "job_uuid": job }))
            }
            _ => not_found(&format!("{path} does not exist")),
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

    #[tokio::test]
    async fn an_image_is_there_once_it_was_imported() {
        let transport = Arc::new(InProcess::new(Store::default()));
        let http = Http::with_transport("http://imgapi.sim", "t/1", transport).unwrap();
        let imgapi = Imgapi::new(http);
        assert!(imgapi.get_image("i").await.unwrap_err().is_not_found_resource());
        imgapi.import_remote_image("i", "https://images.example.com").await.unwrap();
        let image = imgapi.get_image("i").await.unwrap();
        assert_eq!(
            (&*image.state, &image.other["source"]),
            ("active", &json!("https://images.example.com"))
        );
    }
}
