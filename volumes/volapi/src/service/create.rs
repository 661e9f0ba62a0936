// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `POST /volumes`: the record in state `creating`, then its storage VM.
//!
//! A process may die between any two steps, so the record and its claim on the name are stored before VMAPI is asked:
//! a storage VM always has a volume that names it, and `tidy` ends what was cut off. What makes the volume `ready` is
//! that VM: [`Follower`](super::follow::Follower) sees it run, in `follow`, by the rules of `volumes_core::reduce`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sdc_clients::Error;
use sdc_clients::cnapi::Affinity;
use serde_json::{Value, json};
use store::{Batch, Expect};
use uuid::Uuid;

use super::follow::Trouble;
use super::packages::Packages;
use super::references::by_age;
use super::state::{Count, Right, Shared};
use super::works::{NoTicket, Works};
use crate::records::{Doing, of_storage};
use volumes_core::facts::Fact;
use volumes_core::failure::Failure;
use volumes_core::refused::{Refused, Step};
use volumes_core::requests::Create;
use volumes_core::storage_vm::{self, Version, Wanted, payload};
use volumes_core::volume::{NewVolume, State, Volume};

/// Returns the refusal of a create or a rename that got no ticket.
pub(super) fn refused(fault: NoTicket) -> Refused {
    match fault {
        NoTicket::Error(_) => Refused::Failed(Step::Ticket),
        NoTicket::Status(_) => Refused::TicketNotActive,
        NoTicket::Storage(refused) => refused,
    }
}

/// Creates volumes.
#[derive(Debug)]
pub struct Creates {
    shared: Arc<Shared>,
    works: Arc<Works>,
    packages: Arc<Packages>,
    has_images: AtomicBool,
}

impl Creates {
    pub(super) fn new(
        shared: &Arc<Shared>,
        works: &Arc<Works>,
        packages: &Arc<Packages>,
    ) -> Creates {
        let (shared, works) = (Arc::clone(shared), Arc::clone(works));
        Creates {
            shared,
            works,
            packages: Arc::clone(packages),
            has_images: AtomicBool::new(false),
        }
    }

    /// Looks for the images of storage VMs, and has missing ones imported. Returns whether all are there.
    pub async fn find_images(&self) -> bool {
        let mut all = true;
        for image in self.shared.settings.images.iter().rev() {
            match self.shared.peers.image(image, &self.shared.settings.image_source).await {
                Ok(is_there) => all &= is_there,
                Err(error) => {
                    tracing::warn!(%error, image, "cannot find or import an image of storage VMs; no volume is created without it");
                    all = false;
                }
            }
        }
        self.has_images.store(all, Ordering::Relaxed);
        all
    }

    /// Returns true once all images are there.
    pub fn has_images(&self) -> bool {
        self.has_images.load(Ordering::Relaxed)
    }

    /// Creates a volume; returns it as clients see it, in state creating, once VMAPI makes its storage VM.
    pub async fn create(&self, asked: &Create) -> Result<Value, Refused> {
        let asked = &Create { affinity: rules(asked.affinity.as_ref())?, ..asked.clone() };
        self.shared.peers.require_networks(&asked.owner_uuid, &asked.networks).await?;
        let uuid = asked.uuid.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
        // Deployed clients see all nameless creations of an owner wait for each other.
        let ticket_name = asked.name.as_deref().unwrap_or("undefined");
        let held = self.works.hold(Doing::Create, &uuid, &asked.owner_uuid, ticket_name).await;
        let held = held.map_err(refused)?;
        let outcome = self.create_held(asked, uuid).await;
        // Where the storage went away it is not known how far it came.
        let is_done = !matches!(outcome, Err(Refused::StorageAway));
        self.works.let_go(held, is_done).await;
        outcome
    }

    async fn create_held(&self, asked: &Create, uuid: String) -> Result<Value, Refused> {
        let owner = &asked.owner_uuid;
        if let Some(name) = &asked.name
            && self.shared.records.holder_of(owner, name).await?.is_some()
        {
            return Err(Refused::NameTaken(name.clone()));
        }
        let chosen = self.choose(asked).await?;
        let nameless = || uuid.replace('-', "") + &Uuid::new_v4().simple().to_string();
        let name = asked.name.clone().unwrap_or_else(nameless);
        let reserved = self
            .shared
            .records
            .reservations_with(&[("volume_name", &name), ("owner_uuid", owner)])
            .await?;
        let mut volume = Volume::new(NewVolume {
            uuid,
            labels: asked.labels.clone(),
            name,
            owner_uuid: owner.clone(),
            size: chosen.size,
            create_timestamp: daemon::wall::now().as_millisecond(),
            refs: by_age(reserved),
            networks: asked.networks.clone(),
            vm_uuid: Uuid::new_v4().to_string(),
        });
        if let Some(billing_id) = &chosen.billing_id {
            volume.set_billing_id(billing_id);
        }
        self.record(&volume).await?;
        self.make_storage_vm(asked, &chosen.compute_package, volume).await
    }

    /// Chooses the package: the volume package that is asked for, else PAPI's of the size.
    async fn choose(&self, asked: &Create) -> Result<Chosen, Refused> {
        if let Some(package) = &asked.extra.package {
            let package = self.packages.package_for(package, Some(&asked.owner_uuid)).await?;
            #[allow(clippy::cast_precision_loss)] // MiB
            let size = package.size as f64;
            if asked.size.is_some_and(|asked| asked != size) {
                let what = format!("package {} has a size of {size} MiB", package.name);
                return Err(Refused::parameter(what));
            }
            let (compute_package, billing_id) = (package.compute_package_uuid, Some(package.uuid));
            return Ok(Chosen { size, compute_package, billing_id });
        }
        let packages = self.shared.peers.packages().await.map_err(|error| {
            tracing::warn!(%error, "cannot list the packages of volumes; refusing the create");
            Refused::Failed(Step::Packages)
        })?;
        let (size, package) = package_of(&packages, asked.size)?;
        Ok(Chosen { size, compute_package: package.to_owned(), billing_id: None })
    }

