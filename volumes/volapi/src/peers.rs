// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is asked of the other services of the data centre. Each request is sent once: what did not succeed is
//! returned to the client, or tried again by a later pass.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use jiff::Timestamp;
use sdc_clients::cnapi::{Cnapi, DEFAULT_SERVER, Ticket, TicketOrder};
use sdc_clients::http::{Call, Http};
use sdc_clients::imgapi::Imgapi;
use sdc_clients::napi::Napi;
use sdc_clients::papi::{Package, PackageQuery, Papi};
use sdc_clients::snapshots::{PREFIX, Snapshots};
use sdc_clients::vmapi::{Changefeed, Subscription, VmQuery, Vmapi};
use sdc_clients::workflow::{Job, Workflow};
use sdc_clients::{Class, Error, Jitter};
use serde_json::{Map, Value};
use uuid::Uuid;

use volumes_core::facts::{self, Fact};
use volumes_core::refused::Refused;

/// The scope of volumes among the tickets that are no node's.
const SCOPE: &str = "nfs_volume";
/// How long CNAPI may let a ticket wait before it answers.
const TICKET_WAIT: std::time::Duration = std::time::Duration::from_secs(600);
/// VMs that are asked about at once.
const VMS: usize = 10;

/// The services.
#[derive(Clone, Debug)]
pub struct Peers {
    pub vmapi: Http,
    pub cnapi: Http,
    pub papi: Http,
    pub napi: Http,
    pub imgapi: Http,
    pub workflow: Http,
    /// The migration-agents of the nodes; none without RFD 26's snapshots.
    pub snapshots: Option<Snapshots>,
}

/// A storage VM and its node, as far as they can be asked for snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    node: Uuid,
    vm: Uuid,
}

impl Place {
    /// Returns the place of a VM; none if VMAPI does not report it.
    pub fn of(node: Option<&str>, vm: &str) -> Option<Place> {
        Some(Place { node: node?.parse().ok()?, vm: vm.parse().ok()? })
    }
}

/// Returns none where the thing is not there.
fn found<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.class() == Class::NotFoundResource => Ok(None),
        other => other.map(Some),
    }
}

impl Peers {
    /// Takes a ticket for this id until this second since 1970; it may have to wait.
    pub async fn ticket(&self, id: &str, expires_at: i64) -> Result<String, Error> {
        let order = TicketOrder {
            scope: SCOPE.to_owned(),
            id: id.to_owned(),
            expires_at: ends(expires_at),
            action: None,
            extra: None,
        };
        self.cnapi().create_ticket(DEFAULT_SERVER, &order).await
    }

    /// Waits until the ticket's turn has come.
    pub async fn ticket_turn(&self, ticket: &str) -> Result<(), Error> {
        self.cnapi().wait_ticket(ticket, TICKET_WAIT).await
    }

    /// Returns the ticket.
    pub async fn get_ticket(&self, ticket: &str) -> Result<Ticket, Error> {
        self.cnapi().get_ticket(ticket).await
    }

    /// Gives a ticket back, if it is still there.
    pub async fn release_ticket(&self, ticket: &str) -> Result<(), Error> {
        found(self.cnapi().release_ticket(ticket).await).map(drop)
    }

    /// Returns the open tickets for this id that end in this second.
    pub async fn tickets_of(&self, id: &str, expires_at: i64) -> Result<Vec<String>, Error> {
        let all = self.cnapi().list_tickets(DEFAULT_SERVER).await?;
        let ends_then =
            |text: &str| text.parse().is_ok_and(|it: Timestamp| it.as_second() == expires_at);
        let is_it = |ticket: &&Ticket| {
            !matches!(&*ticket.status, "finished" | "expired")
                && ticket.scope == SCOPE
                && ticket.id == id
                && ticket.expires_at.as_deref().is_some_and(ends_then)
        };
        Ok(all.iter().filter(is_it).map(|ticket| ticket.uuid.clone()).collect())
    }

