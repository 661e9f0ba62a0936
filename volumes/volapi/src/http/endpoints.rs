// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The table of volapi's paths.

use sdc_clients::restify::{Endpoint, Endpoints, Slashes};
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
    let schemas = schemas
        .with::<EndedSnapshot>()
        .fields("VolumeSize", &["size! integer", "type! string"])
        .fields("VolumeChange", &["name string", "owner_uuid uuid", "tags object"])
        .fields("Use", &["owner_uuid! uuid", "vm_uuid! uuid"])
        .fields(
            "NewReservation",
            &["owner_uuid! uuid", "volume_name! string", "vm_uuid! uuid", "job_uuid! uuid"],
        )
        .fields("NetworkChange", &["network_uuid! uuid", "owner_uuid uuid", "force boolean"])
        .fields("NewSnapshot", &["name string", "owner_uuid uuid"])
        .fields("RollBack", &["name string", "uuid uuid", "owner_uuid uuid", "force boolean"])
        .fields(
            "NewPackage",
            &[
                "type! string",
                "size! integer",
                "compute_package_uuid! uuid",
                "description! string",
                "active! boolean",
                "name string",
                "owner_uuids [uuid]",
            ],
        )
        .fields("PackageChange", &["active! boolean"]);
    ENDPOINTS.openapi("volapi", env!("CARGO_PKG_VERSION"), schemas.all())
}

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
            .about("whether the service and its storage answer")
            .does(&["GET -> 200 {}"]),
        Endpoint::new("/volumes", "POST, GET", Route::Volumes)
            .about("the volumes")
            .does(&[
                "POST NewVolume -> 201 Volume: makes a volume, which is `creating` until its storage VM runs",
                "GET ?owner_uuid&name&state&size&type&vm_uuid&predicate -> 200 [Volume]",
            ]),
        Endpoint::new("/volumesizes", "GET", Route::Sizes)
            .about("the sizes that a volume may have")
            .does(&["GET ?type -> 200 [VolumeSize]"]),
        Endpoint::new("/volumepackages", "POST, GET", Route::Packages)
            .about("the volume packages that are active")
            .does(&[
                "POST NewPackage -> 201 {}: makes a volume package",
                "GET ?type&owner_uuid -> 200 [{}]",
            ]),
        Endpoint::new("/volumepackages/{uuid}", "GET, POST", Route::Package)
            .about("one package, by uuid or name")
            .does(&[
                "GET ?owner_uuid -> 200 {}",
                "POST PackageChange -> 200 {}: activates or deactivates it",
            ]),
        Endpoint::new("/volumereservations", "POST, GET", Route::Reservations)
            .about("the reservations")
            .does(&[
                "POST NewReservation -> 201 Reservation: reserves a volume for a VM that is being made",
                "GET ?owner_uuid&volume_name&vm_uuid&job_uuid -> 200 [Reservation]",
            ]),
        Endpoint::new("/volumereservations/{uuid}", "DELETE", Route::Reservation)
            .about("drops a reservation")
            .does(&["DELETE ?owner_uuid! -> 204"]),
        Endpoint::new("/volumes/{uuid}", "GET, DELETE, POST", Route::Volume)
            .about("one volume")
            .does(&[
                "GET ?owner_uuid -> 200 Volume",
                "DELETE ?owner_uuid&force -> 204: deletes it",
                "POST VolumeChange -> 200 Volume: changes its name and tags",
            ]),
        Endpoint::new("/volumes/{uuid}/references", "GET", Route::References)
            .about("the VMs that use a volume")
            .does(&["GET -> 200 [text]"]),
        Endpoint::new("/volumes/{uuid}/addreference", "POST", Route::AddReference)
            .about("a VM uses a volume from now on")
            .does(&["POST Use -> 204"]),
        Endpoint::new("/volumes/{uuid}/removereference", "POST", Route::RemoveReference)
            .about("a VM uses a volume no more")
            .does(&["POST Use -> 204"]),
        Endpoint::new("/volumes/{uuid}/attachtonetwork", "POST", Route::Network(Way::Attach))
            .about("adds a network to the storage VM of a volume")
            .does(&["POST NetworkChange -> 200 {}"]),
        Endpoint::new("/volumes/{uuid}/detachfromnetwork", "POST", Route::Network(Way::Detach))
            .about("removes a network from the storage VM of a volume")
            .does(&["POST NetworkChange -> 200 {}"]),
        Endpoint::new("/volumes/{uuid}/snapshot", "POST", Route::MakeSnapshot)
            .about("makes a snapshot of a volume")
            .does(&["POST NewSnapshot? -> 201 {}"]),
        Endpoint::new("/volumes/{uuid}/snapshots", "GET", Route::Snapshots)
            .about("the snapshots of a volume, the oldest first")
            .does(&["GET ?owner_uuid&name -> 200 [{}]"]),
        Endpoint::new("/volumes/{uuid}/snapshots/{name}", "GET, DELETE", Route::Snapshot)
            .about("one snapshot")
            .does(&["GET ?owner_uuid -> 200 {}", "DELETE ?owner_uuid -> 200 {}: deletes it"]),
        Endpoint::new("/volumes/{uuid}/rollbacktosnapshot", "POST", Route::RollBack)
            .about("rolls a volume back to one of its snapshots")
            .does(&["POST RollBack -> 200 {}"]),
        Endpoint::new("/volumehistory", "GET", Route::History)
            .about("what has ended about snapshots: made, deleted, rolled back to; the newest first, 1,000 at most")
            .does(&["GET ?volume_uuid&owner_uuid&since -> 200 [EndedSnapshot]"]),
        Endpoint::new("/openapi.json", "GET", Route::Document).about("this document").does(&["GET -> 200 {}"]),
    ],
    slashes: Slashes::Kept,
};
