// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The states that need a person: what each means, and the command that ends it, or shows why it cannot be ended from
//! here. Whatever tells people of a state says this: command lines, statuses, the page, the alert rules, the operator's
//! guide.

use sdc_clients::shown::ShownCommand;

/// A state that needs a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What programs call it.
    pub name: &'static str,
    /// The rule of `deploy/metrics/alerts.yml` that tells of it; empty where none does.
    pub alert: &'static str,
    /// What it means.
    pub says: &'static str,
    /// The command. A word in capitals stands for what it is about.
    pub command: &'static str,
    /// What the command does about it.
    pub does: Does,
}

/// What a command does about a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It ends the state.
    Ends,
    /// It shows what ends it, which is elsewhere.
    Shows,
}

/// A row: name, rule, what the command does; what the state means, the command.
macro_rules! needs {
    ($($name:literal $alert:literal $does:ident: $says:literal => $command:literal;)*) => {
        &[$(Need {
            name: $name,
            alert: $alert,
            says: $says,
            command: $command,
            does: Does::$does,
        },)*]
    };
}

/// All of them.
pub const NEEDS: &[Need] = needs! {
    "vminfod-silent" "VminfodDown" Shows: "vminfod does not answer" => "svcs -xv vminfod";
    "vminfod-stale" "VminfodStale" Shows:
        "a source of the whole node has not answered for two refreshes: what is shown may be old"
        => "vminfod check";
    "vminfod-refresh-old" "VminfodRefreshOld" Shows:
        "there was no full refresh for long: changes without an event are found late"
        => "vminfod status";
    "vminfod-source-down" "VminfodSourceDown" Shows:
        "a source is down and restarts by itself; meanwhile sweeps find changes"
        => "svcs -L vminfod";
    "vminfod-unread" "VminfodCannotReadVms" Shows: "a VM cannot be read and is shown as it was" => "vminfod status";
    "vminfod-unread-vm" "" Shows: "this VM cannot be read and is shown as it was" => "vminfod why VM";
    "vminfod-stray-xml" "" Ends: "only an XML is left of a VM: it is not told gone until the XML is"
        => "rm XML";
    "vminfod-left-dataset" "" Ends:
        "only a dataset is left of a VM: if nobody saw its zone go, it is not told gone while the dataset has its name"
        => "zfs rename DATASET ASIDE";
    "vminfod-incomplete" "" Shows: "a zone is not shown whole: agents protect what may be its" => "vminfod status -j";
    "vminfod-no-stream" "" Shows: "there is no event stream: changes are not shown as they come" => "svcs -L vminfod";
    "vminfod-loses-events" "VminfodLosesEvents" Shows: "changes arrive without events" => "vminfod check";
    "vminfod-late" "VminfodSeesChangesLate" Shows: "changes are shown many seconds late" => "vminfod status";
    "net-agent-silent" "NetAgentDown" Shows: "net-agent does not answer: NAPI misses what changes on the node"
        => "svcs -xv net-agent";
    "net-agent-brake" "NetAgentBrake" Shows: "net-agent wanted to delete too much and stopped" => "net-agent plan";
    "net-agent-approve" "" Ends: "net-agent keeps deletes back until they are approved" => "net-agent approve ID";
    "net-agent-memory" "NetAgentMemoryFault" Shows:
        "net-agent's state directory is damaged or cannot be written: deletes wait"
        => "net-agent status";
    "net-agent-mute" "NetAgentDoesNotWrite" Shows: "net-agent writes nothing" => "net-agent status";
    "net-agent-held" "" Ends: "net-agent is held for the whole node: it writes nothing" => "net-agent release";
    "net-agent-deletes" "NetAgentDeletesMuch" Shows: "net-agent deleted many NICs within an hour"
        => "net-agent history --since 2h";
    "net-agent-pass-old" "NetAgentPassOld" Shows: "net-agent has not compared with NAPI for long; a pass a day is due"
        => "net-agent status";
    "net-agent-misses" "NetAgentMissesEvents" Shows:
        "vminfod does not report what happens: net-agent found differences by comparing"
        => "vminfod check";
    "net-agent-nic-missing" "NetAgentMissingInNapi" Shows: "NAPI has no record of a NIC and may give its address away"
        => "net-agent plan";
    "net-agent-nic-foreign" "NetAgentForeignOwner" Shows: "NAPI has another owner for a NIC of this node"
        => "net-agent plan";
    "net-agent-unreadable" "NetAgentUnreadable" Shows: "NAPI has records that cannot be read and are left alone"
        => "net-agent status";
    "net-agent-hold-ends" "NetAgentHoldEnds" Ends: "a hold ends within 15 minutes"
        => "net-agent extend --vm UUID --for 2h";
    "vm-agent-silent" "VmAgentDown" Shows: "vm-agent does not answer: VMAPI misses what changes on the node"
        => "svcs -xv vm-agent";
    "vm-agent-brake" "VmAgentBrake" Shows: "half of vm-agent's VMs are missing; it reports none destroyed"
        => "vm-agent plan";
    "vm-agent-approve" "" Ends: "vm-agent reports no VM destroyed until that is approved" => "vm-agent approve ID";
    "vm-agent-mute" "VmAgentDoesNotWrite" Shows: "vm-agent writes nothing" => "vm-agent status";
    "vm-agent-holds" "VmAgentHolds" Shows: "changes of VMs have not been reported to VMAPI for hours" => "vm-agent plan";
    "vm-agent-memory" "VmAgentMemoryFault" Shows: "vm-agent's state directory is damaged or cannot be written"
        => "vm-agent status";
    "vm-agent-comparison-old" "VmAgentComparisonOld" Shows: "vm-agent has not compared with VMAPI for two days"
        => "vm-agent status";
    "kvmd-silent" "KvmdDown" Shows: "kvmd does not answer: the ends of its VMs will be called unwatched"
        => "svcs -xv kvmd";
    "kvmd-taken" "KvmdMonitorTaken" Shows: "another client holds QMP monitors: kvmd receives no events there"
        => "kvmd status -o name,state -s state";
    "kvmd-markers" "KvmdMarkersFail" Shows: "markers cannot be written: a VM may be restarted against its user's wish"
        => "kvmd verdicts -o name,marker -s marker";
    "kvmd-unreachable" "KvmdUnreachable" Shows: "watched instances lost their socket's name"
        => "kvmd status -o name,reachable,pid -s reachable";
    "fleet-agent-silent" "FleetAgentDown" Shows: "fleet-agent does not answer: the feed shows the node as it was"
        => "svcs -xv fleet-agent";
    "fleet-agent-mute" "FleetAgentDoesNotPublish" Shows: "what changes on the node is not published to the feed"
        => "fleet-agent status";
    "fleet-agent-claimed" "FleetAgentClaimed" Shows: "another machine publishes under this node's uuid"
        => "fleet-agent status";
    "fleet-still" "FleetVmsStandsStill" Shows:
        "VMS does not take what CHANGES has: a new reader of the feed waits for what it lacks"
        => "sdc-fleet streams";
    "fleet-differs" "FleetServersDiffer" Shows:
        "the nats-servers have different messages, and giving each the same does not succeed: a reader gets those of one"
        => "sdc-fleet streams";
    "fleet-unwatched" "FleetNobodyMakesStreams" Shows:
        "no fleet-agent has streams.make: different messages on the nats-servers, or a VMS that stands still, are not noticed"
        => "sdc-fleet streams";
    "migration-agent-silent" "MigrationAgentDown" Shows:
        "migration-agent does not answer: no VM migrates to or from there"
        => "svcs -xv migration-agent";
    "migration-agent-certificate" "MigrationAgentCertificate" Shows:
        "the agent's certificate has expired, was revoked, or ends within 14 days: no VM migrates to or from there then"
        => "migration-agent status";
    "migration-agent-waits" "MigrationAgentVmsWait" Ends:
        "a VM does not boot: migration-service has not answered whether it was replaced"
        => "migration-agent release VM";
    "migration-service-silent" "MigrationServiceDown" Shows:
        "migration-service does not answer, nor does the VMAPI behind it"
        => "svcs -xv migration-service";
    "migration-store-away" "MigrationStoreDown" Shows: "migration-service cannot read its records"
        => "svcs -L migration-service";
    "migrations-not-driven" "MigrationsNotDriven" Shows:
        "no migration-service does the rounds, and migrations wait for them"
        => "svcs -xv migration-service";
    "migrations-failed" "MigrationFailed" Shows: "migrations have failed" => "sdc-migrate list -s failed";
    "migrations-wait" "" Shows: "migrations wait for an operator" => "sdc-migrate list";
    "migration-begin-failed" "" Ends:
        "the begin failed; the VM runs where it was, and the rest of a copy may be on the target"
        => "sdc-migrate abort VM && sdc-migrate begin VM";
    "migration-sync-failed" "" Ends: "the sync failed; the VM runs where it was" => "sdc-migrate sync VM";
    "migration-switch-undone" "" Ends: "the switch failed and was undone; the VM runs where it was"
        => "sdc-migrate switch VM";
    "migration-switch-failed" "" Ends:
        "the switch failed after the new copy was shown; it goes on, or back with rollback"
        => "sdc-migrate switch VM";
    "migration-abort-failed" "" Ends: "the abort failed; the VM runs where it was" => "sdc-migrate abort VM";
    "migration-copy-unfit" "" Ends:
        "the copy on the target is of no use: it is gone, shown, or no longer fits the VM"
        => "sdc-migrate abort VM && sdc-migrate begin VM";
    "migration-copy-lost" "" Ends:
        "the datasets of the copy on the target were destroyed; the VM runs where it was: a sync sends all of it again"
        => "sdc-migrate sync VM";
    "migration-no-room" "" Ends:
        "the target has no room; the VM runs where it was: begin elsewhere (-n CN), or make room on the target and sync"
        => "sdc-migrate abort VM && sdc-migrate begin VM";
    "migration-only-copy" "" Ends: "one of the two copies is gone, and the other is all that is left of the VM"
        => "sdc-migrate rescue VM";
    "migration-no-way-back" "" Ends:
        "what was written since the switch cannot be sent back: switch keeps it, rollback --discard loses it"
        => "sdc-migrate switch VM";
    "migration-rollback-failed" "" Ends: "the rollback failed" => "sdc-migrate rollback VM";
    "migration-finalize-failed" "" Ends: "the finalize failed; the VM runs on its new node"
        => "sdc-migrate finalize VM";
    "migration-unsynced" "" Ends: "it is paused and was never synced; the copy takes room on the target"
        => "sdc-migrate sync VM";
    "migration-paused" "MigrationPausedLong" Ends:
        "it is paused; both nodes hold a copy: switch goes on, abort deletes the new one"
        => "sdc-migrate switch VM";
    "migration-late" "MigrationLate" Ends: "its switch has missed its time and does not start by itself"
        => "sdc-migrate switch VM";
    "migration-unfinalized" "MigrationNotFinalized" Ends:
        "it was switched; both nodes hold a copy: finalize deletes the old one, rollback returns to it"
        => "sdc-migrate finalize VM";
    "migration-source-silent" "MigrationNodeSilent" Ends:
        "the old node does not answer; if it comes back, nothing is to be done; if it is lost, the last copy on the new node goes on"
        => "sdc-migrate switch --source-dead CN VM";
    "migration-target-silent" "MigrationNodeSilent" Ends:
        "the new node, where the VM is, does not answer; if it comes back, nothing is to be done; if it is lost, the old copy goes on without what was written since the switch"
        => "sdc-migrate rollback --target-dead CN --discard VM";
    "migration-copy-silent" "MigrationNodeSilent" Ends:
        "the node of the new copy does not answer; if it comes back, nothing is to be done; if it is lost, the VM stays where it is"
        => "sdc-migrate abort --target-dead CN VM";
    "migration-old-silent" "MigrationNodeSilent" Ends:
        "the node of the old copy does not answer; if it comes back, nothing is to be done; if it is lost, the VM stays on its new node"
        => "sdc-migrate finalize --source-dead CN VM";
    "migration-nodes-silent" "MigrationNodeSilent" Shows:
        "nodes do not answer without which nothing can be done about it"
        => "svcs -xv migration-agent";
    "migration-stuck" "MigrationStuck" Shows: "it has run for more than a day" => "sdc-migrate watch VM";
    "migration-again" "MigrationTriedAgain" Shows: "a step of it does not succeed, and is tried again"
        => "sdc-migrate get VM";
    "migration-hidden" "MigrationHidden" Shows: "it is in the middle of a switch, and no copy of the VM is shown"
        => "sdc-migrate get VM";
    "migration-older" "" Ends: "the store is older than the orders that the agents have accepted" => "sdc-migrate adopt VM";
    "migration-unknown" "MigrationUnknown" Ends: "it is open on its nodes, and the store does not know it"
        => "sdc-migrate adopt VM";
    "migration-replaced-runs" "MigrationReplacedRuns" Shows: "a copy that was replaced runs, and so does the other one"
        => "vmadm stop VM -F";
    "migration-copy-runs" "MigrationBothRun" Ends:
        "both copies run: the one on the target was booted by hand; abort stops and deletes it"
        => "sdc-migrate abort VM";
    "migration-old-copy-runs" "MigrationBothRun" Ends:
        "both copies run: the old one was booted by hand; finalize stops and deletes it"
        => "sdc-migrate finalize VM";
    "migration-both-run" "MigrationBothRun" Shows: "both copies run: one of them was booted by hand"
        => "sdc-migrate get VM";
    "migration-returned" "MigrationSourceReturned" Ends:
        "a copy was replaced, and its node is back: it is stopped, hidden, and must not be used; finalize deletes it"
        => "sdc-migrate finalize VM";
    "certificates-need" "CertificatesNeedSomebody" Shows:
        "programs wait for approval, or their certificates end within 14 days and are not renewed"
        => "sdc-migrate trust list";
    "volapi-silent" "VolapiDown" Shows:
        "volapi does not answer: volumes cannot be made, and instances that need one wait"
        => "svcs -xv volapi";
    "volapi-waits" "VolapiStorageAway" Shows: "volapi waits for another service" => "volapi status";
    "volapi-deaf" "VolapiNobodyFollows" Shows:
        "volapi does not follow VMAPI: the states of volumes and their users get old"
        => "volapi status";
    "volumes-failed" "VolapiVolumesFail" Shows: "volumes cannot be used, or have failed" => "sdc-voladm check";
    "volume-stopped" "VolapiStorageVmStopped" Ends:
        "the volume cannot be used: its storage VM is stopped, and the volume fails when reboot_grace is over"
        => "sdc-voladm restart-volume-zone --force VOLUME";
    "volume-unserved" "VolapiStorageVmSilent" Ends:
        "the volume cannot be used: its storage VM runs and does not serve"
        => "sdc-voladm restart-volume-zone --force VOLUME";
};

