// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waitlist tickets: CNAPI's locks. Of the tickets of one (server, scope, id) one is active, and the next
//! becomes so when that is released or has expired.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The server of tickets that belong to no node.
pub const DEFAULT_SERVER: &str = "default";

/// CNAPI compares the end of a ticket as a text, with its own time in this form: a ticket that ends in another one may
/// never end.
fn iso<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{at:.3}"))
}

/// What a ticket is wanted for. Unset fields are not sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TicketOrder {
    /// The kind of thing that is locked, as `vm` or `nfs_volume`.
    pub scope: String,
    /// The thing.
    pub id: String,
    /// When the ticket loses its place, held or not.
    #[serde(serialize_with = "iso")]
    pub expires_at: Timestamp,
    /// What is to be done, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What else people may want to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<Map<String, Value>>,
}

/// A ticket as CNAPI shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ticket {
    /// The ticket.
    pub uuid: String,
    /// The node, or [`DEFAULT_SERVER`].
    pub server_uuid: String,
    /// The kind of thing that is locked.
    pub scope: String,
    /// The thing.
    pub id: String,
    /// `queued`, `active`, `expired` or `finished`; an open set of words.
    pub status: String,
    /// When it loses its place, in the form in which it was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Every other field.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Ticket {
    /// Returns true while its holder may act.
    pub fn is_active(&self) -> bool {
        self.status == "active"
    }
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The new ticket.
    pub uuid: String,
    /// The tickets of the same server, scope and id that are queued or active, the oldest first, and the new one last.
    /// What is no ticket is left out.
    #[serde(default, deserialize_with = "tickets")]
    pub queue: Vec<Ticket>,
}

fn tickets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Ticket>, D::Error> {
    let Value::Array(rows) = Value::deserialize(from)? else { return Ok(Vec::new()) };
    Ok(rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect())
}
