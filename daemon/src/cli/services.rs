// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where the services are that a command asks.

use std::path::Path;

use sdc_clients::Http;
use sdc_clients::http::user_agent;

use super::program::{Usage, author};
use crate::config::{ConfigError, Fields, environment};

/// A service: its name, its flag, its environment variable, its key in the configuration.
pub type Place = (&'static str, &'static str, &'static str, &'static str);

/// The addresses that are known.
#[derive(Debug)]
pub struct Services {
    program: &'static str,
    installed: &'static str,
    places: &'static [Place],
    urls: Vec<String>,
}

impl Services {
    /// Finds the addresses: what the flags say, else the environment, else the configuration of `program`, which is
    /// `installed` unless another one is named, and of which `own` reads the other keys.
    /// Fails if the configuration is wrong.
    pub fn find<T>(
        program: &'static str,
        installed: &'static str,
        config: Option<&Path>,
        places: &'static [Place],
        flags: &[&Option<String>],
        own: impl FnOnce(&mut Fields) -> T,
    ) -> Result<(Self, T), ConfigError> {
        let variable = program.to_uppercase().replace('-', "_") + "_CONFIG";
        let mut file = Fields::find(config, Some(&variable), installed)?;
        let own = own(&mut file);
        let mut url = |((.., variable, key), flag): (&Place, &&Option<String>)| {
            let in_file = file.text(key, "");
            let in_environment = || environment(variable)?.into_string().ok();
            (*flag).clone().or_else(in_environment).unwrap_or(in_file)
        };
        let urls = places.iter().zip(flags).map(&mut url).collect();
        for key in file.finish()? {
            eprintln!("{program}: warning: unknown key {key}");
        }
        Ok((Self { program, installed, places, urls }, own))
    }

    /// Returns the address of one of the places.
    /// Fails if neither a flag, the environment nor a file has it.
    pub fn url(&self, at: usize) -> Result<&str, Usage> {
        let (name, flag, variable, key) = self.places[at];
        match self.urls[at].as_str() {
            "" => Err(Usage(format!(
                "where is {name}? Give {flag}, ${variable}, or {key} in {}",
                self.installed
            ))),
            url => Ok(url),
        }
    }

    /// Returns a client of the service at this address, which also says who runs the program.
    /// Fails if the address cannot be used.
    pub fn client(&self, url: &str) -> Result<Http, ConfigError> {
        let agent = user_agent(self.program, env!("CARGO_PKG_VERSION"), None);
        let agent = format!("{agent} ({})", plain(&author()));
        Http::new(url, &agent).map_err(|error| ConfigError::Faults {
            place: url.to_owned(),
            faults: vec![error.message().to_owned()],
        })
    }
}

/// Returns a name as a comment of a header may have it.
fn plain(name: &str) -> String {
    let is_fit = |c: char| c.is_ascii_graphic() && !"()\\".contains(c);
    name.chars().map(|c| if is_fit(c) { c } else { '_' }).collect()
}
