// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What was done to the surroundings of the recorded volapi.

use anyhow::Context as _;
use serde_json::{Map, Value, json};
use volapi::service::Service;

use super::compare::Memory;
use crate::conform::transcript::UnknownStep;
use crate::volapi::peers::DataCentre;

/// What a change asks of the replay itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Then {
    /// The service is started again.
    pub(super) restart: bool,
    /// The storage goes, or comes back.
    pub(super) storage: Option<bool>,
}

/// Makes one change. VMs whose events the real service read later go to `unread`.
pub(super) async fn change(
    world: &Value,
    data_centre: &DataCentre,
    service: &Service,
    memory: &Memory,
    unread: &mut Vec<String>,
) -> anyhow::Result<Then> {
    let text = |name: &str| world[name].as_str().unwrap_or_default();
    let set = memory.ours_in(&world["set"]);
    let set = set.as_object().cloned().unwrap_or_default();
    match text("do") {
        "vm" if world.get("storage_vm_of").is_some() => {
            let volume = memory.ours(text("storage_vm_of"));
            let volume = service.shared.records.volumes.get(&volume).await;
            let volume = volume.context(UnknownStep(world.clone()))?;
            let vm = volume.value.vm_uuid().to_owned();
            put(data_centre, &vm, set);
            service.follower.follow(&vm, None).await?;
        }
        "vm" => {
            put(data_centre, text("uuid"), set);
            service.follower.follow(text("uuid"), None).await?;
        }
        "job" => {
            let job = text("job");
            let hours = world["created_hours_ago"].as_f64().unwrap_or_default();
            let made = jiff::Timestamp::now() - jiff::SignedDuration::from_secs_f64(hours * 3600.0);
            if let Some(execution) = world["execution"].as_str() {
                let known =
                    json!({"uuid": job, "execution": execution, "created_at": made.to_string()});
                data_centre.set_job(known.as_object().cloned().unwrap_or_default());
            }
            if let Some(state) = world["vm_state"].as_str() {
                let owner = json!("644810da-6ce1-40a9-93db-c23dfb772fd2");
                let fields = [("owner_uuid", owner), ("state", json!(state))];
                let fields = fields.map(|(name, value)| (name.to_owned(), value));
                put(data_centre, text("vm"), fields.into_iter().collect());
                unread.push(text("vm").to_owned());
            }
        }
        "wait" => service.follower.check_jobs(None).await?,
        "peer" => {
            if let Some(conf) = world["conf"].as_object() {
                data_centre.behave(conf);
            }
            if world.get("tickets").is_some() || world.get("reset").is_some() {
                data_centre.drop_tickets();
            }
            return Ok(Then { restart: world["restart"] == true, storage: None });
        }
        "moray" => {
            let state = text("state");
            let restart = state.contains("restarted");
            return Ok(Then {
                restart,
                storage: Some(!state.ends_with("stopped") && !state.ends_with("stopped again")),
            });
        }
        _ => return Err(UnknownStep(world.clone()).into()),
    }
    Ok(Then::default())
}

/// Replaces the record of a VM with the old one and these fields.
fn put(data_centre: &DataCentre, vm: &str, set: Map<String, Value>) {
    let fresh =
        json!({"uuid": vm, "brand": "joyent", "customer_metadata": {}, "internal_metadata": {}});
    let mut record =
        data_centre.vms.get(vm).unwrap_or_else(|| fresh.as_object().cloned().unwrap_or_default());
    record.extend(set);
    data_centre.vms.put(record);
}
