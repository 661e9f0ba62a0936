// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The two nodes of a VM with their agents, and the services of the data centre.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use mocks::cnapi::{self, TaskError};
use mocks::faults::{Recorder, Seen};
use mocks::transport::InProcess;
use mocks::{imgapi, napi, vmapi};
use sdc_clients::http::{Request, Response};
use sdc_clients::identity::Identity;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::node::{Host, IMAGE, ONE, TWO, VM};
use super::tongue::Tongue;
use crate::clock::Clock;
use migration_core::protocol::{Observe, Order, What};
use migration_core::time::Time;

/// When the stories begin.
fn start() -> Time {
    Time::parse("2026-03-01T00:00:00Z").unwrap()
}

/// When the service is killed: at which event, before it or after it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    Before(usize),
    After(usize),
}

#[derive(Debug)]
pub struct Centre {
    pub hosts: BTreeMap<Uuid, Host>,
    /// The events that were about tickets.
    pub of_tickets: Vec<usize>,
    pub events: usize,
    pub kill: Option<Kill>,
    /// What the promises were broken by.
    pub broken: Option<String>,
    pub clock: Clock,
    /// A node without an agent that CNAPI likes best.
    pub preferred: Option<Uuid>,
    /// The nodes whose answers are noted, and lied about.
    pub tongues: BTreeMap<Uuid, Tongue>,
}

impl Centre {
    /// A VM on the first of two nodes.
    pub fn new(vm: Uuid, is_running: bool) -> Centre {
        let source = Host::with_vm(vm, is_running);
        let target = Host { vm, ..Host::default() };
        Centre {
            hosts: BTreeMap::from([(ONE, source), (TWO, target)]),
            of_tickets: Vec::new(),
            events: 0,
            kill: None,
            broken: None,
            preferred: None,
            tongues: BTreeMap::new(),
            clock: Clock::simulated(start()),
        }
    }

    /// Finds what P13 forbids.
    pub fn check(&mut self) {
        let live = || self.hosts.values().filter(|host| !host.is_dead);
        let copies = || live().filter_map(|host| host.copy.as_ref());
        let running = copies().filter(|copy| copy.running).count();
        let shown = copies().filter(|copy| !copy.hidden).count();
        if running > 1 || shown > 1 {
            self.broken.get_or_insert(format!("{running} run, {shown} are shown"));
        }
    }

    /// The agent of the node that is asked answers.
    pub fn answer(&mut self, request: &Request) -> Response {
        let body = serde_json::from_slice(request.body.as_deref().unwrap_or_default());
        let path: Vec<&str> = request.url.path().split('/').skip(1).collect();
        let cn = cn_of(request).unwrap();
        let (status, mut body) = self.agent(cn, &path, &body.unwrap_or_default());
        if let Some(tongue) = self.tongues.get_mut(&cn) {
            tongue.speaks(path.last().filter(|it| it.len() < 36).unwrap_or(&path[0]), &mut body);
        }
        self.check();
        let (status, headers) = (StatusCode::from_u16(status).unwrap(), HeaderMap::new());
        Response { status, headers, body: body.to_string().into() }
    }

    fn agent(&mut self, cn: Uuid, route: &[&str], body: &Value) -> (u16, Value) {
        let old = || (409, json!({"code": "OldOrder", "message": "a later round was received"}));
        match route {
            ["ping"] => (200, json!({"ping": "pong"})),
            ["observe"] if self.hosts[&cn].is_unwell => (
                503,
                json!({"code": "ServiceUnavailable", "message": "vminfod: no answer in time"}),
            ),
            ["observe"] => {
                let asked: Observe = serde_json::from_value(body.clone()).unwrap();
                let host = self.hosts.get_mut(&cn).unwrap();
                if !host.over.contains(&asked.about.migration) && !host.hears(&asked.about) {
                    return old();
                }
                if host.is_slow && !asked.brief {
                    let runs = json!({"command": "zfs get -r zones/x", "since_ms": 0});
                    return (200, json!({"working": {"runs": runs}}));
                }
                (200, json!(host.observe(cn, asked.about.migration)))
            }
            ["orders"] => {
                let order: Order = serde_json::from_value(body.clone()).unwrap();
                let host = self.hosts.get_mut(&cn).unwrap();
                if host.over.contains(&order.about.migration) {
                    let over = json!({"code": "MigrationOver", "message": "the migration is over"});
                    return match order.order {
                        What::Over => (200, json!(host.order(&order))),
                        _ => (409, over),
                    };
                }
                if !host.hears(&order.about) {
                    return old();
                }
                let doing = host.order(&order);
                if let (What::Send { to, .. }, migration_core::protocol::State::Done) =
                    (&order.order, &doing.state)
                {
                    let from = host.clone();
                    self.hosts.get_mut(to).unwrap().receive(&from);
                }
                (200, json!(doing))
            }
            ["rate"] => (200, json!({})),
            ["migrations"] => (200, self.hosts[&cn].open()),
            ["node"] => (
                200,
                json!({
                    "cn": cn, "version": 1, "cpu": "x", "platform": "20260101T000000Z",
                    "now_ms": self.clock.now().millis(), "can_resume": true,
                    "has_bookmarks": true, "free_bytes": 1_000_000, "mbps": 1,
                    "vm_agent": self.hosts[&cn].vm_agent(),
                    "vms": if self.hosts[&cn].copy.is_some() { vec![VM] } else { vec![] },
                }),
            ),
            ["vms", _] => match self.hosts[&cn].object(cn) {
                Some(object) => (200, Value::Object(object)),
                None => (404, json!({"code": "ResourceNotFound", "message": "no such VM"})),
            },
            ["vms", _, "size"] => (200, json!({"bytes": 1000})),
            _ => (404, json!({"code": "ResourceNotFound", "message": "no such route"})),
        }
    }

