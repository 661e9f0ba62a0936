// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The output of the lab: a line per event of the hub and per write to NAPI and VMAPI. In colour on a
//! terminal, unless `NO_COLOR` is set.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sdc_clients::Jitter;
use sdc_clients::vminfod::{Action, Change, VmFields, VmObject, Vminfod, WatchEvent, watch};
use serde_json::Value;

use super::asking::OWN_AGENT;
use mocks::faults::Seen;
use mocks::napi::Store;
use mocks::vmapi;

/// How often NAPI's request log is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// A value longer than this is cut.
const VALUE: usize = 40;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// The lab itself.
    Lab,
    Hub,
    /// NAPI's request log.
    Napi,
    /// VMAPI's request log.
    Vmapi,
}

/// The screen: cheap to clone, one line at a time.
#[derive(Clone, Debug)]
pub struct Screen {
    colour: bool,
    names: Arc<Mutex<HashMap<String, String>>>,
}

impl Default for Screen {
    fn default() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colour, names: Arc::default() }
    }
}

impl Screen {
    /// Prints one line.
    pub fn say(&self, voice: Voice, text: &str) {
        let (name, code) = match voice {
            Voice::Lab => ("lab ", 36),
            Voice::Hub => ("hub ", 32),
            Voice::Napi => ("napi", 33),
            Voice::Vmapi => ("vmapi", 35),
        };
        let time = jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string();
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if self.colour {
            println!("\x1b[2m{time}\x1b[0m \x1b[{code}m{name}\x1b[0m {text}");
        } else {
            println!("{time} {name} {text}");
        }
    }

    /// Prints vminfod's events until it is dropped.
    pub async fn follow_hub(self, hub: Vminfod) {
        let mut watcher = watch(&hub, Jitter::from_entropy());
        loop {
            match watcher.next().await {
                WatchEvent::Synced(vms) => {
                    vms.iter().for_each(|vm| self.learn(vm));
                    self.say(Voice::Hub, &format!("ready with {} VMs", vms.len()));
                }
                WatchEvent::Created(vm) => {
                    self.learn(&vm);
                    self.say(
                        Voice::Hub,
                        &format!("create {} ({})", name(&vm), vm.brand().unwrap_or("no brand")),
                    );
                }
                WatchEvent::Modified { vm, changes, .. } => {
                    self.learn(&vm);
                    let told: Vec<String> = changes.iter().map(change).collect();
                    self.say(Voice::Hub, &format!("modify {}: {}", name(&vm), told.join(", ")));
                }
                WatchEvent::Deleted(vm) => {
                    self.say(Voice::Hub, &format!("delete {}", name(&vm)));
                }
                WatchEvent::Hidden(vm) => self.say(Voice::Hub, &format!("hide {}", name(&vm))),
                WatchEvent::Shown(vm) => self.say(Voice::Hub, &format!("show {}", name(&vm))),
                WatchEvent::Lost(err) => self.say(Voice::Hub, &format!("stream lost: {err}")),
                _ => {}
            }
        }
    }

    /// Prints the writes that reach NAPI until it is dropped.
    pub async fn follow_napi(self, store: Store) {
        let mut told = 0;
        loop {
            let seen = store.log().all();
            for request in seen.iter().skip(told).filter(|request| is_news(request)) {
                let query = if request.query.is_empty() {
                    String::new()
                } else {
                    format!("?{}", request.query)
                };
                let status = request.status.map_or("no answer".to_owned(), |s| s.to_string());
                let (method, path, body) = (&request.method, &request.path, &request.body);
                let blank = if body.is_empty() { "" } else { " " };
                self.say(Voice::Napi, &format!("{method} {path}{query}{blank}{body} → {status}"));
            }
            told = seen.len();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Prints the writes that reach VMAPI until it is dropped: which VM, and the state that it is told.
    pub async fn follow_vmapi(self, store: vmapi::Store) {
        let mut told = 0;
        loop {
            let seen = store.log().all();
            for request in seen.iter().skip(told).filter(|request| is_news(request)) {
                let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
                let what = match body["vms"].as_object() {
                    Some(vms) => format!("{} VMs", vms.len()),
                    None => body["state"].as_str().unwrap_or_default().to_owned(),
                };
                let status = request.status.map_or("no answer".to_owned(), |s| s.to_string());
                let (method, path) = (&request.method, &request.path);
                self.say(Voice::Vmapi, &format!("{method} {path} {what} → {status}"));
            }
            told = seen.len();
            tokio::time::sleep(LOOK).await;
        }
    }

    fn learn(&self, vm: &VmObject) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(vm.uuid().unwrap_or_default().to_owned(), name(vm));
    }
}

/// Writes, and the agent's lists; not the agent's many small reads, nor the lab's own.
fn is_news(request: &Seen) -> bool {
    let own = request.headers.get("user-agent").is_some_and(|agent| agent == OWN_AGENT);
    !own && (request.method != "GET" || request.path.ends_with("/nics"))
}

/// How a VM is called on the screen: its alias and the start of its uuid.
pub fn name(vm: &VmObject) -> String {
    let uuid = vm.uuid().unwrap_or_default();
    let short = uuid.get(..8).unwrap_or(uuid);
    match vm.alias() {
        Some(alias) => format!("{alias} {short}"),
        None => short.to_owned(),
    }
}

fn change(change: &Change) -> String {
    let show = |value: &Option<Value>| {
        let text = value.as_ref().map(Value::to_string).unwrap_or_default();
        if text.chars().count() > VALUE {
            format!("{}…", text.chars().take(VALUE).collect::<String>())
        } else {
            text
        }
    };
    let path = &change.pretty_path;
    match change.action {
        Action::Added => format!("{path} + {}", show(&change.new_value)),
        Action::Removed => format!("{path} -"),
        Action::Changed => {
            format!("{path} {} → {}", show(&change.old_value), show(&change.new_value))
        }
    }
}
