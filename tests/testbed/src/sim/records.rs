// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! VMAPI as the vm-agent of one node reaches it. Every write is judged when it takes effect.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use rand::RngExt;
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use serde_json::Value;

use super::bugs::Bug;
use super::centre::Centre;
use super::cnapi::Cnapi;
use super::dice::Dice;
use super::outside::{ELSEWHERE, moved};
use super::record_judge::{FUTURE, RecordJudge};
use mocks::transport::{InProcess, in_time};

/// So long after its request a write that is late is carried out.
pub(super) const LATE: Duration = Duration::from_secs(100);

/// The wire of one vm-agent.
pub struct Records {
    cn: String,
    centre: Centre,
    vmapi: InProcess,
    cnapi: Cnapi,
    napi: InProcess,
    judge: RecordJudge,
    dice: Mutex<Dice>,
    late: Mutex<Late>,
}

/// The VM of which one write is late.
#[derive(Default)]
struct Late {
    vm: Option<String>,
    /// It is yet to come.
    is_due: bool,
    /// What the agent has written since.
    wrote: Option<Value>,
}

impl Records {
    /// The wire of the agent on this node, whose writes are judged.
    pub fn new(centre: &Centre, cn: &str, seed: u64) -> Self {
        Self {
            cn: cn.to_owned(),
            vmapi: InProcess::new(centre.vmapi.clone()),
            cnapi: Cnapi::new(centre),
            napi: InProcess::new(centre.napi.clone()),
            judge: RecordJudge::new(centre, cn),
            dice: Mutex::new(Dice::new(seed)),
            late: Mutex::default(),
            centre: centre.clone(),
        }
    }

    /// Who judges its writes.
    pub fn judge(&self) -> &RecordJudge {
        &self.judge
    }

    async fn exchange(&self, mut request: Request) -> Result<Response, Error> {
        self.judge.names(&request);
        let (go, back) = {
            let question = format!("{} {}", request.method, request.target());
            let mut rng = self.dice.lock().unwrap_or_else(PoisonError::into_inner).of(question);
            let mut while_ = || Duration::from_millis(rng.random_range(1..30));
            (while_(), while_())
        };
        tokio::time::sleep(go).await;
        let reads = request.method == Method::GET;
        if !reads {
            self.worsen(&mut request);
        }
        match request.url.host_str() {
            Some("cnapi.sim") => return self.cnapi.send(request).await,
            Some("napi.sim") => return self.napi.send(request).await,
            _ => {}
        }
        if !reads {
            self.centre.truth.writes(&self.cn, "a record");
        }
        if !reads && self.is_late(&request) {
            let vmapi = self.vmapi.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LATE).await;
                drop(vmapi.send(request).await);
            });
            return std::future::pending().await; // it is given up
        }
        if !reads && self.is_newer(&request) {
            (request.method, request.body) = (Method::GET, None);
        }
        let sent = self.judge.sent(&request);
        let Centre { bug, truth, .. } = &self.centre;
        let answer = self.vmapi.send(request).await.map(|it| moved(it, *bug, truth));
        self.judge.wrote(sent);
        tokio::time::sleep(back).await;
        answer.map(|answer| if reads { self.read(answer) } else { self.written(answer) })
    }

    /// The next write of this VM is late.
    pub(super) fn delay(&self, vm: &str) {
        *self.late() = Late { vm: Some(vm.to_owned()), is_due: true, wrote: None };
    }

    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true for the write that is late; keeps what follows.
    fn is_late(&self, request: &Request) -> bool {
        let target = request.target();
        let mut late = self.late();
        if !late.vm.as_ref().is_some_and(|vm| target.contains(vm.as_str())) {
            return false;
        }
        if !late.is_due {
            let body = request.body.as_ref().and_then(|body| serde_json::from_slice(body).ok());
            late.wrote = body.or(late.wrote.take());
        }
        std::mem::take(&mut late.is_due)
    }

    /// For a bug: what the agent has written is what is there, whatever is.
    fn believed(&self, mut answer: Response) -> Response {
        let late = self.late();
        let (Some(vm), Some(wrote)) = (&late.vm, late.wrote.as_ref().and_then(Value::as_object))
        else {
            return answer;
        };
        let Ok(mut body) = serde_json::from_slice::<Value>(&answer.body) else { return answer };
        let records = match &mut body {
            Value::Array(records) => records.iter_mut().collect(),
            record => vec![record],
        };
        let its = records.into_iter().filter(|it| it["uuid"].as_str() == Some(vm));
        its.filter_map(Value::as_object_mut).for_each(|it| it.extend(wrote.clone()));
        answer.body = body.to_string().into();
        answer
    }

    /// For a bug: a write of a record that says that it is newer is not sent.
    fn is_newer(&self, request: &Request) -> bool {
        let stored =
            request.url.path().strip_prefix("/vms/").and_then(|vm| self.centre.vmapi.get(vm));
        let newest = stored.and_then(|it| it.get("last_modified")?.as_str().map(|at| at == FUTURE));
        self.centre.bug == Some(Bug::BelieveNewer) && newest == Some(true)
    }

    /// What a deliberate bug makes of a write.
    fn worsen(&self, request: &mut Request) {
        let Some(body) = &request.body else { return };
        let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
        for vm in each(&mut body) {
            match self.centre.bug {
                Some(Bug::WriteHalfAnObject) => drop(vm.remove("customer_metadata")),
                Some(Bug::PutBackMadeUpStates) if self.centre.is_unsure() => {
                    vm.insert("state".to_owned(), "unknown".into());
                }
                _ => return,
            }
        }
        request.body = Some(Bytes::from(body.to_string()));
    }

    /// What is heard of a read: while VMAPI does not hear from the node it makes the state up, and its
    /// lists are halved.
    fn read(&self, mut answer: Response) -> Response {
        if self.centre.bug == Some(Bug::ForgetTheUnknown) {
            answer = self.believed(answer);
        }
        if self.centre.bug == Some(Bug::DestroyWithoutAsking) {
            let text = String::from_utf8_lossy(&answer.body);
            answer.body = text.replace(ELSEWHERE, &self.cn).into();
        }
        if !self.centre.is_unsure() {
            return answer;
        }
        let text = String::from_utf8_lossy(&answer.body);
        let text = text.replace(r#""state":"running""#, r#""state":"unknown""#);
        answer.body = match serde_json::from_str(&text) {
            Ok(Value::Array(vms)) => {
                let half = vms.into_iter().step_by(2);
                Value::Array(half.collect()).to_string().into()
            }
            _ => text.into(),
        };
        answer
    }

    /// What is heard of a write.
    fn written(&self, mut answer: Response) -> Response {
        let refused = answer.status == StatusCode::SERVICE_UNAVAILABLE;
        if refused && self.centre.bug == Some(Bug::LoseTheLastEvent) {
            answer.status = StatusCode::OK;
        }
        answer
    }
}

/// The objects of a write: one, or a map of many.
fn each(body: &mut Value) -> Vec<&mut serde_json::Map<String, Value>> {
    let is_many = body.get("vms").is_some_and(Value::is_object);
    match (is_many, body) {
        (true, body) => {
            let vms = body["vms"].as_object_mut().into_iter().flatten();
            vms.filter_map(|(_, vm)| vm.as_object_mut()).collect()
        }
        (false, body) => body.as_object_mut().into_iter().collect(),
    }
}

impl Transport for Records {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(in_time(request, |request| self.exchange(request)))
    }
}
