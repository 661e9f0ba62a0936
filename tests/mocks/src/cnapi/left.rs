// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The nodes that are left of a choice, and the steps that have dropped the others. Pure.

use serde_json::{Value, json};

use super::node::{Node, Room, object};
use super::refusal::{Params, Refusal, word};

/// A node that is left, with its VMs.
pub(super) struct Left<'a> {
    pub(super) node: &'a Node,
    pub(super) vms: Vec<Params>,
    pub(super) room: Option<Room>,
    pub(super) score: f64,
}

impl Left<'_> {
    pub(super) fn uuid(&self) -> &str {
        word(&self.node.fields, "uuid")
    }
}

/// The steps so far, and the nodes that they have left.
pub(super) struct Choice<'a> {
    pub(super) left: Vec<Left<'a>>,
    pub(super) steps: Vec<Value>,
}

impl<'a> Choice<'a> {
    /// Enters a step that drops the nodes for which `against` has a reason, or for all nodes one.
    pub(super) fn drop_those(
        &mut self,
        step: &str,
        against: impl Fn(&Left<'a>) -> Option<String>,
    ) -> Result<(), Refusal> {
        let mut reasons = Params::new();
        self.left.retain(|left| match against(left) {
            Some(why) => {
                if !why.is_empty() {
                    reasons.insert(left.uuid().to_owned(), json!(why));
                }
                false
            }
            None => true,
        });
        self.enter(step, reasons)
    }

    /// Enters a step with its reasons; where it leaves no node, that is the end.
    pub(super) fn enter(&mut self, step: &str, reasons: Params) -> Result<(), Refusal> {
        let remaining: Vec<&str> = self.left.iter().map(Left::uuid).collect();
        let mut entry = json!({ "step": step, "remaining": remaining });
        let of_all = reasons.get("*").and_then(Value::as_str).map(str::to_owned);
        if !reasons.is_empty() {
            entry["reasons"] = json!(reasons);
        }
        self.steps.push(entry);
        if !self.left.is_empty() {
            return Ok(());
        }
        let why = of_all.unwrap_or_else(|| {
            let mut letters = step.chars();
            let first = letters.next().map(|it| it.to_ascii_lowercase());
            let text: String = first.into_iter().chain(letters).collect();
            if text.starts_with("servers") { format!("no {text}") } else { text }
        });
        let message = format!("No compute resources available: {why}");
        Err(Refusal::Coded(409, "NoAllocatableServersError", message))
    }

    pub(super) fn skip(&mut self, step: &str, why: &str) -> Result<(), Refusal> {
        self.enter(step, object(&json!({ "skip": why })))
    }

    pub(super) fn keep(&mut self, step: &str) -> Result<(), Refusal> {
        self.enter(step, Params::new())
    }
}
