// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waitlist tickets: for each (server, scope, id) a queue, of which the first is active. Pure: the caller
//! brings the time.

use serde_json::{Map, Value, json};

use crate::restify::iso;

/// Tickets that are kept after their end.
const MOST_ENDED: usize = 1000;

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Tickets(Vec<Ticket>);

#[derive(Debug, Clone)]
struct Ticket {
    uuid: String,
    server: String,
    scope: String,
    id: String,
    /// As it was sent.
    expires_at: Value,
    expires_ms: Option<i64>,
    created_ms: i64,
    updated_ms: i64,
    status: String,
    action: Option<Value>,
    extra: Value,
}

impl Ticket {
    fn is_waiting(&self) -> bool {
        matches!(&*self.status, "queued" | "active")
    }

    fn is_beside(&self, other: &Ticket) -> bool {
        (&self.server, &self.scope, &self.id) == (&other.server, &other.scope, &other.id)
    }

    fn shown(&self) -> Value {
        let mut shown = json!({
            "uuid": self.uuid,
            "server_uuid": self.server,
            "scope": self.scope,
            "id": self.id,
            "expires_at": self.expires_at,
            "created_at": iso(self.created_ms),
            "updated_at": iso(self.updated_ms),
            "status": self.status,
        });
        if let Some(action) = &self.action {
            shown["action"] = action.clone();
        }
        shown["extra"] = self.extra.clone();
        shown
    }

    fn become_(&mut self, status: &str, now_ms: i64) {
        status.clone_into(&mut self.status);
        self.updated_ms = now_ms;
    }
}

impl Tickets {
    /// Adds a ticket at the end of its queue; returns it and its queue, or the field that is missing.
    pub(super) fn add(
        &mut self,
        server: &str,
        order: &Map<String, Value>,
        now_ms: i64,
    ) -> Result<Value, &'static str> {
        let text = |name: &'static str| {
            let given = order.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            given.map(str::to_owned).ok_or(name)
        };
        let expires_at = text("expires_at")?;
        let ticket = Ticket {
            uuid: uuid::Uuid::new_v4().to_string(),
            server: server.to_owned(),
            scope: text("scope")?,
            id: text("id")?,
            expires_ms: time(&expires_at),
            expires_at: json!(expires_at),
            created_ms: now_ms,
            updated_ms: now_ms,
            status: "queued".to_owned(),
            action: order.get("action").cloned(),
            extra: order.get("extra").cloned().unwrap_or_else(|| json!({})),
        };
        self.0.push(ticket.clone());
        self.sweep(now_ms);
        let beside = |it: &&Ticket| it.is_waiting() && it.is_beside(&ticket);
        let queue: Vec<Value> = self.0.iter().filter(beside).map(Ticket::shown).collect();
        Ok(json!({ "uuid": ticket.uuid, "queue": queue }))
    }

    /// One ticket.
    pub(super) fn get(&mut self, uuid: &str, now_ms: i64) -> Option<Value> {
        self.sweep(now_ms);
        self.0.iter().find(|it| it.uuid == uuid).map(Ticket::shown)
    }

    /// Returns whether a ticket still waits for its turn; nothing if there is no such ticket.
    pub(super) fn is_queued(&mut self, uuid: &str, now_ms: i64) -> Option<bool> {
        self.sweep(now_ms);
        self.0.iter().find(|it| it.uuid == uuid).map(|it| it.status == "queued")
    }

    /// The tickets of a server, oldest first; all where it is nothing.
    pub(super) fn list(&mut self, server: Option<&str>, now_ms: i64) -> Vec<Value> {
        self.sweep(now_ms);
        let of = |it: &&Ticket| server.is_none_or(|server| it.server == server);
        self.0.iter().filter(of).map(Ticket::shown).collect()
    }

    /// Sets the status of a ticket; returns false if there is no such ticket.
    pub(super) fn set(&mut self, uuid: &str, status: &str, now_ms: i64) -> bool {
        let Some(ticket) = self.0.iter_mut().find(|it| it.uuid == uuid) else { return false };
        ticket.become_(status, now_ms);
        self.sweep(now_ms);
        true
    }

    /// Drops all tickets.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// When the next ticket loses its place, in milliseconds since 1970.
    pub(super) fn next_expiry(&self) -> Option<i64> {
        self.0.iter().filter(|it| it.is_waiting()).filter_map(|it| it.expires_ms).min()
    }

    /// Ends what has expired, and gives each queue without an active ticket its next one.
    fn sweep(&mut self, now_ms: i64) {
        for ticket in self.0.iter_mut().filter(|it| it.is_waiting()) {
            if ticket.expires_ms.is_some_and(|at| at <= now_ms) {
                ticket.become_("expired", now_ms);
            }
        }
        for at in 0..self.0.len() {
            let Some(ticket) = self.0.get(at).filter(|it| it.status == "queued") else { continue };
            let is_held = |it: &Ticket| it.status == "active" && it.is_beside(ticket);
            if !self.0.iter().any(is_held)
                && let Some(ticket) = self.0.get_mut(at)
            {
                ticket.become_("active", now_ms);
            }
        }
        let mut ended = self.0.iter().filter(|it| !it.is_waiting()).count();
        self.0.retain(|it| {
            let drop = !it.is_waiting() && ended > MOST_ENDED;
            ended -= usize::from(drop);
            !drop
        });
    }
}

