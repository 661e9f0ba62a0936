// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! IMGAPI: the images that VMs are made from.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let app = axum::Router::new().fallback(|| async {
//! #     let body = serde_json::json!({ "code": "ResourceNotFound", "message": "image not found" });
//! #     (axum::http::StatusCode::NOT_FOUND, axum::Json(body))
//! # });
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}", listener.local_addr()?);
//! # tokio::spawn(async move { axum::serve(listener, app).await });
//! let imgapi = sdc_clients::imgapi::Imgapi::new(sdc_clients::Http::new(&url, "my-service/1.0")?);
//! match imgapi.get_image("00000000-0000-4000-8000-000000000001").await {
//!     Ok(image) => println!("{} is {}", image.name, image.state),
//!     Err(e) if e.is_not_found_resource() => println!("it was never imported"),
//!     Err(e) => return Err(e.into()),
//! }
//! # Ok(()) }
//! ```

use ::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT};
use crate::records::{Unreadable, records};

/// An image: the fields this project reads, and all others as they came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The image.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `active`, `unactivated`, `disabled`, `creating` or `failed`; an open set of words.
    pub state: String,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A client of IMGAPI.
#[derive(Debug, Clone)]
pub struct Imgapi {
    http: Http,
}

impl Imgapi {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Imgapi {
        Imgapi { http }
    }

    /// One image.
    pub async fn get_image(&self, uuid: &str) -> Result<Image, Error> {
        let reply = self.http.execute(Call::get(&["images", uuid])).await?;
        let image: Image = reply.json("an image")?;
        if image.uuid != uuid {
            return Err(reply.unexpected(&format!("the image {uuid}")));
        }
        Ok(image)
    }

    /// The active images of this name, and those that cannot be read.
    pub async fn list_images(&self, name: &str) -> Result<(Vec<Image>, Unreadable), Error> {
        let call = Call::get(&["images"]).query("name", name).query("state", "active");
        records(&self.http.execute(call.timeout(LIST_TIMEOUT)).await?, "an array of images")
    }

    /// Tells IMGAPI to fetch an image from the image server at `source`. It may take long after the answer. The
    /// owner that the image has there need not be known here.
    pub async fn import_remote_image(&self, uuid: &str, source: &str) -> Result<(), Error> {
        let call = Call::new(Method::POST, &["images", uuid]).json(&Map::new());
        let call = call.query("action", "import-remote").query("source", source);
        self.http.execute(call.query("skip_owner_check", "true")).await?;
        Ok(())
    }
}
