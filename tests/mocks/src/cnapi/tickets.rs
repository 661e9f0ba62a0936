// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Waitlist tickets: for each (server, scope, id) a queue, of which the first is active. Pure: the caller
//! brings the time.

use serde_json::{Map, Value, json};

use super::refusal::{Params, Refusal, closed};
use crate::restify::iso;

/// A ticket that has ended stays so long.
const KEPT_MS: i64 = 30 * 24 * 3_600_000;
/// Expiry is looked at so often.
const LOOKED_AT_MS: i64 = 500;
/// The longest page of a list.
const PAGE: usize = 1000;

/// The queues.
#[derive(Debug, Default)]
pub(super) struct Tickets(Vec<Ticket>);

#[derive(Debug, Clone)]
struct Ticket {
    uuid: String,
    server: String,
    scope: String,
    id: String,
    /// As it was sent: a text, which is compared as one.
    expires_at: String,
    created_ms: i64,
    updated_ms: i64,
    status: String,
    action: Option<Value>,
    extra: Value,
}

/// What a wait for a ticket sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// There is none.
    Missing,
    /// Others are before it.
    Queued,
    /// It is its turn.
    Active,
    /// Nobody is ever told of its end.
    Finished,
    /// It has lost its place.
    Expired,
}

impl Ticket {
    fn is_waiting(&self) -> bool {
        matches!(&*self.status, "queued" | "active")
    }

    fn is_beside(&self, other: &Ticket) -> bool {
        (&self.server, &self.scope, &self.id) == (&other.server, &other.scope, &other.id)
    }

    fn shown(&self) -> Value {
        let mut shown = Map::new();
        if let Some(action) = &self.action {
            shown.insert("action".to_owned(), action.clone());
        }
        let rest = json!({
            "created_at": iso(self.created_ms), "expires_at": self.expires_at, "extra": self.extra,
            "id": self.id, "scope": self.scope, "server_uuid": self.server, "status": self.status,
            "updated_at": iso(self.updated_ms), "uuid": self.uuid,
        });
        shown.extend(rest.as_object().cloned().unwrap_or_default());
        Value::Object(shown)
    }

    fn become_(&mut self, status: &str, now_ms: i64) {
        status.clone_into(&mut self.status);
        self.updated_ms = now_ms;
    }
}

impl Tickets {
    /// Adds a ticket at the end of its queue; returns it and its queue.
    pub(super) fn add(
        &mut self,
        server: &str,
        order: &Params,
        now_ms: i64,
    ) -> Result<Value, Refusal> {
        let text = |name: &str| {
            order.get(name).and_then(Value::as_str).map(str::to_owned).ok_or(Refusal::Dies)
        };
        let (action, extra) = (order.get("action"), order.get("extra"));
        if action.is_some_and(|it| !it.is_string()) || extra.is_some_and(|it| !it.is_object()) {
            return Err(Refusal::Dies);
        }
        let ticket = Ticket {
            uuid: uuid::Uuid::new_v4().to_string(),
            server: server.to_owned(),
            scope: text("scope")?,
            id: text("id")?,
            expires_at: text("expires_at")?,
            created_ms: now_ms,
            updated_ms: now_ms,
            status: "queued".to_owned(),
            action: action.cloned(),
            extra: extra.cloned().unwrap_or_else(|| json!({})),
        };
        self.0.push(ticket.clone());
        self.sweep(now_ms);
        let beside = |it: &&Ticket| it.is_waiting() && it.is_beside(&ticket);
        let queue: Vec<Value> = self.0.iter().filter(beside).map(Ticket::shown).collect();
        Ok(json!({ "uuid": ticket.uuid, "queue": queue }))
    }

    /// One ticket.
    pub(super) fn get(&mut self, uuid: &str, now_ms: i64) -> Result<Value, Refusal> {
        self.sweep(now_ms);
        Ok(self.find(uuid)?.shown())
    }

    fn find(&mut self, uuid: &str) -> Result<&mut Ticket, Refusal> {
        known(uuid)?;
        let ticket = self.0.iter_mut().find(|it| it.uuid == uuid);
        ticket.ok_or_else(|| Refusal::not_found(format!("ticket {uuid} not found")))
    }

    /// Returns what a wait for a ticket sees now.
    pub(super) fn seen(&mut self, uuid: &str, now_ms: i64) -> Seen {
        self.sweep(now_ms);
        match self.0.iter().find(|it| it.uuid == uuid).map(|it| it.status.as_str()) {
            None => Seen::Missing,
            Some("queued") => Seen::Queued,
            Some("active") => Seen::Active,
            Some("expired") => Seen::Expired,
            Some(_) => Seen::Finished,
        }
    }

