// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Volume packages: listed, made, activated and deactivated.

use std::sync::Arc;

use serde_json::Value;
use store::{Expect, Versioned};
use uuid::Uuid;

use super::delete::passed_on;
use super::state::Shared;
use crate::records::{Tries, all, got, of_storage, written};
use sdc_clients::restify::is_uuid;
use volumes_core::package::{NewPackage, Package, Wanted};
use volumes_core::refused::Refused;

/// Volume packages.
#[derive(Debug)]
pub struct Packages {
    shared: Arc<Shared>,
}

impl Packages {
    pub(super) fn new(shared: &Arc<Shared>) -> Packages {
        Packages { shared: Arc::clone(shared) }
    }

    /// Returns the packages that this user may use, the smallest first; without a user, all of them.
    pub async fn all(&self, owner: Option<&str>) -> Result<Value, Refused> {
        let found = all(&self.shared.records.packages, &[]).await?;
        let mut found: Vec<Package> = found.into_iter().map(|it| it.value).collect();
        found.retain(|package| package.is_for(owner));
        found.sort_by(|a, b| (a.size, &a.name).cmp(&(b.size, &b.name)));
        Ok(found.iter().map(Package::shown).collect())
    }

    /// Returns a package as clients see it.
    /// Fails if there is none for this user, and those of the storage.
    pub async fn one(&self, asked: &Wanted) -> Result<Value, Refused> {
        let found = self.package_for(&asked.package, asked.owner_uuid.as_deref()).await?;
        Ok(found.shown())
    }

    /// Makes a package; returns it as clients see it.
    /// Fails if its name is taken, if PAPI does not have the package of its storage VMs, or has it in another size,
    /// and those of PAPI and of the storage.
    pub async fn add(&self, asked: &NewPackage) -> Result<Value, Refused> {
        let uuid = &asked.compute_package_uuid;
        let found =
            self.shared.peers.compute_package(uuid).await.map_err(|error| passed_on(&error))?;
        let Some(found) = found else {
            return Err(Refused::parameter(format!("PAPI has no package {uuid}")));
        };
        if found.quota != Some(asked.size) {
            let quota = found.quota.map_or("none".to_owned(), |quota| format!("{quota} MiB"));
            let what =
                format!("the quota of package {uuid} is {quota}, and the size {} MiB", asked.size);
            return Err(Refused::parameter(what));
        }
        let made = asked.made(Uuid::new_v4().to_string(), daemon::wall::now().as_millisecond());
        match self.shared.records.packages.put(&made.name, Expect::Absent, &made).await {
            Ok(_) => Ok(made.shown()),
            Err(store::Error::EtagConflict { .. }) => Err(Refused::PackageTaken(made.name)),
            Err(error) => Err(of_storage(error)),
        }
    }

    /// Activates or deactivates a package; returns it as clients see it.
    pub async fn set_active(&self, package: &str, active: bool) -> Result<Value, Refused> {
        let mut tries = Tries::default();
        loop {
            tries.another()?;
            let found = self.find_package(package).await?;
            let found = found.ok_or_else(|| Refused::NoPackage(package.to_owned()))?;
            let wanted = Package { active, ..found.value };
            let put =
                self.shared.records.packages.put(&found.key, Expect::Etag(found.etag), &wanted);
            if written(put.await.map(drop), ())?.is_some() {
                return Ok(wanted.shown());
            }
        }
    }

    /// Returns the package of this uuid or name that this user may use; without a user, any.
    pub(super) async fn package_for(
        &self,
        package: &str,
        owner: Option<&str>,
    ) -> Result<Package, Refused> {
        let found = self.find_package(package).await?.map(|it| it.value);
        let found = found.filter(|found| found.is_for(owner));
        found.ok_or_else(|| Refused::NoPackage(package.to_owned()))
    }

    async fn find_package(&self, package: &str) -> Result<Option<Versioned<Package>>, Refused> {
        if is_uuid(package) {
            return Ok(all(&self.shared.records.packages, &[("uuid", package)]).await?.pop());
        }
        got(self.shared.records.packages.get(package).await)
    }
}