    pub fn is_silent(&self, request: &Request) -> bool {
        let cn = cn_of(request);
        cn.is_some_and(|cn| self.hosts.get(&cn).is_none_or(|host| host.is_silent || host.is_dead))
    }

    pub fn is_stuck(&self, request: &Request) -> bool {
        cn_of(request).and_then(|cn| self.hosts.get(&cn)).is_some_and(|host| host.is_stuck)
    }
}

/// The mocks of the services, which are held to recordings of the real ones.
#[derive(Clone, Debug)]
pub struct Services {
    pub cnapi: cnapi::Store,
    pub vmapi: vmapi::Store,
    pub napi: napi::Store,
    imgapi: imgapi::Store,
}

impl Services {
    /// A data centre whose first node has the VMs of these centres.
    pub fn new<'a>(find: Find, centres: impl Iterator<Item = &'a Centre>) -> Services {
        let vms: Vec<_> = centres.filter_map(|centre| centre.hosts[&ONE].object(ONE)).collect();
        let (vmapi, imgapi) = (vmapi::Store::default(), imgapi::Store::default());
        vmapi.seed_from_vms(&vms, &ONE.to_string());
        let napi = napi::Store::at(napi::Options::default(), start().millis());
        napi.seed_from_vms(&vms, &ONE.to_string()).unwrap();
        imgapi.put(json!({"uuid": IMAGE}).as_object().cloned().unwrap());
        Services { cnapi: cnapi(find), vmapi, napi, imgapi }
    }

    /// Returns what the services were asked.
    pub fn asked(&self) -> Vec<Seen> {
        let logs = [self.cnapi.log(), self.vmapi.log(), self.napi.log()];
        logs.into_iter().flat_map(Recorder::all).collect()
    }

    /// Returns the mock that is asked; none if an agent is.
    pub fn mock(&self, request: &Request) -> Option<InProcess> {
        match request.url.host_str()? {
            "cnapi.sim" => Some(InProcess::new(self.cnapi.clone())),
            "vmapi.sim" => Some(InProcess::new(self.vmapi.clone())),
            "napi.sim" => Some(InProcess::new(self.napi.clone())),
            "imgapi.sim" => Some(InProcess::new(self.imgapi.clone())),
            _ => None,
        }
    }
}

/// Works on the data centre of a VM.
pub type Find = Arc<dyn Fn(Uuid, &mut dyn FnMut(&mut Centre)) + Send + Sync>;

/// A node with this much memory in MiB.
pub fn server(cn: Uuid, ram: u32) -> Map<String, Value> {
    let nics = json!({"net0": {"NIC Names": ["admin", "external"], "Link Status": "up"}});
    let sysinfo = json!({"MiB of Memory": ram.to_string(), "Network Interfaces": nics});
    json!({"uuid": cn, "sysinfo": sysinfo}).as_object().cloned().unwrap()
}

/// CNAPI with the two nodes, and one on which nothing has room.
fn cnapi(find: Find) -> cnapi::Store {
    let store = cnapi::Store::at(start().millis());
    for (cn, ram) in [(ONE, 65536), (TWO, 65536), (Uuid::nil(), 10)] {
        store.put_server(server(cn, ram));
    }
    store.set_hands(Arc::new(move |order: cnapi::Order| {
        let mut done: Result<Value, TaskError> = Err(TaskError::no_vm("no such zone configured"));
        let body = &order.body;
        find(order.vm_uuid.parse().unwrap(), &mut |centre| {
            let host = centre.hosts.get_mut(&order.server_uuid.parse().unwrap()).unwrap();
            match order.verb.as_str() {
                "create" if host.is_dead => done = Err("connect ECONNREFUSED".into()),
                "create" => {
                    assert_eq!(body["do_not_inventory"], json!(true));
                    assert!(body["nics"].is_array() && body.get("networks").is_none());
                    let copy = migration_core::machine::Copy { hidden: true, ..Default::default() };
                    host.copy.get_or_insert(copy);
                    body["alias"].as_str().unwrap().clone_into(&mut host.alias);
                    host.created = "2026-03-01T00:00:00.000Z".into();
                    done = Ok(json!({}));
                }
                "delete" if host.copy.take().is_some() => done = Ok(json!({})),
                "load" if host.copy.is_some() => done = Ok(json!({"uuid": order.vm_uuid})),
                _ => {}
            }
            centre.check();
        });
        Box::pin(std::future::ready(done))
    }));
    store
}

/// Checks that an agent has to prove that it is its node's, and no other peer has to prove anything.
pub fn is_for_its_peer(request: &Request) {
    assert_eq!(request.peer, cn_of(request).map(Identity::Agent), "{}", request.url);
}

/// The node whose agent is asked.
fn cn_of(request: &Request) -> Option<Uuid> {
    request.url.host_str()?.strip_suffix(".sim")?.parse().ok()
}
