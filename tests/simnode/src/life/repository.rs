// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! SMF's repository: services with their instances, and the rules by which they start. It is a file of the ramdisk.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::manifest::{self, Described, Grouping};
use super::platform::{self, ZONES};
use crate::error::NodeError;
use crate::files;
use crate::node::Node;

/// A service's instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Such as `online`.
    pub state: String,
    /// How often it was restarted.
    pub restarts: u32,
    /// What its manifest or a profile says of it.
    is_enabled: bool,
    /// What `svcadm enable` or `disable` said last.
    told: Option<bool>,
    /// The same of `-t`: until the next boot.
    told_for_now: Option<bool>,
}

impl Instance {
    /// Returns true if SMF is to run it.
    pub fn is_enabled(&self) -> bool {
        self.told_for_now.or(self.told).unwrap_or(self.is_enabled)
    }

    fn is_up(&self) -> bool {
        matches!(&*self.state, "online" | "degraded")
    }

    fn rest(&mut self) {
        let state = if self.is_enabled() { "offline" } else { "disabled" };
        state.clone_into(&mut self.state);
    }
}

/// A service as the repository has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What its manifest says; `svccfg setprop` changes the properties.
    pub described: Described,
    /// The manifest that it is from; none for the image's.
    pub from: Option<String>,
    pub instances: BTreeMap<String, Instance>,
}

/// What SMF knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    services: BTreeMap<String, Service>,
    /// The node boots: nothing starts but by the boot.
    #[serde(default)]
    pub(crate) is_booting: bool,
}

/// An instance by its service and its own name.
pub type Named = (String, String);

/// Returns the FMRI of an instance.
pub fn fmri((service, instance): &Named) -> String {
    format!("svc:/{service}:{instance}")
}

impl Repository {
    /// The repository of the platform image.
    pub(crate) fn of_image() -> Repository {
        let mut new = Repository::default();
        platform::services().for_each(|service| new.put(service, None));
        new
    }

    /// Returns a service by its name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }

    /// Returns an instance.
    pub fn instance(&self, (service, instance): &Named) -> Option<&Instance> {
        self.services.get(service)?.instances.get(instance)
    }

    fn instance_mut(&mut self, (service, instance): &Named) -> Option<&mut Instance> {
        self.services.get_mut(service)?.instances.get_mut(instance)
    }

    fn all(&self) -> impl Iterator<Item = (Named, &Instance)> {
        self.services.iter().flat_map(|(service, it)| {
            let named = move |name: &String| (service.clone(), name.clone());
            it.instances.iter().map(move |(name, instance)| (named(name), instance))
        })
    }

    /// Imports a service: it replaces what an older manifest said of it; what an operator said stays.
    fn put(&mut self, described: Described, from: Option<&str>) {
        let service = self.services.entry(described.name.clone()).or_default();
        for (name, is_enabled) in &described.instances {
            let instance = service.instances.entry(name.clone()).or_default();
            instance.is_enabled = *is_enabled;
            let stays =
                instance.is_enabled() && (instance.is_up() || instance.state == "maintenance");
            if !stays {
                instance.rest();
            }
        }
        service.from = from.map(str::to_owned);
        service.described = described;
    }

    /// `svccfg import`: the manifest of this file. Returns the services in it.
    pub fn import(&mut self, text: &str, from: &str) -> Result<Vec<String>, String> {
        let services = manifest::read(text, "manifest")?;
        let names = services.iter().map(|it| it.name.clone()).collect();
        services.into_iter().for_each(|it| self.put(it, Some(from)));
        Ok(names)
    }

    /// `svccfg apply`: a profile says which instances are enabled; those that SMF does not know are passed over.
    pub(crate) fn apply(&mut self, text: &str) -> Result<(), String> {
        for profile in manifest::read(text, "profile")? {
            for (name, is_enabled) in profile.instances {
                if let Some(it) = self.instance_mut(&(profile.name.clone(), name)) {
                    it.is_enabled = is_enabled;
                    it.rest();
                }
            }
        }
        Ok(())
    }

    /// `svccfg delete`: a service with its instances. Returns false if there is none.
    pub(crate) fn delete(&mut self, service: &str) -> bool {
        self.services.remove(service).is_some()
    }

    /// `svccfg setprop`.
    pub(crate) fn set(&mut self, service: &str, property: &str, value: &str) -> bool {
        let Some(service) = self.services.get_mut(service) else { return false };
        service.described.properties.insert(property.to_owned(), value.to_owned());
        true
    }

