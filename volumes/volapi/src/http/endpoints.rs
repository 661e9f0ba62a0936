// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of volapi's paths.

use sdc_clients::restify::{Endpoint, Endpoints, Shape, Slashes};
use sdc_clients::schema::Schemas;
use sdc_clients::volapi::{EndedSnapshot, NewVolume, Reservation, Volume};
use serde_json::Value;
use volumes_core::networks::Way;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Ping,
    Volumes,
    Volume,
    Sizes,
    References,
    AddReference,
    RemoveReference,
    Reservations,
    Reservation,
    MakeSnapshot,
    Snapshots,
    Snapshot,
    RollBack,
    History,
    Packages,
    Package,
    Network(Way),
    Document,
}

/// Returns the document of these paths.
pub fn document() -> Value {
    let schemas = Schemas::default().with::<NewVolume>().with::<Volume>().with::<Reservation>();
    let schemas = schemas.with::<EndedSnapshot>();
    ENDPOINTS.openapi("volapi", env!("CARGO_PKG_VERSION"), schemas.all())
}

/// By what a list is filtered.
const LIST: &[&str] = &["owner_uuid", "name", "state", "size", "type", "vm_uuid", "predicate"];

impl Route {
    /// Returns true for what the deployed service does not have.
    pub(super) fn is_rfd26(self) -> bool {
        use Route::{
            History, MakeSnapshot, Network, Package, Packages, RollBack, Snapshot, Snapshots,
        };
        matches!(
            self,
            Packages
                | Package
                | Network(_)
                | MakeSnapshot
                | Snapshots
                | Snapshot
                | RollBack
                | History
        )
    }
}

/// All paths. Those of snapshots, packages and networks are there with `rfd26` only.
pub const ENDPOINTS: Endpoints<Route> = Endpoints {
    all: &[
        Endpoint::new("/ping", "GET", Route::Ping)
            .about("whether the service and its storage answer"),
        Endpoint::new("/volumes", "POST, GET", Route::Volumes)
            .about("creates a volume, which is `creating` until its storage VM runs; lists volumes")
            .shapes(&[
                Shape::post(&[], "NewVolume", "Volume", "201"),
                Shape::get(LIST, "[Volume]"),
            ]),
        Endpoint::new("/volumesizes", "GET", Route::Sizes)
            .about("the sizes that a volume may have"),
        Endpoint::new("/volumepackages", "POST, GET", Route::Packages)
            .about("makes a volume package; lists those that are active"),
        Endpoint::new("/volumepackages/{uuid}", "GET, POST", Route::Package)
            .about("one package, by uuid or name; activates or deactivates it"),
        Endpoint::new("/volumereservations", "POST, GET", Route::Reservations)
            .about("reserves a volume for a VM that is being made; lists reservations")
            .shapes(&[Shape::get(&["owner_uuid", "volume_name"], "[Reservation]")]),
        Endpoint::new("/volumereservations/{uuid}", "DELETE", Route::Reservation)
            .about("drops a reservation"),
        Endpoint::new("/volumes/{uuid}", "GET, DELETE, POST", Route::Volume)
            .about("one volume; deletes it; changes its name and tags")
            .shapes(&[Shape::get(&["owner_uuid"], "Volume")]),
        Endpoint::new("/volumes/{uuid}/references", "GET", Route::References)
            .about("the VMs that use a volume"),
        Endpoint::new("/volumes/{uuid}/addreference", "POST", Route::AddReference)
            .about("a VM uses a volume from now on"),
        Endpoint::new("/volumes/{uuid}/removereference", "POST", Route::RemoveReference)
            .about("a VM uses a volume no more"),
        Endpoint::new("/volumes/{uuid}/attachtonetwork", "POST", Route::Network(Way::Attach))
            .about("adds a network to the storage VM of a volume"),
        Endpoint::new("/volumes/{uuid}/detachfromnetwork", "POST", Route::Network(Way::Detach))
            .about("removes a network from the storage VM of a volume"),
        Endpoint::new("/volumes/{uuid}/snapshot", "POST", Route::MakeSnapshot)
            .about("makes a snapshot of a volume"),
        Endpoint::new("/volumes/{uuid}/snapshots", "GET", Route::Snapshots)
            .about("the snapshots of a volume, the oldest first"),
        Endpoint::new("/volumes/{uuid}/snapshots/{name}", "GET, DELETE", Route::Snapshot)
            .about("one snapshot; deletes it"),
        Endpoint::new("/volumes/{uuid}/rollbacktosnapshot", "POST", Route::RollBack)
            .about("rolls a volume back to one of its snapshots"),
        Endpoint::new("/volumehistory", "GET", Route::History)
            .about("what has ended about snapshots: made, deleted, rolled back to; the newest first, 1,000 at most")
            .shapes(&[Shape::get(&["volume_uuid", "owner_uuid", "since"], "[EndedSnapshot]")]),
        Endpoint::new("/openapi.json", "GET", Route::Document).about("this document"),
    ],
    slashes: Slashes::Kept,
};