    /// A page of the tickets of a server, oldest first.
    pub(super) fn list(
        &mut self,
        server: &str,
        query: &Params,
        now_ms: i64,
    ) -> Result<Vec<Value>, Refusal> {
        closed(query, &["limit", "offset", "order", "attribute"])?;
        let number = |name: &'static str, usual: usize| {
            let Some(text) = query.get(name).and_then(Value::as_str) else { return Ok(usual) };
            text.parse::<usize>().map_err(|_| {
                let why = [
                    "value was not a number".to_owned(),
                    format!("Invalid value for param '{name}'"),
                ];
                Refusal::Parameters(500, why.map(|why| (name.to_owned(), why)).into())
            })
        };
        let (limit, offset) = (number("limit", PAGE)?, number("offset", 0)?);
        if limit == 0 {
            return Err(Refusal::field("limit", "Invalid value for param 'limit'"));
        }
        if limit > PAGE {
            return Err(Refusal::argument("limit must be less than 1000"));
        }
        self.sweep(now_ms);
        let of = |it: &&Ticket| it.server == server;
        Ok(self.0.iter().filter(of).skip(offset).take(limit).map(Ticket::shown).collect())
    }

    /// All tickets, oldest first.
    pub(super) fn all(&mut self, now_ms: i64) -> Vec<Value> {
        self.sweep(now_ms);
        self.0.iter().map(Ticket::shown).collect()
    }

    /// What the open tickets for provisions on a server will take.
    pub(super) fn provisions(&mut self, server: &str, now_ms: i64) -> Vec<Params> {
        self.sweep(now_ms);
        let counts = |it: &&Ticket| {
            let is_provision = it.action.as_ref().is_some_and(|action| action == "provision");
            it.is_waiting() && it.server == server && it.scope == "vm" && is_provision
        };
        let vm = |it: &Ticket| {
            let mut vm = it.extra.as_object().cloned().unwrap_or_default();
            vm.entry("uuid").or_insert_with(|| json!(it.id));
            vm
        };
        self.0.iter().filter(counts).map(vm).collect()
    }

    /// Gives a ticket back.
    pub(super) fn release(&mut self, uuid: &str, now_ms: i64) -> Result<(), Refusal> {
        let ticket = self.find(uuid)?;
        if ticket.status != "finished" {
            ticket.become_("finished", now_ms);
        }
        self.sweep(now_ms);
        Ok(())
    }

    /// Drops a ticket.
    pub(super) fn delete(&mut self, uuid: &str, now_ms: i64) -> Result<(), Refusal> {
        known(uuid)?;
        let before = self.0.len();
        self.0.retain(|it| it.uuid != uuid);
        self.sweep(now_ms);
        let missing = || Refusal::internal(format!("ticket {uuid} not found"));
        if self.0.len() < before { Ok(()) } else { Err(missing()) }
    }

    /// Drops the tickets of a server, if that is meant.
    pub(super) fn delete_all(&mut self, server: &str, query: &Params) -> Result<(), Refusal> {
        if query.get("force").is_none_or(|force| force != "true") {
            let why = "Will not delete all tickets without ?force=true";
            return Err(Refusal::Coded(412, "PreconditionFailed", why.to_owned()));
        }
        self.0.retain(|it| it.server != server);
        Ok(())
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

    /// Ends what has expired, and gives each queue without an active ticket its next one.
    fn sweep(&mut self, now_ms: i64) {
        let looked_at = now_ms - now_ms.rem_euclid(LOOKED_AT_MS);
        let then = iso(looked_at);
        for ticket in self.0.iter_mut().filter(|it| it.is_waiting()) {
            if ticket.created_ms < looked_at && ticket.expires_at < then {
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
        self.0.retain(|it| it.is_waiting() || it.updated_ms > now_ms - KEPT_MS);
    }
}

/// A name that is no uuid ends the process.
pub(super) fn known(uuid: &str) -> Result<(), Refusal> {
    if super::refusal::is_uuid(uuid) { Ok(()) } else { Err(Refusal::Dies) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    fn order(id: &str, expires_at: &str) -> Params {
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
        let (second, queue) = add("default", "a", "1970-01-01T00:20:00.000Z");
        assert_eq!(queue, 2);
        let (third, _) = add("default", "a", "1970-01-01T00:30:00.000Z");
        let (elsewhere, queue) = add("cn", "a", "1970-01-01T00:30:00.000Z");
        assert_eq!(queue, 1, "another server is another queue");
        let seen = |tickets: &mut Tickets, now| {
            [&first, &second, &third, &elsewhere].map(|it| tickets.seen(it, now))
        };
        use Seen::{Active, Expired, Finished, Queued};
        assert_eq!(seen(&mut tickets, 1), [Active, Queued, Queued, Active]);
        tickets.release(&first, 2).unwrap();
        assert_eq!(seen(&mut tickets, 3), [Finished, Active, Queued, Active]);
        assert_eq!(seen(&mut tickets, 21 * MINUTE), [Finished, Expired, Active, Active]);
        tickets.release(&second, 21 * MINUTE).unwrap();
        assert_eq!(tickets.get(&second, 21 * MINUTE).unwrap()["status"], "finished");
        assert_eq!(tickets.list("cn", &Params::new(), 0).unwrap().len(), 1);
        assert_eq!(tickets.add("cn", &Params::new(), 0), Err(Refusal::Dies));
    }

    #[test]
    fn expiry_is_compared_as_text_and_what_has_ended_stays_for_thirty_days() {
        let mut tickets = Tickets::default();
        let now = 1_800_000_000_000; // 2027
        let mut add = |at: &str| {
            let added = tickets.add("default", &order(at, at), now).unwrap();
            added["uuid"].as_str().unwrap().to_owned()
        };
        let javascript = add("Sun Nov 22 2020 16:24:45 GMT+0000 (UTC)");
        let past = add("2020-11-22T16:24:45.000Z");
        assert_eq!(tickets.seen(&past, now), Seen::Active, "at first");
        assert_eq!(tickets.seen(&past, now + 1000), Seen::Expired);
        assert_eq!(tickets.seen(&javascript, now + 10 * KEPT_MS), Seen::Active, "for ever");
        assert_eq!(tickets.seen(&past, now + 10 * KEPT_MS), Seen::Missing);
    }
}
