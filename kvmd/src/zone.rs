// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A verdict from a zone's facts, without QMP: what vminfod says before, during and after the end. Pure.
//!
//! A power-off by the user is an end without a request: no transition, autoboot unchanged, and a status
//! that is not a signal's. Such a verdict is not sure: a signal sent by an operator looks the same on kvm.

use std::time::Duration;

use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::Value;

use crate::verdict::{Confidence, Initiator, Kind, Verdict};

/// The brands whose zones are one virtual machine.
pub const BRANDS: [&str; 2] = ["kvm", "bhyve"];

/// The fields of a VM object that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `kvm`, `bhyve`.
    pub brand: String,
    /// zoneadm's state.
    pub zone_state: String,
    /// vminfod's state, which a transition overrides.
    pub state: String,
    /// Where a transition leads: `stopped`, `start`, `running`.
    pub transition_to: Option<String>,
    /// Whether it boots with the node.
    pub autoboot: Option<bool>,
    /// The last exit of the zone's init, which is the hypervisor.
    pub exit_status: Option<i64>,
    /// When that was.
    pub exit_timestamp: Option<String>,
    /// Hidden from inventories: it is being migrated.
    pub hidden: bool,
    /// Where the zone is.
    pub zonepath: Option<String>,
}

impl Facts {
    /// Reads a VM object; `None` if the brand is no virtual machine.
    pub fn of(vm: &VmObject) -> Option<Self> {
        let text = |key: &str| vm.text(key).map(str::to_owned);
        Some(Self {
            brand: text("brand").filter(|brand| BRANDS.contains(&brand.as_str()))?,
            zone_state: text("zone_state")?,
            state: text("state").unwrap_or_default(),
            transition_to: text("transition_to"),
            autoboot: both(vm.flag("vm_autoboot"), vm.flag("autoboot")),
            exit_status: vm.get("exit_status").and_then(Value::as_i64),
            exit_timestamp: text("exit_timestamp"),
            hidden: vm.is_hidden(),
            zonepath: text("zonepath"),
        })
    }

    /// Returns true if its hypervisor runs.
    pub fn runs(&self) -> bool {
        matches!(self.zone_state.as_str(), "running" | "ready" | "mounted")
    }

    /// Returns true if the zone is at rest.
    pub fn rests(&self) -> bool {
        !self.runs() && !matches!(self.zone_state.as_str(), "shutting_down" | "down")
    }
}

/// Returns false if either of the two fields is off; brands differ in which one they use.
fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one && other),
        (one, other) => one.or(other),
    }
}

/// One life of a zone: from its running to its rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The exit on record when it began, which belongs to an earlier life.
    earlier_exit: Option<String>,
    autoboot: Option<bool>,
    transition: Option<String>,
    /// When autoboot was turned off.
    autoboot_off: Option<Duration>,
    hidden: bool,
    busy: Option<String>,
    deleted: bool,
}

impl Life {
    /// Begins a life; `earlier_exit` is the time of the last exit before it.
    pub fn begin(facts: &Facts, earlier_exit: Option<String>) -> Self {
        let mut life = Self { earlier_exit, autoboot: facts.autoboot, ..Self::default() };
        life.see(facts, Duration::ZERO);
        life
    }

    /// Takes in a reading that came at `at`.
    pub fn see(&mut self, facts: &Facts, at: Duration) {
        match facts.state.as_str() {
            "stopping" | "receiving" | "provisioning" => {
                self.transition.clone_from(&facts.transition_to);
            }
            // The transition was taken back while the guest went on running.
            "running" if facts.transition_to.is_none() => self.transition = None,
            _ => {}
        }
        if self.autoboot == Some(true) && facts.autoboot == Some(false) {
            self.autoboot_off = Some(at);
        } else if facts.autoboot == Some(true) {
            self.autoboot_off = None;
        }
        self.autoboot = facts.autoboot.or(self.autoboot);
        self.hidden = facts.hidden;
        // Taken down to be rebuilt, moved or deleted.
        let states = [facts.state.as_str(), facts.zone_state.as_str()];
        let busy = ["receiving", "provisioning", "configured", "incomplete"];
        if let Some(state) = states.into_iter().find(|state| busy.contains(state))
            && !facts.runs()
        {
            self.busy = Some(state.to_owned());
        }
    }