    /// Returns the services that a pattern names: an FMRI, or its last parts.
    pub fn services_named(&self, pattern: &str) -> Vec<String> {
        let (wanted, _) = manifest::split(pattern);
        let is_exact = pattern.starts_with("svc:/");
        let fits = |name: &str| {
            name == wanted
                || !is_exact && name.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('/'))
        };
        self.services.keys().filter(|name| fits(name)).cloned().collect()
    }

    /// Returns the instances that a pattern names.
    pub fn named(&self, pattern: &str) -> Vec<Named> {
        let (_, instance) = manifest::split(pattern);
        let services = self.services_named(pattern);
        let all = self.all().map(|(named, _)| named);
        all.filter(|(service, it)| services.contains(service) && instance.is_none_or(|i| i == it))
            .collect()
    }

    /// `svcadm enable` or `disable`; `-t` holds until the next boot.
    pub(crate) fn enable(&mut self, named: &Named, is_enabled: bool, for_now: bool) {
        if let Some(it) = self.instance_mut(named) {
            let told = Some(is_enabled);
            if for_now {
                it.told_for_now = told;
            } else {
                (it.told, it.told_for_now) = (told, None);
            }
            if !(is_enabled && (it.is_up() || it.state == "maintenance")) {
                it.rest();
            }
        }
        self.settle();
    }

    /// `svcadm restart`: what does not run is not started by it.
    pub(crate) fn restart(&mut self, named: &Named) {
        if let Some(it) = self.instance_mut(named).filter(|it| it.is_up()) {
            it.restarts += 1;
        }
    }

    /// `svcadm clear`: what is in maintenance may start again.
    pub(crate) fn clear(&mut self, named: &Named) {
        if let Some(it) = self.instance_mut(named).filter(|it| it.state == "maintenance") {
            it.rest();
        }
        self.settle();
    }

    /// Says in which state an instance is; it is made if SMF does not know it.
    pub(crate) fn put_state(&mut self, named: &Named, state: &str) {
        let service = self.services.entry(named.0.clone()).or_default();
        let it = service.instances.entry(named.1.clone()).or_default();
        state.clone_into(&mut it.state);
        it.told = Some(state != "disabled");
    }

    /// Starts what may run, one after another, while the node is not booting.
    pub(crate) fn settle(&mut self) {
        while let Some(next) = self.next().filter(|_| !self.is_booting) {
            self.put_state(&next, "online");
        }
    }

    /// Returns what is started next: an enabled instance that waits for nothing. Where nothing orders two of them the
    /// zones, and what they wait for, come first, as they may on a node.
    pub(crate) fn next(&self) -> Option<Named> {
        let ready = self.all().filter(|(named, it)| {
            it.is_enabled() && it.state == "offline" && self.waits_for(&named.0).is_empty()
        });
        let mut ready: Vec<Named> = ready.map(|(named, _)| named).collect();
        let before = self.before(ZONES);
        ready.sort_by_key(|(service, _)| (service != ZONES, !before.contains(service)));
        ready.into_iter().next()
    }

    /// Returns what has to start before this service, at once or later.
    fn before(&self, service: &str) -> BTreeSet<String> {
        let (mut before, mut open) = (BTreeSet::new(), vec![service.to_owned()]);
        while let Some(next) = open.pop() {
            let waits = self.waits_for(&next);
            open.extend(waits.into_iter().filter(|it| before.insert(it.clone())));
        }
        before
    }

    /// Returns the services that keep this one from starting.
    pub fn waits_for(&self, service: &str) -> Vec<String> {
        let own = self.services.get(service).into_iter().flat_map(|it| &it.described.dependencies);
        let mut waits: Vec<String> =
            own.flat_map(|it| self.holding(it.grouping, &it.services)).collect();
        for (name, other) in &self.services {
            for dependent in &other.described.dependents {
                if dependent.services.iter().any(|it| it == service) {
                    waits.extend(self.holding(dependent.grouping, std::slice::from_ref(name)));
                }
            }
        }
        waits
    }

    fn holding(&self, grouping: Grouping, services: &[String]) -> Vec<String> {
        let instances =
            |name: &str| self.services.get(name).into_iter().flat_map(|it| it.instances.values());
        let is_up = |name: &str| instances(name).any(Instance::is_up);
        let holds = |name: &String| match grouping {
            Grouping::RequireAll | Grouping::RequireAny => !is_up(name),
            Grouping::OptionalAll => {
                let may = |it: &Instance| it.is_enabled() && it.state != "maintenance";
                !is_up(name) && instances(name).any(may)
            }
            Grouping::ExcludeAll => is_up(name),
        };
        let holding: Vec<String> = services.iter().filter(|it| holds(it)).cloned().collect();
        match grouping {
            Grouping::RequireAny if holding.len() < services.len() => Vec::new(),
            _ => holding,
        }
    }
}

impl Node {
    /// What SMF knows.
    pub fn repository(&self) -> Result<Repository, NodeError> {
        let path = self.state_dir().join("smf.json");
        if path.exists() {
            return files::read_json(&path);
        }
        let mut new = Repository::of_image();
        new.settle();
        Ok(new)
    }

    /// Changes what SMF knows.
    pub fn change_repository<T>(
        &self,
        change: impl FnOnce(&mut Repository) -> T,
    ) -> Result<T, NodeError> {
        let _guard = self.lock()?;
        let mut all = self.repository()?;
        let done = change(&mut all);
        files::write_json(&self.state_dir().join("smf.json"), &json!(all))?;
        Ok(done)
    }

    /// Returns an instance by its FMRI, or its last parts.
    pub fn instance(&self, pattern: &str) -> Result<Option<Instance>, NodeError> {
        let all = self.repository()?;
        Ok(all.named(pattern).first().and_then(|named| all.instance(named)).cloned())
    }

    /// Makes an instance, or gives it another state.
    pub fn set_instance(&self, fmri: &str, state: &str) -> Result<(), NodeError> {
        let (service, instance) = manifest::split(fmri);
        let named = (service.to_owned(), instance.unwrap_or("default").to_owned());
        self.change_repository(|all| all.put_state(&named, state))
    }
}
