// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is read and written of SAPI: services, their instances, and the metadata of both.

use std::time::Duration;

use sdc_clients::http::Call;
use sdc_clients::{Error, Http};
use serde_json::{Map, Value, json};

/// A zone is made within this time.
const PROVISIONED: Duration = Duration::from_secs(1800);

/// A service or an instance.
pub type Object = Map<String, Value>;

/// SAPI.
#[derive(Debug)]
pub struct Sapi(Http);

/// Returns a text of an object; empty where it has none.
pub fn text<'a>(of: &'a Object, group: &str, key: &str) -> &'a str {
    let group = if group.is_empty() { Some(of) } else { of.get(group).and_then(Value::as_object) };
    group.and_then(|it| it.get(key)).and_then(Value::as_str).unwrap_or_default()
}

impl Sapi {
    /// Asks SAPI at this address.
    pub fn new(http: Http) -> Sapi {
        Sapi(http)
    }

    async fn one(&self, call: Call) -> Result<Option<Object>, Error> {
        let found: Vec<Object> = self.0.execute(call).await?.json("an array of objects")?;
        Ok(found.into_iter().next())
    }

    /// Returns the application of the data centre.
    pub async fn application(&self) -> Result<Option<Object>, Error> {
        self.one(Call::get(&["applications"]).query("name", "sdc")).await
    }

    /// Returns the service with this name.
    pub async fn service(&self, name: &str) -> Result<Option<Object>, Error> {
        self.one(Call::get(&["services"]).query("name", name)).await
    }

    /// Returns the instances of a service.
    pub async fn instances(&self, service: &str) -> Result<Vec<Object>, Error> {
        let call = Call::get(&["instances"]).query("service_uuid", service);
        self.0.execute(call).await?.json("an array of instances")
    }

    /// Makes a service, or an instance; SAPI answers when the zone of that is there, or says why not.
    pub async fn create(&self, kind: &str, object: &Object) -> anyhow::Result<Object> {
        let call = Call::new(http::Method::POST, &[kind]).timeout(PROVISIONED).json(object);
        let reply = self.0.execute(call).await.map_err(|error| {
            let said = error.peer_text().unwrap_or_default();
            anyhow::Error::from(error).context(format!("SAPI says: {said}"))
        })?;
        Ok(reply.object()?)
    }

    /// Sets one key of `params` or `metadata`.
    pub async fn set(
        &self,
        at: [&str; 2],
        group: &str,
        key: &str,
        value: Value,
    ) -> Result<(), Error> {
        let body = json!({ "action": "update", group: { key: value } });
        self.0.execute(Call::new(http::Method::PUT, &at).json(&body)).await.map(drop)
    }

    /// Removes one key of the metadata.
    pub async fn remove(&self, at: [&str; 2], key: &str) -> Result<(), Error> {
        let body = json!({ "action": "delete", "metadata": { key: "" } });
        self.0.execute(Call::new(http::Method::PUT, &at).json(&body)).await.map(drop)
    }
}
