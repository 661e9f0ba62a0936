// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A service over a store and the stand-ins, as a process has it from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use store::{Faults, Store};
use volapi::peers::Peers;
use volapi::records::Records;
use volapi::service::{Service, ServiceConfig};

use super::fuse::Fuse;
use super::peers::DataCentre;

/// Starts a service; with a node it has what only RFD 26 has.
pub async fn start(
    store: &Store,
    data_centre: &DataCentre,
    fuse: &Arc<Fuse>,
) -> anyhow::Result<Arc<Service>> {
    start_with(store, data_centre, fuse, |_| {}).await
}

/// The same with other settings.
pub async fn start_with(
    store: &Store,
    data_centre: &DataCentre,
    fuse: &Arc<Fuse>,
    set: impl FnOnce(&mut ServiceConfig),
) -> anyhow::Result<Arc<Service>> {
    let rfd26 = data_centre.cn.is_some();
    let store = store.with_faults(Arc::clone(fuse) as Arc<dyn Faults>);
    let records = Records::open(store).await?;
    let set = |settings: &mut ServiceConfig| {
        settings.rfd26 = rfd26;
        set(settings);
    };
    Ok(start_of(records, data_centre.peers()?, set).await)
}

/// Starts a service over these records that asks these peers.
pub async fn start_of(
    records: Records,
    peers: Peers,
    set: impl FnOnce(&mut ServiceConfig),
) -> Arc<Service> {
    let mut settings = ServiceConfig {
        instance: "replay".to_owned(),
        images: [
            "800db35c-5408-11eb-9792-872f658e7911".to_owned(),
            "9fb86870-1941-11e6-8002-4f231c890ed1".to_owned(),
        ],
        image_source: "https://updates.tritondatacenter.com".to_owned(),
        reboot_grace: Duration::from_secs(300),
        ticket_life: Duration::from_secs(600),
        failed_keep: None,
        rfd26: false,
        max_snapshots: 16,
    };
    set(&mut settings);
    let service = Arc::new(Service::new(records, peers, settings));
    service.creates.find_images().await;
    service
}
