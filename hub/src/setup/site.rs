// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which data centre this is, and the question before something is done in it.

use std::collections::BTreeMap;
use std::path::Path;

use daemon::cli::{Usage, ask};
use sdc_clients::http::user_agent;
use sdc_clients::{Error, Http};

/// Where a headnode says which data centre it is.
const SITE: &str = "/usbkey/config";

/// Which data centre this is.
#[derive(Debug, Default)]
pub struct Site(BTreeMap<String, String>);

impl Site {
    /// Reads it on the headnode whose `/` this is.
    pub fn read(root: &Path) -> Site {
        let file = root.join(SITE.trim_start_matches('/'));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.trim().split_once('='));
        let value = |value: &str| value.trim_matches(['"', '\'']).to_owned();
        Site(pairs.map(|(key, it)| (key.to_owned(), value(it))).collect())
    }

    /// Returns the name of a service in the data centre.
    pub fn domain(&self, service: &str) -> Option<String> {
        let of = |key: &str| self.0.get(key).filter(|value| !value.is_empty());
        Some(format!("{service}.{}.{}", of("datacenter_name")?, of("dns_domain")?))
    }

    /// Returns the address of a service: the given one, or that of the data centre.
    pub fn url(&self, given: Option<&str>, service: &str) -> Result<String, Usage> {
        let made = || Some(format!("http://{}", self.domain(service)?));
        given.map(str::to_owned).or_else(made).ok_or_else(|| {
            Usage(format!("where is {service}? {SITE} does not say it: give --{service} URL"))
        })
    }
}

/// Returns a client for this address.
pub fn http(url: &str) -> Result<Http, Error> {
    Http::new(url, &user_agent(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), None))
}

/// Says the steps, each with its way back, and returns true if they are to be done.
pub fn agreed(
    steps: impl Iterator<Item = (String, Option<String>)>,
    yes: bool,
) -> std::io::Result<bool> {
    let mut none = true;
    for (says, back) in steps {
        none = false;
        println!("  {says}");
        if let Some(back) = back {
            println!("      back: {back}");
        }
    }
    Ok(none || yes || ask::is_answered() && ask::goes_on("")?)
}
