// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What somebody breaks in a lab, and how it is cured. Each uses the way of failing that there is: a stopped process,
//! a setting of the node, a rule of a mock, a VM that does not run.

use clap::ValueEnum;
use mocks::faults::{Action, Rule};
use mocks::{napi, vmapi};
use rustix::process::{Pid, Signal, kill_process};
use sdc_clients::vminfod::VmFields as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use simnode::broken::Broken as Setting;
use simnode::{Verbs, Wait};
use tokio::time::Instant;

use super::error::LabError;
use super::silent::Silent;
use super::smf::{OF_CENTRE, Site};

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(super) enum What {
    /// The process of a program is stopped: it hangs, and its sockets with it
    Agent,
    /// A node is silent, with all its agents; its VMs run on
    Node,
    /// zfs hangs on a node, and what asks it
    Zfs,
    /// NAPI answers 503
    Napi,
    /// The pool of a node is full
    Disk,
    /// The storage VM of a volume is stopped
    StorageVm,
}

impl What {
    fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }
}

/// Something that is broken.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    what: What,
    /// What was broken: a program, a VM; nothing where the kind says it.
    name: String,
    /// The node; nothing for a service.
    cn: String,
    /// The processes that were stopped.
    pids: Vec<u32>,
    /// When it is cured by itself.
    pub(super) until: Option<Instant>,
}

impl Broken {
    /// As somebody types it who cures it.
    pub(super) fn words(&self) -> String {
        match self.what {
            What::Napi => self.what.name(),
            What::Agent => format!("{} {} --node {}", self.what.name(), self.name, self.cn),
            What::StorageVm => format!("{} {}", self.what.name(), self.name),
            What::Node | What::Zfs | What::Disk => format!("{} {}", self.what.name(), self.cn),
        }
    }

    /// Returns true if it is this.
    pub(super) fn is(&self, other: &Broken) -> bool {
        (self.what, &self.name, &self.cn) == (other.what, &other.name, &other.cn)
    }
}

/// What there is to break.
#[derive(Debug)]
pub(super) struct Things {
    pub(super) sites: Vec<Site>,
    pub(super) napi: napi::Store,
    pub(super) vmapi: vmapi::Store,
    pub(super) silent: Silent,
}

fn unavailable() -> Rule {
    let body = json!({ "code": "ServiceUnavailable", "message": "the lab broke NAPI" });
    Rule::any(Action::Status { status: 503, body: Some(body), retry_after: None })
}

fn signal(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid as i32)) {
        // It may have ended meanwhile: there is nothing left to break or to cure.
        let _gone = kill_process(pid, signal);
    }
}

impl Things {
    /// The node of this uuid, its beginning, or this host name.
    pub(super) fn site(&mut self, named: &str) -> Result<&mut Site, LabError> {
        let fits = |site: &Site| {
            site.node.cn_uuid().starts_with(named) || site.node.info().hostname == named
        };
        let mut fit = self.sites.iter_mut().filter(|site| !named.is_empty() && fits(site));
        match (fit.next(), fit.next()) {
            (Some(site), None) => Ok(site),
            (None, _) => Err(LabError::Broken(format!("no node of this lab is {named:?}"))),
            _ => Err(LabError::Broken(format!("several nodes of this lab are {named:?}"))),
        }
    }

    /// What somebody means, by what he types.
    pub(super) fn meant(&mut self, what: What, name: &str, node: &str) -> Result<Broken, LabError> {
        let (name, cn) = match what {
            What::Napi => (String::new(), String::new()),
            What::Agent => (name.to_owned(), self.site(node)?.node.cn_uuid().to_owned()),
            What::StorageVm => {
                // VMAPI's records are what `sdc-voladm list-volume-zones` shows.
                let alias = format!("nfs-shared-volume-{name}");
                let is_it = |vm: &&sdc_clients::vminfod::VmObject| {
                    vm.uuid() == Some(name) || vm.alias() == Some(&alias)
                };
                let all = self.vmapi.all();
                let vm = all.iter().filter(|vm| vm.text("state") != Some("destroyed")).find(is_it);
                let vm = vm.and_then(|vm| Some((vm.uuid()?, vm.text("server_uuid")?)));
                let why = || LabError::Broken(format!("no storage VM, and no volume, is {name:?}"));
                let (vm, cn) = vm.ok_or_else(why)?;
                (vm.to_owned(), cn.to_owned())
            }
            What::Node | What::Zfs | What::Disk => {
                let named = if name.is_empty() { node } else { name };
                (String::new(), self.site(named)?.node.cn_uuid().to_owned())
            }
        };
        Ok(Broken { what, name, cn, pids: Vec::new(), until: None })
    }

    /// Breaks it.
    pub(super) async fn breaks(&mut self, it: &mut Broken) -> Result<(), LabError> {
        match it.what {
            What::Agent => {
                let daemons = self.site(&it.cn)?.daemons();
                let pid = daemons.and_then(|daemons| daemons.pid(&it.name));
                let why = || LabError::Broken(format!("no {:?} runs on {}", it.name, it.cn));
                it.pids = vec![pid.ok_or_else(why)?];
                signal(&it.pids, Signal::STOP);
            }
            What::Node => {
                self.silent.put(&it.cn, true);
                let daemons = self.site(&it.cn)?.daemons();
                let all = daemons.map(|daemons| daemons.pids()).unwrap_or_default();
                let own = all.into_iter().filter(|(name, _)| !OF_CENTRE.contains(name));
                it.pids = own.map(|(_, pid)| pid).collect();
                signal(&it.pids, Signal::STOP);
            }
            What::Zfs => self.site(&it.cn)?.node.set_broken(Setting::Zfs, true)?,
            What::Disk => self.site(&it.cn)?.node.set_broken(Setting::Pool, true)?,
            What::Napi => self.napi.faults().add(unavailable()),
            What::StorageVm => {
                let verbs = Verbs::new(&self.site(&it.cn)?.node, Wait::none());
                verbs.halt(&it.name, 0).await?;
            }
        }
        Ok(())
    }

    /// Cures it.
    pub(super) async fn cures(&mut self, it: &Broken) -> Result<(), LabError> {
        match it.what {
            What::Agent => signal(&it.pids, Signal::CONT),
            What::Node => {
                self.silent.put(&it.cn, false);
                signal(&it.pids, Signal::CONT);
            }
            What::Zfs => self.site(&it.cn)?.node.set_broken(Setting::Zfs, false)?,
            What::Disk => self.site(&it.cn)?.node.set_broken(Setting::Pool, false)?,
            What::Napi => self.napi.faults().remove(&unavailable()),
            What::StorageVm => {
                // A person may have started or moved it already.
                for site in &self.sites {
                    let zone = site.node.zones()?.find(&it.name).map(|zone| zone.state.is_active());
                    if zone == Some(false) && site.node.cn_uuid() == it.cn {
                        Verbs::new(&site.node, Wait::none()).boot(&it.name).await?;
                    }
                }
            }
        }
        Ok(())
    }
}
