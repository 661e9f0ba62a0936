// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the services are, and clients of them.

use daemon::ConfigError;
use daemon::cli::Usage;
use daemon::cli::hosts::Hosts;
use daemon::cli::services::{self, Place};
use sdc_clients::Http;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::imgapi::Imgapi;
use sdc_clients::migrations::Migrations;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::volapi::Volapi;

use super::args::{NAME, Reach};

/// The installed configuration, of all three commands.
const INSTALLED: &str = "/opt/smartdc/agents/etc/sdc-voladm.config.json";

const PLACES: [Place; 4] = [
    ("volapi", "--url", "VOLAPI_URL", "volapi_url"),
    ("VMAPI", "--vmapi", "VMAPI_URL", "vmapi_url"),
    ("CNAPI", "--cnapi", "CNAPI_URL", "cnapi_url"),
    ("IMGAPI", "--imgapi", "IMGAPI_URL", "imgapi_url"),
];

/// The addresses that are known, also to the other commands.
#[derive(Debug)]
pub(crate) struct Services(services::Services);

impl Services {
    /// Finds the addresses.
    pub(crate) fn find(reach: &Reach) -> Result<Services, ConfigError> {
        let flags = [&reach.url, &reach.vmapi, &reach.cnapi, &reach.imgapi];
        let config = reach.config.as_deref();
        let (found, ()) =
            services::Services::find(NAME, INSTALLED, config, &PLACES, &flags, |_| ())?;
        Ok(Services(found))
    }

    /// Returns the address of volapi.
    pub(super) fn volapi_url(&self) -> Result<&str, Usage> {
        self.0.url(0)
    }

    pub(crate) fn http(&self, at: usize) -> anyhow::Result<Http> {
        Ok(self.0.client(self.0.url(at)?)?)
    }

    /// Returns the client of volapi.
    pub(super) fn volapi(&self) -> anyhow::Result<Volapi> {
        self.http(0).map(Volapi::new)
    }

    /// Returns the client of VMAPI.
    pub(super) fn vmapi(&self) -> anyhow::Result<Vmapi> {
        self.http(1).map(Vmapi::new)
    }

    /// Returns the client of VMAPI's migrations, which know how much a VM holds.
    pub(super) fn estimates(&self) -> anyhow::Result<Migrations> {
        Ok(Migrations::new(self.http(1)?.without_retries()))
    }

    /// Returns the client of CNAPI.
    pub(super) fn cnapi(&self) -> anyhow::Result<Cnapi> {
        self.http(2).map(Cnapi::new)
    }

    /// Returns the host names of the nodes; none where CNAPI is not known or does not answer: uuids do.
    pub(super) async fn hosts(&self) -> Hosts {
        let Ok(cnapi) = self.cnapi() else { return Hosts::default() };
        Hosts::read(&cnapi).await.unwrap_or_default()
    }

    /// Returns the client of IMGAPI.
    pub(super) fn imgapi(&self) -> anyhow::Result<Imgapi> {
        self.http(3).map(Imgapi::new)
    }
}
