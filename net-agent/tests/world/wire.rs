// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The way of the agent's requests to the mocks: what happens just before one, which of them fail, and whether a
//! delete was right by what is true.

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use mocks::faults::{Action, Rule};
use mocks::transport::InProcess;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, StreamResponse, Transport};
use serde_json::{Value, json};

use super::services::unavailable;
use super::{CN, Fault, HOME, World};

impl World {
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

    async fn ask_napi(&self, request: Request) -> Result<Response, Error> {
        let mac = request.url.path().trim_start_matches("/nics/").to_owned();
        if request.method != Method::GET {
            self.before_write(&mac);
        }
        let rule = match self.next_fault(&request.method) {
            Some(Fault::Refuse) => {
                return Err(Error::connect(&request.method, request.target(), "refused"));
            }
            Some(Fault::Reset) => Some(Action::Cut),
            Some(Fault::Unavailable) => Some(unavailable()),
            Some(Fault::LoseAnswer) => Some(Action::DropResponse),
            None => None,
        };
        if let Some(action) = rule {
            self.napi.faults().add(Rule::any(action).times(1));
        }
        let deletes = request.method == Method::DELETE;
        let record = self.napi.nic(&mac).filter(|_| deletes);
        let why = record.and_then(|nic| Some(format!("{}: {nic}", self.wrong(&nic)?)));
        let answer = InProcess::new(self.napi.clone()).send(request).await;
        if let Some(why) = why.filter(|_| self.napi.nic(&mac).is_none()) {
            self.state().wrong.push(why);
        }
        answer
    }

    /// What a test has arranged for before a write.
    fn before_write(&self, mac: &str) {
        let happens = self.state().before_write.take();
        if let Some(happens) = happens {
            happens(self);
        }
        let left = self.state().touch_next.checked_sub(1);
        if let Some(left) = left {
            self.state().touch_next = left;
            self.touch(mac);
        }
    }

    /// What is to happen to this request.
    fn next_fault(&self, method: &Method) -> Option<Fault> {
        let mut state = self.state();
        let number = state.sent;
        state.sent += 1;
        let is_lost = *method != Method::GET && std::mem::take(&mut state.lose_next);
        state.faults.remove(&number).or(is_lost.then_some(Fault::LoseAnswer))
    }

    /// Why this record must not go now, by what is true and not by what anybody was told; only
    /// what was hidden, and is gone, counts as far as the node has ever shown it so.
    fn wrong(&self, nic: &Value) -> Option<&'static str> {
        let (vm, mac) = (nic["belongs_to_uuid"].as_str().unwrap(), &nic["mac"]);
        let lists = |nics: Option<&Value>| {
            let nics = nics.and_then(Value::as_array).into_iter().flatten();
            nics.into_iter().any(|nic| nic["mac"] == *mac)
        };
        let is_ours = match &nic["cn_uuid"] {
            Value::Array(cns) => *cns == [json!(CN)],
            cn => cn.as_str().is_some_and(|cn| cn.eq_ignore_ascii_case(CN)),
        };
        if !is_ours || nic["belongs_to_type"] != "zone" {
            return Some("not of this node");
        }
        let vms = self.hub(HOME).vms();
        if vms.values().any(|vm| lists(vm.get("nics"))) {
            return Some("a VM here has it");
        }
        let hidden = self.state().hidden.get(vm).and_then(|until| *until);
        if hidden.is_some_and(|until| self.started.elapsed() < until) {
            return Some("it was hidden a short while ago");
        }
        let here = vms.get(vm);
        if here.is_some_and(|vm| vm["do_not_inventory"] == true) {
            return Some("its VM is hidden");
        }
        match self.vmapi.get(vm) {
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
}

impl Transport for World {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            match request.url.host_str() {
                Some("napi.lab") => self.ask_napi(request).await,
                Some("vmapi.lab") => InProcess::new(self.vmapi.clone()).send(request).await,
                Some("cnapi.lab") => InProcess::new(self.cnapi.clone()).send(request).await,
                _ => self.vminfod(request).await,
            }
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
