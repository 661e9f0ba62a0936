// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of a request: faults, routing, checks, the operation, headers.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, header};
use serde_json::{Value, json};

use super::admin;
use super::answers::{foreign, ping};
use super::eras::Era;
use super::errors::ApiError;
use super::etag::{self, Verdict};
use super::routes::{self, Form, Route};
use super::store::Store;
use crate::faults::{Action, Canned, Door, Faults, Listed, Recorder, Service};
use crate::restify::{self, BadBody, Found, Params};

/// The version of the imitated service.
const VERSION: [u32; 3] = [1, 4, 3];

/// The outcome of an operation.
enum Done {
    Json(Value, Option<String>),
    NotModified,
    NoContent,
}

impl Service for Store {
    fn parts(&self) -> (&Faults, &Recorder) {
        (self.faults(), self.log())
    }

    const DOORS: &'static [Listed] = admin::DOORS;

    fn side_door(&self, request: &Request<Bytes>, what: &str) -> Door {
        admin::handle(self, request, what)
    }

    fn canned(&self, request: &Request<Bytes>, answer: Canned<'_>) -> Response<Bytes> {
        self.answer(request, answer, None)
    }

    fn route<'a>(
        &'a self,
        request: &'a Request<Bytes>,
        actions: &'a [Action],
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(async move { self.respond(request, actions).await.ok() })
    }
}

