// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! When two answers of a peer are the same, given what differs from run to run. Pure.

use std::collections::HashMap;

use serde_json::Value;

/// Values that a service chose: recorded to ours.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<String, String>);

/// Named by the service at random, or its time.
const CHOSEN: [&str; 11] = [
    "destroyed",
    "created_at",
    "create_timestamp",
    "updated_at",
    "job_uuid",
    "mac",
    "ip",
    "name",
    "workflow",
    "id",
    "uuid",
];

/// The services whose stand-ins in the recordings gave only the fields that matter.
const STAND_INS: [&str; 4] = ["napi", "papi", "imgapi", "wfapi"];

impl Memory {
    /// Takes over what the service named in an answer.
    pub(super) fn learn(&mut self, want: &Value, got: &Value) {
        for name in ["uuid", "id"] {
            if let (Some(want), Some(got)) = (want[name].as_str(), got[name].as_str()) {
                self.0.insert(want.to_owned(), got.to_owned());
            }
        }
    }

    /// The text with our names for the recorded ones.
    pub(super) fn ours(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (recorded, ours)| text.replace(recorded, ours))
    }

    /// Compares a body; the error says where, what was expected and what came. Of what a stand-in gave only what
    /// the recording has is compared.
    pub(super) fn body(&self, peer: &str, want: &Value, got: &Value) -> Result<(), String> {
        match (want, got) {
            // `<8 packages>`
            (Value::String(count), Value::Array(got)) if count.starts_with('<') => {
                let listed = format!("<{} packages>", got.len());
                same(&listed == count, "body", want, &listed.into())
            }
            _ => self.value("body", peer, want, got),
        }
    }

    fn value(&self, place: &str, peer: &str, want: &Value, got: &Value) -> Result<(), String> {
        match (want, got) {
            (Value::Object(want), Value::Object(ours)) => {
                if !STAND_INS.contains(&peer)
                    && let Some(extra) = ours.keys().find(|name| !want.contains_key(*name))
                {
                    return Err(format!("{place}: expected no {extra}, got {}", ours[extra]));
                }
                for (name, want) in want {
                    let place = format!("{place}.{name}");
                    let Some(got) = ours.get(name) else {
                        // The stand-in noted who asked; NAPI says of a fabric only that it is one.
                        if name == "reqid" || (name == "fabric" && want == false) {
                            continue;
                        }
                        return Err(format!("{place}: expected {want}, got nothing"));
                    };
                    match name.as_str() {
                        "queue" => same(self.queue(want) == self.queue(got), &place, want, got)?,
                        "nic_tag" => same(tag(want) == tag(got), &place, want, got)?,
                        name if CHOSEN.contains(&name) && self.is_chosen(want, got) => {}
                        _ => self.value(&place, peer, want, got)?,
                    }
                }
                Ok(())
            }
            (Value::Array(want), Value::Array(ours)) => {
                same(
                    want.len() == ours.len(),
                    &format!("{place}: length"),
                    &want.len().into(),
                    &ours.len().into(),
                )?;
                let mut pairs = want.iter().zip(ours).enumerate();
                pairs.try_for_each(|(at, (want, got))| {
                    self.value(&format!("{place}[{at}]"), peer, want, got)
                })
            }
            _ => same(want == got, place, want, got),
        }
    }

    /// The tickets of a queue, which one stand-in told whole and the other by uuid, in our names.
    fn queue(&self, queue: &Value) -> Vec<String> {
        let tickets = queue.as_array().into_iter().flatten();
        let uuid =
            |ticket: &Value| ticket["uuid"].as_str().or(ticket.as_str()).map(|it| self.ours(it));
        tickets.filter_map(uuid).collect()
    }

    /// Whether a name or a time is one that each run has its own of: the one that we know, or of the same form.
    fn is_chosen(&self, want: &Value, got: &Value) -> bool {
        let (Some(want), Some(got)) = (want.as_str(), got.as_str()) else { return false };
        match self.0.get(want) {
            Some(ours) => ours == got,
            None => want == got || (form(want) == form(got) && form(want).contains('-')),
        }
    }
}

/// A fabric's tag without its vnet: NAPI shows it in NICs and not in networks, the stand-ins differed.
fn tag(tag: &Value) -> Option<&str> {
    tag.as_str()?.split('/').next()
}

fn same(is: bool, place: &str, want: &Value, got: &Value) -> Result<(), String> {
    if is { Ok(()) } else { Err(format!("{place}: expected {want}, got {got}")) }
}

/// A uuid, a time, a MAC or an address without its digits; a text of another kind as it is.
fn form(text: &str) -> String {
    let is_uuid = text.len() == 36 && text.matches('-').count() == 4;
    match text.parse::<jiff::Timestamp>() {
        Ok(_) => "a-time".to_owned(),
        Err(_) if is_uuid => "a-uuid".to_owned(),
        Err(_) if text.len() == 17 && text.matches(':').count() == 5 => "a-mac".to_owned(),
        Err(_) if text.parse::<std::net::IpAddr>().is_ok() => "an-address".to_owned(),
        Err(_) => text.to_owned(),
    }
}
