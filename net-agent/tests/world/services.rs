// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What NAPI, VMAPI and CNAPI have, how they fail, and what they were asked.

use std::time::Duration;

use mocks::faults::{Action, Rule, Seen};
use mocks::napi::NewNic;
use serde_json::{Value, json};

use super::{CN, HOME, Outage, World, id, mac};

/// What a record is old by, unless a test says otherwise.
const OLD: Duration = Duration::from_secs(7 * 365 * 24 * 3600);

impl World {
    pub fn nic(&self, n: u8, vm: &str, over: Value) {
        self.nic_at(&mac(n), vm, over);
    }

    /// Puts a record in place of an older one. `over` has fields: null takes one out, `age_s` is the time since its
    /// last change, and what the API refuses is stored as older code did.
    pub fn nic_at(&self, mac: &str, vm: &str, over: Value) {
        let vm = id(vm);
        let mut nic = NewNic::zone(mac, &vm.to_lowercase(), CN)
            .with("owner_uuid", json!(id("o")))
            .with("primary", json!(false));
        let (mut age, mut odd) = (OLD, vec![("belongs_to_uuid".to_owned(), json!(vm))]);
        for (key, value) in over.as_object().unwrap() {
            nic = match (key.as_str(), value) {
                (_, Value::Null) => nic.without(key),
                ("age_s", value) => {
                    age = Duration::from_secs(value.as_u64().unwrap());
                    nic
                }
                ("cn_uuid", value) if is_odd(value) => {
                    odd.push((key.clone(), value.clone()));
                    nic
                }
                ("belongs_to_uuid", Value::String(name)) => {
                    odd.clear();
                    nic.with(key, json!(id(name)))
                }
                ("owner_uuid", Value::String(name)) => nic.with(key, json!(id(name))),
                (_, value) => nic.with(key, value.clone()),
            };
        }
        self.napi.remove(mac);
        self.napi.add_nic(nic.aged(age)).unwrap();
        for (key, value) in odd.iter().filter(|(_, value)| is_odd(value)) {
            assert!(self.napi.store_unchecked(mac, key, value));
        }
    }

    /// Another writer changes a record: it has another etag.
    pub fn touch(&self, mac: &str) {
        self.napi.backdate(mac, Duration::from_millis(1));
    }

    /// NAPI fails.
    pub fn outage(&self, how: Outage) {
        let action = match how {
            Outage::Hangs => Action::Hang { ms: 3_600_000 },
            Outage::Status(status) => {
                let body = Some(json!({"message": "an outage ".repeat(100_000)}));
                Action::Status { status, body, retry_after: None }
            }
        };
        self.napi.faults().add(Rule::any(action));
    }

    /// Each request to NAPI of a multiple of this number fails.
    pub fn every(&self, n: u64) {
        let rule = Rule { every: Some(n), ..Rule::any(unavailable()) };
        self.napi.faults().add(rule.after(n));
    }

    /// NAPI does not answer to lists of so many records within their time.
    pub fn slow(&self, limits: &[usize]) {
        for limit in limits {
            let query = Some(format!("limit={limit}"));
            let rule = Rule::new("GET", "/nics", Action::Hang { ms: 3_600_000 });
            self.napi.faults().add(Rule { query, ..rule });
        }
    }

    /// NAPI fails no more.
    pub fn heal(&self) {
        self.napi.faults().clear();
    }

    /// VMAPI answers nothing but 503, or answers again.
    pub fn vmapi_is_down(&self, is_down: bool) {
        self.vmapi.faults().clear();
        if is_down {
            self.vmapi.faults().add(Rule::any(unavailable()));
        }
    }

    /// CNAPI's record of the home node.
    pub fn server(&self, record: Option<Value>) {
        self.cnapi.reset();
        record.into_iter().for_each(|it| self.cnapi.put_server(it.as_object().cloned().unwrap()));
    }

    /// VMAPI's record of a VM, with the NICs that it has on the home node.
    pub fn vmapi(&self, uuid: &str, state: &str, server: &str) {
        let uuid = id(uuid);
        let nics = self.hub(HOME).vms().get(&uuid).and_then(|vm| vm.get("nics").cloned());
        let vm = json!({"uuid": uuid, "state": state, "server_uuid": server, "nics": nics});
        self.vmapi.put(vm.as_object().cloned().unwrap());
    }

    /// A field of VMAPI's record of a VM is this.
    pub fn vmapi_has(&self, uuid: &str, field: &str, value: Value) {
        let mut vm = self.vmapi.get(&id(uuid)).unwrap();
        vm.insert(field.to_owned(), value);
        self.vmapi.put(vm);
    }

    pub fn has(&self, n: u8) -> bool {
        self.napi.nic(&mac(n)).is_some()
    }

    pub fn field(&self, n: u8, key: &str) -> Value {
        self.napi.nic(&mac(n)).map(|nic| nic[key].clone()).unwrap_or_default()
    }

    /// Returns the requests to NAPI: when, and a line of each.
    pub fn log(&self) -> Vec<(Duration, String)> {
        let line = |it: Seen| {
            let (condition, query) = (it.headers.get("if-match"), &it.query);
            let mark = if query.is_empty() { "" } else { "?" };
            let line = format!("{} {}{mark}{query} {condition:?} {}", it.method, it.path, it.body);
            (Duration::from_millis(it.at_ms), line)
        };
        self.napi.log().all().into_iter().map(line).collect()
    }

    /// Returns the requests to NAPI whose line contains `part`.
    pub fn asked(&self, part: &str) -> Vec<(Duration, String)> {
        self.log().into_iter().filter(|(_, line)| line.contains(part)).collect()
    }

    /// Returns the requests that write to NAPI.
    pub fn writes(&self) -> Vec<String> {
        let lines = self.log().into_iter().map(|(_, line)| line);
        lines.filter(|line| !line.starts_with("GET ")).collect()
    }

    /// NAPI's clock.
    pub fn clock(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.napi.now_ms()).unwrap()
    }

    /// Returns the records without `modified_timestamp`.
    pub fn records(&self) -> Vec<Value> {
        let mut records = self.napi.nics();
        for nic in &mut records {
            nic.as_object_mut().unwrap().remove("modified_timestamp");
        }
        records
    }
}

/// The answer of a service that starts.
pub(super) fn unavailable() -> Action {
    let body = json!({"code": "ServiceUnavailableError", "message": "starting"});
    Action::Status { status: 503, body: Some(body), retry_after: None }
}

/// Whether the API refuses a uuid, or several of them.
fn is_odd(value: &Value) -> bool {
    let text = value.to_string();
    text != text.to_lowercase() || value.as_array().is_some_and(|all| all.len() > 1)
}