    /// Records that the VM was deleted.
    pub fn delete(&mut self) {
        self.deleted = true;
    }

    /// Returns true if the status on record is of this life.
    pub fn has_exit(&self, facts: &Facts) -> bool {
        facts.exit_status.is_some()
            && (facts.exit_timestamp.is_none() || facts.exit_timestamp != self.earlier_exit)
    }

    /// Returns the verdict on a life that ended at `at`; an operator's intent lasts for `window`.
    pub fn verdict(&self, facts: &Facts, at: Duration, window: Duration) -> Verdict {
        use Confidence::{Low, Medium};
        let exit = facts.exit_status.filter(|_| self.has_exit(facts));
        let verdict = self.intent(exit, at, window).unwrap_or_else(|| match exit {
            Some(0) => {
                let sure = if facts.brand == "kvm" { Low } else { Medium };
                Verdict::new(Initiator::Guest, Kind::Poweroff, sure)
            }
            // bhyve(8) tells by its status how the guest ended: 1 and 2 powered off and halted,
            // 3 a triple fault.
            Some(1 | 2) if facts.brand == "bhyve" => {
                Verdict::new(Initiator::Guest, Kind::Poweroff, Low)
            }
            Some(3) if facts.brand == "bhyve" => Verdict::new(Initiator::Guest, Kind::Reset, Low),
            _ => Verdict::new(Initiator::Unknown, Kind::Abrupt, Low),
        });
        self.tell(verdict, exit)
    }

    /// Returns what the host wanted, if anything.
    fn intent(&self, exit: Option<i64>, at: Duration, window: Duration) -> Option<Verdict> {
        use Confidence::{High, Medium};
        let asked = match exit {
            Some(status) if status < 0 => Kind::KillAfterPowerdown,
            _ => Kind::Powerdown,
        };
        let off = self.autoboot_off.is_some_and(|off| at.saturating_sub(off) <= window);
        let host = |kind, sure| Some(Verdict::new(Initiator::Host, kind, sure));
        match self.transition.as_deref() {
            Some("start") => host(Kind::Reset, High),
            Some(_) => host(asked, High),
            None if self.hidden => host(Kind::Migrated, Medium),
            None if self.deleted || self.busy.is_some() => host(Kind::Quit, Medium),
            // Turned off and killed at once: a forced stop.
            None if off && exit.is_some_and(|status| status < 0) => host(Kind::Signal, Medium),
            None if off => host(Kind::Powerdown, Medium),
            None => None,
        }
    }

    fn tell(&self, mut verdict: Verdict, exit: Option<i64>) -> Verdict {
        if let Some(to) = &self.transition {
            verdict = verdict.on(format!("transition to {to}"));
        }
        if self.autoboot_off.is_some() {
            verdict = verdict.on("autoboot was turned off");
        }
        if let Some(state) = &self.busy {
            verdict = verdict.on(format!("state {state}"));
        }
        if self.hidden {
            verdict = verdict.on("do_not_inventory");
        }
        if self.deleted {
            verdict = verdict.on("deleted");
        }
        verdict.on(match exit {
            Some(status) if status < 0 => format!("ended by signal {}", -status & 0x7f),
            Some(status) => format!("exit status {status}"),
            None => "no exit status".to_owned(),
        })
    }
}

/// Returns the stronger of QEMU's verdict and the facts' verdict; QEMU's if both are equal.
pub fn join(qmp: Option<Verdict>, zone: Verdict) -> (Verdict, bool) {
    match qmp {
        Some(qmp) if qmp.kind != Kind::Unwatched && qmp.confidence >= zone.confidence => {
            let mut joined = qmp;
            joined.evidence.extend(zone.evidence);
            (joined, true)
        }
        Some(qmp) => {
            let mut joined = zone;
            joined.evidence.extend(qmp.evidence);
            (joined, false)
        }
        None => (zone, false),
    }
}

#[cfg(test)]
mod tests;