    /// Returns the packages of volumes with their sizes in MiB, as PAPI sorts them: the smallest first.
    pub async fn packages(&self) -> Result<Vec<(f64, String)>, Error> {
        let query = PackageQuery {
            active: Some(true),
            name: Some("sdc_volume_nfs*".to_owned()),
            sort: Some("quota".to_owned()),
        };
        let (packages, left_out) = Papi::new(self.papi.clone()).list_packages(&query).await?;
        if let Some(why) = left_out.first.first() {
            tracing::warn!(
                count = left_out.count,
                why,
                "PAPI has packages that cannot be read and are not used"
            );
        }
        #[allow(clippy::cast_precision_loss)] // MiB
        let sized = |package: Package| Some((package.quota? as f64, package.uuid));
        Ok(packages.into_iter().filter_map(sized).collect())
    }

    /// Returns a network; none if NAPI does not have it.
    async fn network(&self, uuid: &str) -> Result<Option<Map<String, Value>>, Error> {
        match Napi::new(self.napi.clone()).get_network(uuid).await {
            // Another 404 does not mean that the network is not there.
            Err(error) if error.code() == Some("ResourceNotFound") => Ok(None),
            reply => Ok(Some(reply?.value)),
        }
    }

    /// Makes sure that the image is there; returns whether it is.
    pub async fn image(&self, uuid: &str, source: &str) -> Result<bool, Error> {
        let imgapi = Imgapi::new(self.imgapi.clone());
        match found(imgapi.get_image(uuid).await)? {
            Some(image) => Ok(image.state == "active"),
            None => match imgapi.import_remote_image(uuid, source).await {
                // It came meanwhile, or the import before this one still runs.
                Err(error) if error.status() == Some(409) => Ok(false),
                ordered => ordered.map(|()| false),
            },
        }
    }

    /// Returns the job; none if it is not there.
    pub async fn job(&self, uuid: &str) -> Result<Option<Job>, Error> {
        found(Workflow::new(self.workflow.clone()).get_job(uuid).await)
    }

    fn cnapi(&self) -> Cnapi {
        Cnapi::new(self.cnapi.clone())
    }

    fn vmapi(&self) -> Vmapi {
        Vmapi::new(self.vmapi.clone())
    }

    /// Returns what VMAPI knows of a VM now.
    pub async fn vm(&self, uuid: &str) -> Result<Fact, Error> {
        match found(self.vmapi().record(uuid).await)? {
            Some(record) => Ok(facts::read(&record)),
            None => Ok(Fact::Gone),
        }
    }

    /// Returns a feed of VMAPI's records: what of a VM matters to volumes.
    pub fn feed(&self, jitter: Jitter) -> Changefeed {
        const FIELDS: [&str; 7] =
            ["state", "zone_state", "destroyed", "nics", "tags", "internal_metadata", "owner_uuid"];
        let sub_resources = FIELDS.map(str::to_owned).to_vec();
        let listing = VmQuery {
            state: Some("active".to_owned()),
            fields: vec!["*".to_owned()],
            ..VmQuery::default()
        };
        let (service, instance) = ("volapi".to_owned(), Uuid::new_v4().to_string());
        self.vmapi().changefeed(Subscription { service, instance, sub_resources, listing }, jitter)
    }

    /// Returns those of the VMs that are neither destroyed nor failed. Ten are asked about at once, and
    /// the first ten of which any is there are the answer.
    pub async fn live_among(&self, vms: &[String]) -> Result<Vec<String>, Error> {
        for some in vms.chunks(VMS) {
            let live = self.live(some).await?;
            if !live.is_empty() {
                return Ok(some.iter().filter(|vm| live.contains(vm)).cloned().collect());
            }
        }
        Ok(Vec::new())
    }

    /// The service may answer a page at a time: the next one is asked for until one is not full.
    async fn live(&self, vms: &[String]) -> Result<Vec<String>, Error> {
        let mut live = Vec::new();
        let mut page = None;
        loop {
            let call = Call::get(&["vms"]).query("fields", "uuid").query("state", "active");
            let call = call.query_list("uuids", vms).query("offset", live.len());
            let reply = self.vmapi.execute(call.query_opt("limit", page)).await?;
            let found: Vec<Map<String, Value>> = reply.json("an array of VMs")?;
            let count = found.len();
            let uuid = |vm: &Map<String, Value>| Some(vm.get("uuid")?.as_str()?.to_owned());
            live.extend(found.iter().filter_map(uuid));
            match page {
                _ if count == 0 => return Ok(live),
                Some(full) if count < full => return Ok(live),
                _ if live.len() > vms.len() => return Ok(live),
                _ => page = page.or(Some(count)),
            }
        }
    }