/// Returns the state of this name.
pub fn find(name: &str) -> Option<&'static Need> {
    NEEDS.iter().find(|need| need.name == name)
}

impl Need {
    /// Returns the command about what is named: pairs of a word in capitals, and the name, which stands there only if
    /// it is one word of a shell.
    pub fn command_for(&self, names: &[(&str, &str)]) -> String {
        ShownCommand::about(self.command, names).to_string()
    }
}

/// Returns the table of the operator's guide.
pub fn table() -> String {
    let mut text =
        "| state | alert | it means | command | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Need { name, alert, says, command, does } in NEEDS {
        let alert = if alert.is_empty() { "–".to_owned() } else { format!("`{alert}`") };
        let does = if *does == Does::Ends { "ends it" } else { "shows why" };
        text += &format!("| `{name}` | {alert} | {says} | `{command}` | {does} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_names_what_it_is_about() {
        let need = find("migration-begin-failed").unwrap();
        let command = need.command_for(&[("VM", "u1")]);
        assert_eq!(command, "sdc-migrate abort u1 && sdc-migrate begin u1");
        let command = need.command_for(&[("VM", "u; id")]);
        assert_eq!(command, "sdc-migrate abort VM && sdc-migrate begin VM");
    }

    #[test]
    fn each_state_has_one_row() {
        for (at, need) in NEEDS.iter().enumerate() {
            assert!(NEEDS[..at].iter().all(|other| other.name != need.name), "{}", need.name);
        }
    }
}
