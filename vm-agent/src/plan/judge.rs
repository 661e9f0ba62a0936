// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is to be done about one VM.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sdc_clients::uuid_value;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Map, Value};

use super::compare::differences;
use super::reason::Reason;
use super::record::{Record, time};

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing, until something changes.
    Nothing(Reason),
    /// The record is to be replaced by this whole object.
    Put(Reason, Map<String, Value>),
    /// The record is to be replaced by this, which says destroyed.
    Destroyed(Map<String, Value>),
    /// Nothing now.
    Wait(Reason),
}

impl Decision {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nothing(_) => "nothing",
            Self::Put(..) => "put",
            Self::Destroyed(_) => "destroyed",
            Self::Wait(_) => "wait",
        }
    }

    /// Returns why.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Nothing(why) | Self::Put(why, _) | Self::Wait(why) => why.clone(),
            Self::Destroyed(_) => Reason::Gone,
        }
    }
}

/// How long a state that seldom lasts is seen before it is told.
pub const LASTS: Duration = Duration::from_secs(1);

/// The states that a zone only passes through.
const PASSING: [&str; 3] = ["down", "ready", "shutting_down"];

/// Returns the state of this object, if it is one that seldom lasts.
pub fn passing(object: &VmObject) -> Option<&str> {
    object.zone_state().filter(|state| PASSING.contains(state))
}

/// What is known of a reading beside its object.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The VM came here, or out of hiding, and VMAPI was not told yet.
    pub is_new: bool,
    /// It is of this VM alone, and began after VMAPI's record was read.
    pub is_after: bool,
    /// How much longer its state must be seen, if it is one that seldom lasts.
    pub lasts_in: Duration,
}

type Is = fn(&Value) -> bool;

/// The fields that every object has which was read whole (H7); the type of those that have one.
const WHOLE: [(&str, Is); 10] = [
    ("brand", Value::is_string),
    ("state", Value::is_string),
    ("zone_state", Value::is_string),
    ("zonepath", Value::is_string),
    ("owner_uuid", |owner| owner.as_str().is_some_and(|it| uuid::Uuid::try_parse(it).is_ok())),
    ("nics", Value::is_array),
    ("customer_metadata", Value::is_object),
    ("internal_metadata", Value::is_object),
    ("tags", Value::is_object),
    ("snapshots", Value::is_array),
];

/// Returns the VM's uuid, as the requests name it.
pub fn named(object: &VmObject) -> Option<String> {
    let uuid = object.uuid()?;
    uuid::Uuid::try_parse(uuid).ok().map(|_| uuid_value(uuid))
}

/// What judges: the node, and the rules.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// This node.
    pub cn_uuid: &'a str,
    /// How long a VM that VMAPI lists as provisioning may be missing here.
    pub provisioning_age: Duration,
    /// The time.
    pub now: Timestamp,
}

impl Judge<'_> {
    /// Judges a VM that is here. Where the record says that it is newer, a reading begun after it decides.
    pub fn present(
        &self,
        record: Option<&Record>,
        object: &VmObject,
        reading: Reading,
    ) -> Decision {
        if let Err(why) = self.is_sayable(object) {
            return match why {
                Reason::Hidden => Decision::Nothing(why),
                why => Decision::Wait(why),
            };
        }
        let put = |why| match passing(object).is_some() && !reading.lasts_in.is_zero() {
            true => Decision::Wait(Reason::Passing(reading.lasts_in)),
            false => Decision::Put(why, object.clone()),
        };
        let Some(record) = record else { return put(Reason::NoRecord) };
        if record.is_on(self.cn_uuid) {
            if record.is_bare() {
                return put(Reason::Bare);
            }
            let (stored, here) = (record.time("last_modified"), time(object, "last_modified"));
            if let (Some(stored), Some(here)) = (stored, here)
                && stored > here
                && !reading.is_after
            {
                let (record, here) = (stored.to_string(), here.to_string());
                return Decision::Wait(Reason::Older { record, here });
            }
        } else if let Some(server) = record.server()
            && record.over().is_none()
            && !reading.is_new
            && object.zone_state() != Some("running")
        {
            // The other node was told later than this one that it has the VM.
            return Decision::Nothing(Reason::Elsewhere(server));
        }
        let differing = differences(record, object);
        if differing.is_empty() {
            return Decision::Nothing(Reason::Same);
        }
        put(Reason::Differs(differing))
    }

    /// Checks that the object may be told at all: shown, whole, of this node.
    fn is_sayable(&self, object: &VmObject) -> Result<(), Reason> {
        if object.is_hidden() {
            return Err(Reason::Hidden);
        }
        if named(object).is_none() {
            return Err(Reason::Partial("uuid"));
        }
        let lacking = WHOLE.iter().find(|(key, is)| !object.get(*key).is_some_and(is));
        if let Some((key, _)) = lacking {
            return Err(Reason::Partial(key));
        }
        match object.node_uuid().map(uuid_value) {
            Some(server) if server == self.cn_uuid => Ok(()),
            Some(server) => Err(Reason::WrongNode(server)),
            None => Err(Reason::Partial("server_uuid")),
        }
    }

    /// Judges a VM that is gone; `last` is the object that was seen last.
    pub fn absent(&self, record: Option<&Record>, last: Option<&VmObject>) -> Decision {
        let Some(record) = record else { return Decision::Nothing(Reason::NoRecord) };
        if record.server().is_none() {
            return Decision::Nothing(Reason::Nowhere);
        }
        if let Some(state) = record.over() {
            return Decision::Nothing(Reason::Over(state.to_owned()));
        }
        if let Some(server) = record.lives_elsewhere(self.cn_uuid) {
            return Decision::Nothing(Reason::Elsewhere(server));
        }
        if record.is_bare() {
            return Decision::Nothing(Reason::Bare);
        }
        if let Some(left) = self.provisioning(record) {
            return Decision::Wait(Reason::Provisioning(left));
        }
        let newer = last.filter(|last| {
            let at = |object| time(object, "last_modified");
            at(last) >= at(&record.0) && last.get("owner_uuid") == record.0.get("owner_uuid")
        });
        // A VM that is being removed loses its datasets first: what the last object lacks, the record has.
        let mut object = record.0.clone();
        object.extend(newer.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        object.retain(|key, value| !value.is_null() && key != "do_not_inventory");
        for key in ["state", "zone_state"] {
            object.insert(key.to_owned(), "destroyed".into());
        }
        for key in ["uuid", "server_uuid"] {
            if let Some(value) = record.0.get(key) {
                object.insert(key.to_owned(), value.clone());
            }
        }
        Decision::Destroyed(object)
    }

    /// Returns how much longer a VM that VMAPI is provisioning may be missing (H1).
    fn provisioning(&self, record: &Record) -> Option<Duration> {
        if !record.is_provisioning() {
            return None;
        }
        // Without a time, or with one ahead of the clock, it is young.
        let begun = record.time("create_timestamp").unwrap_or(self.now).min(self.now);
        let age: SignedDuration = self.now.duration_since(begun);
        let left = self.provisioning_age.saturating_sub(age.unsigned_abs());
        (!left.is_zero()).then_some(left)
    }
}