    /// Asks VMAPI to make a VM.
    pub async fn create_vm(&self, payload: &Map<String, Value>) -> Result<(), Error> {
        self.vmapi().create_vm(payload).await.map(drop)
    }

    /// Asks VMAPI to destroy a VM, if it is still there.
    pub async fn delete_vm(&self, uuid: &str) -> Result<(), Error> {
        found(self.vmapi().delete_vm(uuid).await).map(drop)
    }

    /// Asks VMAPI to stop a VM.
    pub async fn stop_vm(&self, uuid: &str) -> Result<(), Error> {
        self.vmapi().stop_vm(uuid).await.map(drop)
    }

    /// Asks VMAPI to start a VM.
    pub async fn start_vm(&self, uuid: &str) -> Result<(), Error> {
        self.vmapi().start_vm(uuid).await.map(drop)
    }

    fn agents(&self) -> Result<&Snapshots, Error> {
        let why = "no secret of the migration-agents is configured";
        self.snapshots
            .as_ref()
            .ok_or_else(|| Error::new(Class::Request, &Method::GET, "/vms/UUID/snapshots", why))
    }

    /// Returns the uuids of the snapshots that a node has of a volume, the oldest first.
    pub async fn snapshots(&self, at: Place) -> Result<Vec<String>, Error> {
        let found = self.agents()?.list(at.node, at.vm).await?;
        Ok(uuids(found.into_iter().map(|it| it.name)))
    }

    /// Has a node make a snapshot, if it is not there.
    pub async fn make_snapshot(&self, at: Place, uuid: &str) -> Result<(), Error> {
        self.agents()?.create(at.node, at.vm, &on_node(uuid)).await.map(drop)
    }

    /// Has a node destroy a snapshot, if it is there.
    pub async fn destroy_snapshot(&self, at: Place, uuid: &str) -> Result<(), Error> {
        self.agents()?.destroy(at.node, at.vm, &on_node(uuid)).await
    }

    /// Has a node make a volume as it was; returns the uuids of the snapshots that are left.
    pub async fn roll_back(&self, at: Place, uuid: &str) -> Result<Vec<String>, Error> {
        let done = self.agents()?.roll_back(at.node, at.vm, &on_node(uuid)).await?;
        Ok(uuids(done.left.into_iter()))
    }

    /// Asks VMAPI to give a VM a NIC on this network; returns the job.
    pub async fn add_nic(&self, vm: &str, network: &str) -> Result<String, Error> {
        self.vmapi().add_nics(vm, &[network]).await.map(|ordered| ordered.job_uuid)
    }

    /// Asks VMAPI to take NICs from a VM; returns the job.
    pub async fn remove_nics(&self, vm: &str, macs: &[&str]) -> Result<String, Error> {
        self.vmapi().remove_nics(vm, macs).await.map(|ordered| ordered.job_uuid)
    }

    /// Asks VMAPI to reboot a VM.
    pub async fn reboot_vm(&self, uuid: &str) -> Result<(), Error> {
        self.vmapi().reboot_vm(uuid).await.map(drop)
    }

    /// Asks VMAPI to replace the tags of a VM, if it is still there.
    pub async fn set_tags(&self, vm: &str, tags: &Map<String, Value>) -> Result<(), Error> {
        found(self.vmapi().set_tags(vm, tags).await).map(drop)
    }

    /// Returns those of the VMs that are neither destroyed nor failed, with the networks of each.
    pub async fn networks_of(&self, vms: Vec<String>) -> Result<Vec<(String, Vec<String>)>, Error> {
        if vms.is_empty() {
            return Ok(Vec::new());
        }
        let fields = ["uuid", "nics"].map(str::to_owned).to_vec();
        let state = Some("active".to_owned());
        let query = VmQuery { uuids: vms, state, fields, ..VmQuery::default() };
        let found = self.vmapi().records(&query).await?;
        let known = |vm: &Map<String, Value>| {
            let networks = facts::nics(vm).into_iter().filter_map(|nic| nic.network).collect();
            Some((vm.get("uuid")?.as_str()?.to_owned(), networks))
        };
        Ok(found.iter().filter_map(known).collect())
    }