    /// Writes the new record, and that it has its name.
    async fn record(&self, volume: &Volume) -> Result<(), Refused> {
        let (owner, name) = (volume.owner_uuid(), volume.name());
        let mut batch = Batch::new();
        self.shared.records.claim(&mut batch, owner, name, volume.uuid()).await?;
        self.shared
            .records
            .volumes
            .put_in(&mut batch, volume.uuid(), Expect::Absent, volume)
            .map_err(of_storage)?;
        match self.shared.records.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(store::Error::EtagConflict { bucket, .. }) if bucket == "volapi_volumes" => {
                Err(Refused::UuidTaken(volume.uuid().to_owned()))
            }
            Err(store::Error::EtagConflict { .. }) => Err(Refused::NameTaken(name.to_owned())),
            Err(error) => Err(of_storage(error)),
        }
    }

    async fn make_storage_vm(
        &self,
        asked: &Create,
        package: &str,
        volume: Volume,
    ) -> Result<Value, Refused> {
        let mut volume = volume;
        let [second, first] = &self.shared.settings.images;
        let wanted = |image_uuid| Wanted {
            volume_uuid: volume.uuid(),
            owner_uuid: &asked.owner_uuid,
            image_uuid,
            package_uuid: package,
            networks: &asked.networks,
            affinity: asked.affinity.as_ref(),
            labels: asked.labels.as_ref(),
            server_uuid: asked.extra.server_uuid.as_deref(),
            ip_address: asked.extra.ip_address,
        };
        let body = payload(volume.vm_uuid(), Version::Second, &wanted(second));
        let mut made = self.shared.peers.create_vm(&body).await;
        if made.as_ref().is_err_and(|error| storage_vm::wants_first_version(error.message())) {
            let vm = Uuid::new_v4().to_string();
            let body = payload(&vm, Version::First, &wanted(first));
            // The record has the VM's uuid before the request to VMAPI.
            let changed =
                self.shared.records.change(volume.uuid(), |volume| volume.set_vm_uuid(&vm));
            volume = changed.await?.ok_or_else(|| Refused::NoVolume(volume.uuid().to_owned()))?;
            made = self.shared.peers.create_vm(&body).await;
        }
        match made {
            Ok(()) => {
                self.shared.counts.add(Count::Created);
                Ok(volume.shown())
            }
            Err(error) => Err(self.not_made(&volume, &error).await?),
        }
    }

    async fn not_made(&self, volume: &Volume, error: &Error) -> Result<Refused, Refused> {
        tracing::warn!(%error, volume = volume.uuid(), "VMAPI did not create the storage VM; setting the volume to failed");
        self.shared.counts.add(Count::CreateFailed);
        let why = Failure::Refused(error.message().to_owned());
        let fail = |volume: &mut Volume| {
            if volume.state() == State::Creating {
                volume.fail(&why);
            }
        };
        self.shared.records.change(volume.uuid(), fail).await?;
        Ok(Refused::Failed(Step::StorageVm))
    }

    /// Ends a create that was cut off: a volume whose storage VM VMAPI does not know will not become ready. Nothing is
    /// written after the right has ended.
    pub(super) async fn end(&self, uuid: &str, right: Right<'_>) -> Result<(), Trouble> {
        let Some(volume) = self.shared.records.volume(uuid, None).await? else { return Ok(()) };
        if volume.value.state() != State::Creating {
            return Ok(());
        }
        let vm = volume.value.vm_uuid().to_owned();
        if self.shared.peers.vm(&vm).await? != Fact::Gone || !right.holds() {
            return Ok(());
        }
        let why = Failure::CutOff;
        tracing::warn!(
            volume = uuid,
            %why,
            "set the volume to failed: it has no storage VM; delete it and create it again"
        );
        let fail = |volume: &mut Volume| {
            if volume.state() == State::Creating && volume.vm_uuid() == vm {
                volume.fail(&why);
            }
        };
        self.shared.records.change_under(right.fence(), uuid, fail).await?;
        Ok(())
    }
}

/// Returns the rules as placement takes them: objects.
fn rules(given: Option<&Value>) -> Result<Option<Value>, Refused> {
    let Some(given) = given else { return Ok(None) };
    let rules = Affinity::list(given).map_err(|why| Refused::parameter(why.to_string()))?;
    Ok(Some(json!(rules)))
}

/// What the storage VM and the volume get of a package.
struct Chosen {
    /// In MiB.
    size: f64,
    compute_package: String,
    /// The volume package.
    billing_id: Option<String>,
}

/// Returns the package of this size and the size; without one the first that PAPI names.
fn package_of(packages: &[(f64, String)], size: Option<f64>) -> Result<(f64, &str), Refused> {
    let found = match size {
        Some(size) => packages.iter().find(|(quota, _)| *quota == size),
        None => packages.first(),
    };
    let (size, package) =
        found.ok_or_else(|| Refused::NoSuchSize { size, available: sizes(packages) })?;
    Ok((*size, package))
}

/// Returns the sizes that there are, ascending, in MiB.
pub(super) fn sizes(packages: &[(f64, String)]) -> Vec<f64> {
    let mut sizes: Vec<f64> = packages.iter().map(|(size, _)| *size).collect();
    sizes.sort_by(f64::total_cmp);
    sizes
}
