// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waits until vminfod shows the effect of a verb, as vmadm does. It reads with `sync=true`. If no
//! vminfod listens, there is nothing to wait for.

use std::time::Duration;

use sdc_clients::Class;
use sdc_clients::vminfod::{VmObject, Vminfod};
use serde_json::Value;
use tokio::time::Instant;

use crate::error::NodeError;
use crate::node::Node;

/// Time limit of one wait.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The vminfod to ask, if any.
#[derive(Clone)]
pub struct Wait {
    client: Option<Vminfod>,
    limit: Duration,
}

impl Wait {
    /// Do not wait.
    pub fn none() -> Wait {
        Wait { client: None, limit: LIMIT }
    }

    /// Ask the node's own vminfod, if `node.json` names one.
    pub fn of(node: &Node) -> Result<Wait, NodeError> {
        node.vminfod_url().map_or_else(|| Ok(Wait::none()), Wait::at)
    }

    /// Ask the vminfod at this URL.
    pub fn at(url: &str) -> Result<Wait, NodeError> {
        let client = Vminfod::new(url, "vmadm")
            .map_err(|e| NodeError::invalid("vminfod url", e.to_string()))?;
        Ok(Wait { client: Some(client), limit: LIMIT })
    }

    /// The same with another limit.
    pub fn with_limit(self, limit: Duration) -> Wait {
        Wait { limit, ..self }
    }

    /// Waits until the VM, or its absence, satisfies `seen`.
    pub async fn until(
        &self,
        vm: &str,
        what: &str,
        seen: impl Fn(Option<&VmObject>) -> bool,
    ) -> Result<(), NodeError> {
        let Some(client) = &self.client else { return Ok(()) };
        let end = Instant::now() + self.limit;
        let mut pause = Duration::from_millis(10);
        let mut last = None;
        loop {
            let answer = tokio::time::timeout_at(end, client.vm(vm, true)).await;
            match answer {
                Ok(Ok(object)) if seen(Some(&object)) => return Ok(()),
                Ok(Ok(_)) => last = None,
                Ok(Err(e)) if e.is_not_found_resource() => {
                    last = None;
                    if seen(None) {
                        return Ok(());
                    }
                }
                Ok(Err(e)) if e.class() == Class::Connect => return Ok(()),
                Ok(Err(e)) if e.is_retryable() => last = Some(e.to_string()),
                Ok(Err(e)) => {
                    let (vm, what) = (vm.to_string(), what.to_string());
                    return Err(NodeError::Vminfod { vm, what, reason: e.to_string() });
                }
                Err(_) => {}
            }
            if Instant::now() + pause >= end {
                let (vm, what) = (vm.to_string(), what.to_string());
                return Err(match last {
                    Some(reason) => NodeError::Vminfod { vm, what, reason },
                    None => NodeError::NotSeen { vm, what, limit: self.limit },
                });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Returns vminfod's current VM object, or nothing if no vminfod listens.
    pub async fn read(&self, vm: &str) -> Result<Option<VmObject>, NodeError> {
        let Some(client) = &self.client else { return Ok(None) };
        match client.vm(vm, true).await {
            Ok(object) => Ok(Some(object)),
            Err(e) if e.class() == Class::Connect => Ok(None),
            Err(e) => {
                let (vm, what) = (vm.to_string(), "the VM".to_string());
                Err(NodeError::Vminfod { vm, what, reason: e.to_string() })
            }
        }
    }

    /// Waits until a key of the VM has this value.
    pub async fn key(&self, vm: &str, key: &str, value: &Value) -> Result<(), NodeError> {
        self.until(vm, &format!("{key} {value}"), |vm| vm.and_then(|v| v.get(key)) == Some(value))
            .await
    }

    /// Waits until vminfod no longer has the VM.
    pub async fn gone(&self, vm: &str) -> Result<(), NodeError> {
        self.until(vm, "the deletion", |vm| vm.is_none()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::http::StatusCode;
    use axum::routing::get;
    use serde_json::json;

    use super::*;

    /// A vminfod that shows the zone running from its third answer on, and forgets it after ten.
    async fn hub() -> String {
        let asked = Arc::new(AtomicU32::new(0));
        let answer = move || {
            let n = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                let synced = [("vminfod-sync", "true")];
                let state = if n < 2 { "installed" } else { "running" };
                let (status, text) = match n {
                    1 => (StatusCode::SERVICE_UNAVAILABLE, "{}".to_string()),
                    10.. => (StatusCode::NOT_FOUND, "VM Not Found: z".to_string()),
                    _ => {
                        (StatusCode::OK, json!({"zonename": "z", "zone_state": state}).to_string())
                    }
                };
                (status, synced, text)
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let none = || async { ([("vminfod-sync", "zones")], "[]") };
        let router = axum::Router::new().route("/vms/z", get(answer)).route("/vms", get(none));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    #[tokio::test]
    async fn waits_through_stale_and_failing_answers() {
        let wait = Wait::at(&hub().await).unwrap();
        wait.key("z", "zone_state", &json!("running")).await.unwrap();
        wait.gone("z").await.unwrap();
    }

    #[tokio::test]
    async fn says_what_was_not_seen() {
        let wait = Wait::at(&hub().await).unwrap().with_limit(Duration::from_millis(300));
        let error = wait.key("z", "zone_state", &json!("down")).await.unwrap_err();
        assert!(error.to_string().contains("zone_state \"down\" of z"), "{error}");
    }
}
