// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What NAPI, VMAPI and CNAPI answer.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use sdc_clients::{Error, Phase};
use serde_json::{Value, json};

use super::{CN, Fault, HOME, Outage, State, World};

impl World {
    fn answer(&self, request: &Request) -> Result<Response, Error> {
        let path = request.url.path().to_owned();
        match request.url.host_str() {
            Some("napi.lab") => self.napi(request, &path),
            Some("vmapi.lab") => self.vmapi_answer(request, &path),
            Some("cnapi.lab") => {
                let mut state = self.state();
                state.cnapi_asked += 1;
                Ok(match &state.cnapi {
                    Some(server) if path == format!("/servers/{CN}") => {
                        self.reply(200, server, None)
                    }
                    _ => {
                        let body = json!({"code": "ResourceNotFound", "message": "no such server"});
                        self.reply(404, &body, None)
                    }
                })
            }
            _ => Err(Error::connect(&request.method, path, "no host")),
        }
    }

    /// Asks the vminfod of a node, and notes which VMs of the home node it has shown.
    async fn vminfod(&self, request: Request) -> Result<Response, Error> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let path = request.url.path().to_owned();
        if path.starts_with("/vms/") {
            let happens = self.state().before_check.take();
            if let Some(happens) = happens {
                happens(self);
            }
        }
        let answer = self.hub(&host).send(request).await;
        if answer.as_ref().is_ok_and(|it| it.status == StatusCode::OK) && host == HOME {
            let named = path.trim_start_matches("/vms/");
            self.show(|name| path == "/vms" || name == named);
        }
        // Time for the agent to notice what happened before this answer arrived.
        if path.starts_with("/vms/") {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        answer
    }

    fn vmapi_answer(&self, request: &Request, path: &str) -> Result<Response, Error> {
        let mut state = self.state();
        state.vmapi_log.push(format!("{} {}", request.method, request.target()));
        if state.vmapi_down {
            return Ok(self.reply(503, &json!({"message": "down"}), None));
        }
        if path == "/vms" {
            let asked = |key: &str| {
                let found = request.url.query_pairs().find(|(name, _)| name == key);
                found.map(|(_, value)| value.into_owned())
            };
            let here = asked("server_uuid");
            let names = asked("predicate").unwrap_or_default();
            let wanted = |vm: &Value| {
                here.as_deref().is_none_or(|cn| vm["server_uuid"] == cn)
                    && names.contains(&format!("{{\"eq\":[\"state\",{}]}}", vm["state"]))
            };
            let vms: Vec<_> = state.vmapi.values().filter(|vm| wanted(vm)).cloned().collect();
            return Ok(self.reply(200, &Value::Array(vms), None));
        }
        Ok(match state.vmapi.get(path.trim_start_matches("/vms/")) {
            Some(vm) => self.reply(200, vm, None),
            None => {
                let body = json!({"code": "ResourceNotFound", "message": "VM not found"});
                self.reply(404, &body, None)
            }
        })
    }

    fn napi(&self, request: &Request, path: &str) -> Result<Response, Error> {
        if request.method != Method::GET {
            let happens = self.state().before_write.take();
            if let Some(happens) = happens {
                happens(self);
            }
        }
        let mut state = self.state();
        let condition = request.headers.get("if-match").map(|v| v.to_str().unwrap().to_owned());
        let body = request.body.as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
        let (method, target) = (&request.method, request.target());
        let text = body.clone().unwrap_or_default();
        let line = format!("{method} {target} {condition:?} {text}");
        let number = state.log.len();
        state.log.push((self.started.elapsed(), line));
        let agent = request.headers.get("user-agent").map(|v| v.to_str().unwrap().to_owned());
        state.agents.extend(agent);
        let fault = state.faults.get(&number).copied();
        let fault = fault.or_else(|| {
            (number.is_multiple_of(state.every?) && number > 0).then_some(Fault::Unavailable)
        });
        match fault {
            Some(Fault::Refuse) => return Err(Error::connect(method, path, "refused")),
            Some(Fault::Reset) => return Err(Error::broken(method, path, "reset")),
            Some(Fault::Unavailable) => {
                let body = json!({"code": "ServiceUnavailableError", "message": "starting"});
                return Ok(self.reply(503, &body, None));
            }
            Some(Fault::LoseAnswer) | None => {}
        }
        let answer = if path == "/search/nics" || path == "/nics" {
            self.list(&state, request, path)?
        } else {
            self.one(&mut state, request, path, condition, body)
        };
        let write = *method != Method::GET;
        if fault == Some(Fault::LoseAnswer) || write && std::mem::take(&mut state.lose_next) {
            return Err(Error::broken(method, path, "the answer was lost"));
        }
        Ok(answer)
    }

