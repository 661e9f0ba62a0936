// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the services are, and clients of them.

use daemon::cli::Usage;
use daemon::config::environment;
use daemon::{ConfigError, Fields};
use sdc_clients::Http;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::user_agent;
use sdc_clients::imgapi::Imgapi;
use sdc_clients::migrations::Migrations;
use sdc_clients::vmapi::Vmapi;
use sdc_clients::volapi::Volapi;

use super::args::{NAME, Reach};

/// The installed configuration, of both commands.
const INSTALLED: &str = "/opt/smartdc/agents/etc/sdc-voladm.config.json";
/// Environment variable: another configuration.
const VARIABLE: &str = "SDC_VOLADM_CONFIG";

/// A service: its name, its flag, its environment variable, its key in the configuration.
type Place = (&'static str, &'static str, &'static str, &'static str);

const PLACES: [Place; 4] = [
    ("volapi", "--url", "VOLAPI_URL", "volapi_url"),
    ("VMAPI", "--vmapi", "VMAPI_URL", "vmapi_url"),
    ("CNAPI", "--cnapi", "CNAPI_URL", "cnapi_url"),
    ("IMGAPI", "--imgapi", "IMGAPI_URL", "imgapi_url"),
];

/// The addresses that are known.
#[derive(Debug)]
pub(super) struct Services {
    urls: [String; 4],
}

impl Services {
    /// Finds the addresses.
    pub(super) fn find(reach: &Reach) -> Result<Services, ConfigError> {
        let mut file = Fields::find(reach.config.as_deref(), Some(VARIABLE), INSTALLED)?;
        let flags = [&reach.url, &reach.vmapi, &reach.cnapi, &reach.imgapi];
        let mut urls = <[String; 4]>::default();
        for ((url, flag), (_, _, variable, key)) in urls.iter_mut().zip(flags).zip(PLACES) {
            let in_file = file.text(key, "");
            let in_environment = || environment(variable).and_then(|url| url.into_string().ok());
            *url = flag.clone().or_else(in_environment).unwrap_or(in_file);
        }
        for key in file.finish()? {
            eprintln!("{NAME}: warning: unknown key {key}");
        }
        Ok(Services { urls })
    }

    /// Returns the address of volapi.
    pub(super) fn volapi_url(&self) -> Result<&str, Usage> {
        self.url(0)
    }

    fn url(&self, at: usize) -> Result<&str, Usage> {
        let ((name, flag, variable, key), url) = (PLACES[at], &self.urls[at]);
        if url.is_empty() {
            let what =
                format!("where is {name}? Give {flag}, ${variable}, or {key} in {INSTALLED}");
            return Err(Usage(what));
        }
        Ok(url)
    }

    fn http(&self, at: usize) -> anyhow::Result<Http> {
        let url = self.url(at)?;
        let agent = user_agent(NAME, env!("CARGO_PKG_VERSION"), None);
        Ok(Http::new(url, &agent).map_err(|error| ConfigError::Faults {
            place: url.to_owned(),
            faults: vec![error.message().to_owned()],
        })?)
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

    /// Returns the client of IMGAPI.
    pub(super) fn imgapi(&self) -> anyhow::Result<Imgapi> {
        self.http(3).map(Imgapi::new)
    }
}