/// A time in either form; nothing where it is none: such a ticket does not expire.
fn time(text: &str) -> Option<i64> {
    let iso = text.parse::<jiff::Timestamp>().ok();
    let javascript = || {
        let text = text.strip_suffix(" (UTC)").unwrap_or(text);
        let parsed = jiff::fmt::strtime::parse("%a %b %d %Y %H:%M:%S GMT%z", text).ok()?;
        parsed.to_timestamp().ok()
    };
    iso.or_else(javascript).map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str, expires_at: &str) -> Map<String, Value> {
        let order = json!({ "scope": "vm", "id": id, "expires_at": expires_at });
        order.as_object().unwrap().clone()
    }

    #[test]
    fn one_ticket_of_a_queue_is_active_until_it_is_released_or_expires() {
        let mut tickets = Tickets::default();
        let mut add = |server: &str, id: &str, at: &str| {
            let added = tickets.add(server, &order(id, at), 0).unwrap();
            (added["uuid"].as_str().unwrap().to_owned(), added["queue"].as_array().unwrap().len())
        };
        let (first, _) = add("default", "a", "1970-01-01T00:10:00.000Z");
        let (second, queue) = add("default", "a", "Thu Jan 01 1970 00:20:00 GMT+0000 (UTC)");
        assert_eq!(queue, 2);
        let (third, _) = add("default", "a", "1970-01-01T00:30:00.000Z");
        let (elsewhere, queue) = add("cn", "a", "1970-01-01T00:30:00.000Z");
        assert_eq!(queue, 1, "another server is another queue");
        let queued = |tickets: &mut Tickets, now| {
            [&first, &second, &third, &elsewhere].map(|it| tickets.is_queued(it, now).unwrap())
        };
        assert_eq!(queued(&mut tickets, 1), [false, true, true, false]);
        assert!(tickets.set(&first, "finished", 2));
        assert_eq!(queued(&mut tickets, 3), [false, false, true, false]);
        assert_eq!(tickets.next_expiry(), Some(20 * 60_000));
        assert_eq!(queued(&mut tickets, 20 * 60_000), [false; 4], "the second has expired");
        assert_eq!(tickets.get(&second, 20 * 60_000).unwrap()["status"], "expired");
        assert_eq!(tickets.get(&third, 20 * 60_000).unwrap()["status"], "active");
        assert_eq!(tickets.list(Some("cn"), 0).len(), 1);
        assert_eq!(tickets.is_queued("nope", 0), None);
        assert_eq!(tickets.add("cn", &Map::new(), 0), Err("expires_at"));
    }
}