    fn list(&self, state: &State, request: &Request, path: &str) -> Result<Response, Error> {
        if path == "/search/nics" && !state.search {
            let body =
                json!({"code": "ResourceNotFound", "message": "/search/nics does not exist"});
            return Ok(self.reply(404, &body, None));
        }
        let (mut strange, mut limit, mut offset) = (Vec::new(), 1000, 0);
        let (mut cn, mut vms, mut kind) = (None, None, None);
        for (key, value) in request.url.query_pairs() {
            assert!(!value.is_empty(), "an empty filter: {}", request.target());
            match &*key {
                "limit" => limit = value.parse::<usize>().unwrap(),
                "offset" => offset = value.parse::<usize>().unwrap(),
                "belongs_to_type" => kind = Some(value.into_owned()),
                "belongs_to_uuid" => vms = Some(value.into_owned()),
                "cn_uuid" if state.filters => cn = Some(value.into_owned()),
                _ => strange.push(key.into_owned()),
            }
        }
        if !strange.is_empty() && !state.lenient {
            let errors = json!([{"code": "UnknownParameters", "field": strange, "message": "u"}]);
            let body = json!({"code": "InvalidParameters", "message": "Invalid parameters",
                "errors": errors});
            return Ok(self.reply(422, &body, None));
        }
        if limit > state.largest_page {
            let after = std::time::Duration::from_secs(60);
            return Err(Error::timed_out(Phase::Answer, &request.method, path, after));
        }
        let mut found: Vec<Value> = state
            .nics
            .values()
            .map(|(nic, _)| nic.clone())
            .filter(|nic| {
                // NAPI stores an array as it came, and finds it by its elements.
                let is = |value: &Value, cn: &str| {
                    value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(cn))
                };
                let has = |cn: &String| match &nic["cn_uuid"] {
                    Value::Array(all) => all.iter().any(|one| is(one, cn)),
                    one => is(one, cn),
                };
                cn.as_ref().is_none_or(has)
            })
            .filter(|nic| {
                let owner = nic["belongs_to_uuid"].as_str().unwrap();
                vms.as_ref().is_none_or(|vms| vms.split(',').any(|vm| vm == owner))
            })
            .filter(|nic| kind.as_ref().is_none_or(|kind| nic["belongs_to_type"] == **kind))
            .skip(offset)
            .take(limit)
            .collect();
        let broken =
            |nic: &Value| state.broken.contains(&super::bare(nic["mac"].as_str().unwrap()));
        if found.iter().any(broken) {
            let body = json!({"message": "first of 1 errors: Internal error"});
            return Ok(self.reply(500, &body, None));
        }
        // Pages are in no order.
        found.reverse();
        Ok(self.reply(200, &Value::Array(found), None))
    }

    fn one(
        &self,
        state: &mut State,
        request: &Request,
        path: &str,
        condition: Option<String>,
        body: Option<String>,
    ) -> Response {
        let key = path.trim_start_matches("/nics/").to_owned();
        if state.broken.contains(&key) {
            return self.reply(500, &json!({"message": "object lacks a network"}), None);
        }
        if request.method != Method::GET && state.touch_next > 0 {
            state.touch_next -= 1;
            if let Some((_, etag)) = state.nics.get_mut(&key) {
                *etag += 100;
            }
        }
        let Some((nic, etag)) = state.nics.get(&key).cloned() else {
            let body = json!({"code": "ResourceNotFound", "message": "nic not found"});
            return self.reply(404, &body, None);
        };
        let tag = state.etags.then(|| format!("E{etag}"));
        if state.etags && condition.is_some() && condition != tag {
            let body = json!({"code": "PreconditionFailed", "message": "no match"});
            return self.reply(412, &body, None);
        }
        match request.method {
            Method::GET => self.reply(200, &nic, tag),
            Method::DELETE => {
                let why = self.wrong(state, &nic);
                state.wrong.extend(why.map(|why| format!("{why}: {nic}")));
                state.nics.remove(&key);
                let (status, headers) = (StatusCode::NO_CONTENT, HeaderMap::new());
                Response { status, headers, body: Bytes::new() }
            }
            _ => {
                let mut nic = nic;
                let update: Value = serde_json::from_str(&body.unwrap()).unwrap();
                for (field, value) in update.as_object().unwrap() {
                    nic[field] = value.clone();
                }
                nic["modified_timestamp"] = self.clock().to_string().into();
                state.writes += 1;
                state.nics.insert(key, (nic.clone(), etag + 1));
                let tag = state.etags.then(|| format!("E{}", etag + 1));
                self.reply(200, &nic, tag)
            }
        }
    }

    /// Why this record must not go now, by what is true and not by what anybody was told; only
    /// what was hidden, and is gone, counts as far as the node has ever shown it so.
    fn wrong(&self, state: &State, nic: &Value) -> Option<&'static str> {
        let (vm, mac) = (nic["belongs_to_uuid"].as_str().unwrap(), &nic["mac"]);
        let lists = |nics: Option<&Value>| {
            let nics = nics.and_then(Value::as_array).into_iter().flatten();
            nics.into_iter().any(|nic| nic["mac"] == *mac)
        };
        if nic["cn_uuid"] != CN || nic["belongs_to_type"] != "zone" {
            return Some("not of this node");
        }
        let vms = self.hub(HOME).vms();
        if vms.values().any(|vm| lists(vm.get("nics"))) {
            return Some("a VM here has it");
        }
        let hidden = state.hidden.get(vm).and_then(|until| *until);
        if hidden.is_some_and(|until| self.started.elapsed() < until) {
            return Some("it was hidden a short while ago");
        }
        let here = vms.get(vm);
        if here.is_some_and(|vm| vm["do_not_inventory"] == true) {
            return Some("its VM is hidden");
        }
        match state.vmapi.get(vm) {
            Some(known) if matches!(known["state"].as_str(), Some("destroyed" | "failed")) => {
                here.map(|_| "its VM is here")
            }
            // It left a VM that stays, and VMAPI says so too.
            Some(known)
                if here.is_some() && known["server_uuid"] == CN && !lists(known.get("nics")) =>
            {
                None
            }
            Some(_) => Some("VMAPI says it lives"),
            None => here.map(|_| "its VM is here"),
        }
    }

    /// NAPI's clock.
    pub fn clock(&self) -> jiff::Timestamp {
        self.clock_from(None)
    }

    fn clock_from(&self, base: Option<jiff::Timestamp>) -> jiff::Timestamp {
        let base = base.unwrap_or_else(|| "2027-01-15T08:00:00Z".parse().unwrap());
        base.checked_add(jiff::SignedDuration::try_from(self.started.elapsed()).unwrap()).unwrap()
    }

    fn reply(&self, status: u16, body: &Value, etag: Option<String>) -> Response {
        let mut headers = HeaderMap::new();
        let date = jiff::fmt::rfc2822::DateTimePrinter::new();
        let date = date.timestamp_to_rfc9110_string(&self.clock()).unwrap();
        headers.insert("date", date.parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        if let Some(etag) = etag {
            headers.insert("etag", etag.parse().unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        Response { status, headers, body: Bytes::from(body.to_string()) }
    }
}

impl Transport for World {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            if !request.url.host_str().is_some_and(|host| host.ends_with(".lab")) {
                return self.vminfod(request).await;
            }
            let is_napi = request.url.host_str() == Some("napi.lab");
            let outage = self.state().outage.filter(|_| is_napi);
            let mut answer = match outage {
                Some(Outage::Hangs) => {
                    tokio::time::sleep(request.timeout).await;
                    let (method, target) = (&request.method, request.target());
                    Err(Error::timed_out(Phase::Answer, method, target, request.timeout))
                }
                Some(Outage::Status(status)) => {
                    let message = "an outage ".repeat(100_000);
                    Ok(self.reply(status, &json!({"message": message}), None))
                }
                None => self.answer(&request),
            };
            let base = self.state().clock_base;
            if let (Some(base), Ok(answer), true) = (base, &mut answer, is_napi) {
                let date = jiff::fmt::rfc2822::DateTimePrinter::new();
                let date = date.timestamp_to_rfc9110_string(&self.clock_from(Some(base))).unwrap();
                answer.headers.insert("date", date.parse().unwrap());
            }
            answer
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<StreamResponse, Error>> {
        Box::pin(async move {
            let host = request.url.host_str().unwrap_or_default().to_owned();
            let answer = self.hub(&host).stream(request).await;
            if answer.is_ok() && host == HOME {
                self.show(|_| true);
            }
            answer
        })
    }
}
