// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Manifests and profiles of services, as far as they decide what starts, and when.

use std::collections::BTreeMap;

use roxmltree::{Document, ParsingOptions};
use serde::{Deserialize, Serialize};

/// When a dependency lets its service start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// All of them run.
    RequireAll,
    /// One of them runs.
    RequireAny,
    /// All that are enabled and not in maintenance run.
    OptionalAll,
    /// None of them runs.
    ExcludeAll,
}

impl Grouping {
    fn read(word: &str) -> Option<Grouping> {
        Some(match word {
            "require_all" => Grouping::RequireAll,
            "require_any" => Grouping::RequireAny,
            "optional_all" => Grouping::OptionalAll,
            "exclude_all" => Grouping::ExcludeAll,
            _ => return None,
        })
    }
}

/// What waits for what: the services are names such as `system/zones`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub grouping: Grouping,
    /// Of a dependency those that are waited for, of a dependent the one that waits.
    pub services: Vec<String>,
}

/// A service of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Such as `smartdc/agent/net-agent`.
    pub name: String,
    /// Its instances, and whether each is enabled.
    pub instances: BTreeMap<String, bool>,
    pub dependencies: Vec<Dependency>,
    pub dependents: Vec<Dependency>,
    /// Its properties that are known here, such as `start/exec`.
    pub properties: BTreeMap<String, String>,
}

/// Returns the service of an FMRI, and its instance if it names one.
pub fn split(fmri: &str) -> (&str, Option<&str>) {
    let fmri = fmri.strip_prefix("svc:/").unwrap_or(fmri);
    match fmri.rsplit_once(':') {
        Some((service, instance)) => (service, Some(instance)),
        None => (fmri, None),
    }
}

/// Reads a manifest (`type="manifest"`) or a profile (`type="profile"`).
pub fn read(text: &str, kind: &str) -> Result<Vec<Described>, String> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document =
        Document::parse_with_options(text, options).map_err(|error| error.to_string())?;
    let bundle = document.root_element();
    if bundle.tag_name().name() != "service_bundle" || bundle.attribute("type") != Some(kind) {
        return Err(format!("the document is no {kind}"));
    }
    let services = bundle.children().filter(|it| it.has_tag_name("service"));
    services.map(|service| described(service)).collect()
}

fn described(service: roxmltree::Node<'_, '_>) -> Result<Described, String> {
    let name = service.attribute("name").ok_or("a service has no name")?.to_owned();
    let children = || service.children().filter(roxmltree::Node::is_element);
    let mut it = Described { name, ..Described::default() };
    for child in children() {
        let kind = child.tag_name().name();
        let named = child.attribute("name").unwrap_or_default();
        let is_enabled = || match child.attribute("enabled") {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            other => Err(format!("{}: enabled is {}", it.name, other.unwrap_or("missing"))),
        };
        match kind {
            "create_default_instance" => {
                it.instances.insert("default".to_owned(), is_enabled()?);
            }
            "instance" => {
                it.instances.insert(named.to_owned(), is_enabled()?);
            }
            "dependency" | "dependent" => {
                let grouping = child.attribute("grouping").unwrap_or_default();
                let grouping = Grouping::read(grouping)
                    .ok_or_else(|| format!("{}: grouping '{grouping}' is unknown", it.name))?;
                let fmris = child.children().filter_map(|fmri| fmri.attribute("value"));
                let services = fmris.map(|fmri| split(fmri).0.to_owned()).collect();
                let dependency = Dependency { grouping, services };
                match kind {
                    "dependency" if child.attribute("type") != Some("path") => {
                        it.dependencies.push(dependency);
                    }
                    "dependent" => it.dependents.push(dependency),
                    _ => {}
                }
            }
            "exec_method" => {
                for key in ["exec", "timeout_seconds"] {
                    let value = child.attribute(key).unwrap_or_default().to_owned();
                    it.properties.insert(format!("{named}/{key}"), value);
                }
            }
            "property_group" => {
                for value in child.children().filter(|it| it.has_tag_name("propval")) {
                    let of = |key| value.attribute(key).unwrap_or_default();
                    it.properties.insert(format!("{named}/{}", of("name")), of("value").to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(it)
}