    /// Returns a package of PAPI; none if it does not have it.
    pub async fn compute_package(&self, uuid: &str) -> Result<Option<Package>, Error> {
        found(Papi::new(self.papi.clone()).get_package(uuid).await)
    }

    /// Refuses networks that are not fabric networks of this owner.
    /// Names those that fail, or NAPI's error where it does not answer for some.
    pub async fn require_networks(&self, owner: &str, uuids: &[String]) -> Result<(), Refused> {
        let asked = join_all(uuids.iter().map(|uuid| self.network(uuid))).await;
        let (mut missing, mut foreign, mut non_fabric) = (Vec::new(), Vec::new(), Vec::new());
        let mut errors = Vec::new();
        for (uuid, network) in uuids.iter().zip(asked) {
            match network {
                Ok(None) => missing.push(uuid.clone()),
                Ok(Some(network)) => {
                    let owners = network.get("owner_uuids").and_then(Value::as_array);
                    if !owners.into_iter().flatten().any(|it| it == owner) {
                        foreign.push(uuid.clone());
                    }
                    if network.get("fabric") != Some(&Value::Bool(true)) {
                        non_fabric.push(uuid.clone());
                    }
                }
                Err(error) => errors.push(error.message().to_owned()),
            }
        }
        if !errors.is_empty() {
            return Err(Refused::Napi(errors));
        }
        if missing.is_empty() && foreign.is_empty() && non_fabric.is_empty() {
            return Ok(());
        }
        Err(Refused::Networks { missing, foreign, non_fabric })
    }
}

/// Returns the name of a snapshot on its node. No two ever have the same.
fn on_node(uuid: &str) -> String {
    format!("{PREFIX}{uuid}")
}

fn uuids(names: impl Iterator<Item = String>) -> Vec<String> {
    names.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned)).collect()
}

/// Returns true if a service refused for good: a retry cannot succeed.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error.status(), Some(409 | 412 | 422 | 507))
}

/// When a ticket ends.
fn ends(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

/// Returns a service's error, with its name as the deployed clients print it.
pub fn named(error: &Error) -> String {
    match error.code() {
        Some(code) if code.ends_with("Error") => format!("{code}: {}", error.message()),
        Some(code) => format!("{code}Error: {}", error.message()),
        None => error.to_string(),
    }
}

/// Returns the status that a service answered, 503 where it did not.
pub fn status_of(error: &Error) -> u16 {
    error.status().unwrap_or(StatusCode::SERVICE_UNAVAILABLE.as_u16())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mocks::cnapi::Store;
    use mocks::transport::InProcess;

    use super::*;

    #[tokio::test] // CN6
    async fn a_ticket_that_is_not_given_back_ends_at_its_time() {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let store = Store::at(now.as_millisecond());
        let transport = Arc::new(InProcess::new(store.clone()));
        let http = Http::with_transport("http://cnapi.sim", "volapi", transport).unwrap();
        let [vmapi, cnapi, papi, napi, imgapi, workflow] = [(); 6].map(|()| http.clone());
        let peers = Peers { vmapi, cnapi, papi, napi, imgapi, workflow, snapshots: None };
        let ends = now.as_second() + 60;
        let ticket = peers.ticket("owner-data", ends).await.unwrap();
        assert_eq!(store.all_tickets()[0]["expires_at"], "2026-03-01T00:01:00.000Z");
        assert_eq!(
            peers.tickets_of("owner-data", ends).await.unwrap(),
            std::slice::from_ref(&ticket)
        );
        assert!(peers.get_ticket(&ticket).await.unwrap().is_active());
        store.advance(Duration::from_secs(62));
        assert_eq!(peers.get_ticket(&ticket).await.unwrap().status, "expired");
        assert!(peers.tickets_of("owner-data", ends).await.unwrap().is_empty());
    }
}