impl Store {
    /// Finds the route and runs it; `Err` if the process died of it.
    async fn respond(
        &self,
        request: &Request<Bytes>,
        actions: &[Action],
    ) -> Result<Response<Bytes>, ()> {
        let era = self.era();
        let (method, uri) = (request.method(), request.uri());
        let path = uri.path();
        let Some(found) = routes::find(path, era) else {
            let whole = uri.path_and_query().map_or(path, |whole| whole.as_str());
            let shown = if era == Era::Old2015 { whole } else { path };
            return Ok(restify::no_route(method, shown));
        };
        if !found.endpoint.allows(method) {
            return Ok(restify::not_allowed(method, found.endpoint.methods));
        }
        if let Some(range) = restify::asked_version(request.headers())
            && !restify::version_fits(range, VERSION)
        {
            return Ok(restify::wrong_version(method, path, range));
        }
        let accept = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok());
        let form = routes::form(accept.unwrap_or_default());
        let done = if form == Form::Refused {
            Err(ApiError::Plain(406, "NotAcceptableError", restify::SERVES.to_owned()))
        } else {
            self.operate(request, &found, actions).await
        };
        match done {
            Ok(Done::Json(body, etag)) => {
                let mut response = self.answer(request, (200, Some(&body)), etag);
                if form == Form::Octets {
                    octets(&mut response);
                }
                Ok(response)
            }
            Ok(Done::NotModified) => Ok(self.answer(request, (304, None), None)),
            Ok(Done::NoContent) => Ok(self.answer(request, (204, None), None)),
            Err(ApiError::Died) => Err(()),
            Err(error) => {
                let (status, body) = error.into_parts();
                Ok(self.answer(request, (status, Some(&body)), None))
            }
        }
    }

    async fn operate(
        &self,
        request: &Request<Bytes>,
        found: &Found<Route>,
        actions: &[Action],
    ) -> Result<Done, ApiError> {
        let route = found.endpoint.route;
        let (initializing, era) = {
            let world = self.world();
            (world.initializing, world.era)
        };
        if route == Route::Ping {
            return Ok(Done::Json(ping(era, initializing), None));
        }
        if initializing {
            let message = "Server is still initializing".to_owned();
            return Err(ApiError::Plain(503, "ServiceUnavailableError", message));
        }
        let mut given = restify::from_query(request.uri().query().unwrap_or_default());
        let headers = request.headers();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads {
            check_digest(headers, request.body())?;
            restify::merge_body(&mut given, headers, request.body(), era.old_platform())
                .map_err(bad_body)?;
        }
        match route {
            Route::Nic => {
                given.remove("mac");
                self.one_nic(request.method(), headers, found.part("mac"), &given, actions).await
            }
            Route::Nics | Route::SearchNics if reads => self.list(&given, actions).await,
            Route::Nics => self.create(&given),
            Route::NetworkNics => {
                given.insert("network_uuid".to_owned(), json!(found.part("uuid")));
                self.create(&given)
            }
            _ => self.other(request.method(), headers, found, &given),
        }
    }

    async fn one_nic(
        &self,
        method: &Method,
        headers: &HeaderMap,
        mac: &str,
        given: &Params,
        actions: &[Action],
    ) -> Result<Done, ApiError> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let (era, found) = {
            let world = self.world();
            let found = world.find_nic(mac)?;
            world.shown(found)?;
            (world.era, found.clone())
        };
        if era.has_etags() {
            match etag::judge(headers, reads, &found.etag) {
                Verdict::Go => {}
                Verdict::NotModified => return Ok(Done::NotModified),
                Verdict::Failed(message) => return Err(ApiError::Precondition(message)),
            }
        }
        if reads {
            let world = self.world();
            return Ok(Done::Json(world.nic_json(&found), Some(found.etag)));
        }
        if *method == Method::PUT {
            let (_, errors) = self.world().check_input(given);
            if !errors.is_empty() {
                return Err(ApiError::Invalid(errors));
            }
        }
        let address = self.world().address_version(&found);
        self.meanwhile(found.mac, actions).await;
        let now = self.now_ms();
        let mut world = self.world();
        let current = world.nics.get(&found.mac).map(|nic| nic.etag.clone());
        if *method == Method::DELETE {
            let conditional = era.has_etags() && headers.contains_key("if-match");
            match current {
                None => return Err(ApiError::NotFound("nic")),
                Some(tag) if conditional => {
                    if let Verdict::Failed(message) = etag::judge(headers, false, &tag) {
                        return Err(ApiError::Precondition(message));
                    }
                }
                Some(_) => {}
            }
            world.remove_nic(found.mac);
            return Ok(Done::NoContent);
        }
        match current {
            // NIC and address are one batch: that the address is another version is told as if it were taken.
            Some(tag) if tag == found.etag && world.address_version(&found) != address => {
                Err(ApiError::Invalid(vec![world.taken(&found)]))
            }
            Some(tag) if tag == found.etag => {
                let row = world.update_nic(found.mac, given, now)?;
                Ok(Done::Json(world.nic_json(&row), Some(row.etag)))
            }
            other => Err(ApiError::Storage(format!(
                "napi_nics::{} was expected to have etag \"{}\", but was \"{}\"",
                found.mac,
                found.etag,
                other.as_deref().unwrap_or("null")
            ))),
        }
    }

    /// What happens to the record between the check and the commit of a write.
    async fn meanwhile(&self, mac: u64, actions: &[Action]) {
        let mut delay = self.options().commit_delay;
        for action in actions {
            match action {
                Action::DelayCommit { ms } => delay += Duration::from_millis(*ms),
                Action::ChangeRow => {
                    let now = self.now_ms();
                    // The other writer's own errors are not ours to report.
                    drop(self.world().update_nic(mac, &Params::new(), now));
                }
                Action::DeleteRow => {
                    self.world().remove_nic(mac);
                }
                Action::ChangeAddress => self.world().touch_address(mac),
                _ => {}
            }
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    fn create(&self, given: &Params) -> Result<Done, ApiError> {
        let now = self.now_ms();
        let mut world = self.world();
        let row = world.create_nic(given, now)?;
        Ok(Done::Json(world.nic_json(&row), Some(row.etag)))
    }

    async fn list(&self, given: &Params, actions: &[Action]) -> Result<Done, ApiError> {
        let cap = actions
            .iter()
            .filter_map(|a| if let Action::MaxPage { limit } = a { Some(*limit) } else { None });
        let cap = cap.min().unwrap_or(1000);
        let mut page = self.world().list_nics(given, actions.contains(&Action::RepeatPage), cap)?;
        for action in actions {
            if let Action::ForeignRecord { record } = action {
                page.insert(0, record.clone().unwrap_or_else(foreign));
            }
        }
        let cost = self
            .options()
            .record_cost
            .saturating_mul(u32::try_from(page.len()).unwrap_or(u32::MAX));
        if !cost.is_zero() {
            tokio::time::sleep(cost).await;
        }
        Ok(Done::Json(Value::Array(page), None))
    }

    fn other(
        &self,
        method: &Method,
        headers: &HeaderMap,
        found: &Found<Route>,
        given: &Params,
    ) -> Result<Done, ApiError> {
        let mut world = self.world();
        let route = found.endpoint.route;
        let [uuid, ip, name] = ["uuid", "ip", "name"].map(|name| found.part(name));
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let (body, tagged) = match (route, method.as_str()) {
            (Route::Networks, "POST") => (world.create_network(given, None)?, true),
            (Route::Networks, _) => (world.list_networks(given)?, false),
            (Route::Network, "DELETE") => {
                world.delete_network(uuid)?;
                return Ok(Done::NoContent);
            }
            (Route::Network, "PUT") => (world.update_network(uuid, given)?, true),
            (Route::Network, _) => (world.get_network(uuid, given)?, true),
            (Route::Ips, _) => (world.list_ips(uuid, given)?, false),
            (Route::Ip, "PUT") => (world.update_ip(uuid, ip, given)?, true),
            (Route::Ip, _) => (world.get_ip(uuid, ip)?, true),
            (Route::Pools, "POST") => (world.create_pool(given)?, true),
            (Route::Pools, _) => (world.list_pools(given)?, false),
            (Route::Pool, _) => (world.get_pool(uuid)?, true),
            (Route::Tags, "POST") => (world.create_tag(given)?, false),
            (Route::Tags, _) => (world.list_tags(given)?, false),
            (Route::Tag, "DELETE") => {
                world.delete_tag(name)?;
                return Ok(Done::NoContent);
            }
            (Route::Tag, "PUT") if name == "admin" => {
                return Err(ApiError::invalid("name", "the admin nic tag cannot be changed"));
            }
            (Route::Tag, _) => (world.get_tag(name)?, false),
            (Route::SearchIps, _) => (world.search_ips(given)?, false),
            (Route::FabricVlans, "POST") => (world.create_vlan(found.part("owner"), given)?, false),
            (Route::FabricNetworks, "POST") => {
                let vlan = found.part("vlan").parse().unwrap_or_default();
                (world.create_network(given, Some((found.part("owner"), vlan)))?, true)
            }
            _ => (json!([]), false),
        };
        let stored = match route {
            Route::Ip => world.has_ip(uuid, ip),
            _ => tagged,
        };
        let etag = stored.then(|| etag::of(&body.to_string()));
        if let Some(etag) = etag.as_ref().filter(|_| reads && world.era.has_etags()) {
            match etag::judge(headers, true, etag) {
                Verdict::Go => {}
                Verdict::NotModified => return Ok(Done::NotModified),
                Verdict::Failed(message) => return Err(ApiError::Precondition(message)),
            }
        }
        Ok(Done::Json(body, etag))
    }

    /// An answer of a handled route, with the headers those have.
    fn answer(
        &self,
        request: &Request<Bytes>,
        answer: Canned<'_>,
        etag: Option<String>,
    ) -> Response<Bytes> {
        let mut response = restify::routed(request, "mock-napi", self.now_ms(), answer);
        if let Some(etag) = etag.filter(|_| self.era().has_etags()).and_then(|tag| tag.parse().ok())
        {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response
    }
}

/// The real server prints the object as a text of this kind does.
fn octets(response: &mut Response<Bytes>) {
    let text = Bytes::from_static(b"[object Object]");
    let headers = response.headers_mut();
    let kind = http::HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, text.len().into());
    *response.body_mut() = text;
}

fn bad_body(bad: BadBody) -> ApiError {
    match bad {
        BadBody::Syntax(why) => {
            ApiError::Plain(400, "InvalidContent", format!("Invalid JSON: {why}"))
        }
        BadBody::List | BadBody::NotAnObject => {
            ApiError::invalid("parameters", "Parameters must be objects")
        }
    }
}

fn check_digest(headers: &HeaderMap, body: &[u8]) -> Result<(), ApiError> {
    let Some((sent, ours)) = restify::wrong_digest(headers, body) else { return Ok(()) };
    Err(ApiError::Plain(400, "BadDigest", format!("Content-MD5 '{sent}' didn't match '{ours}'")))
}
