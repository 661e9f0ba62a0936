// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The VMs of the node: read through vminfod's barrier, changed through vmadm, net-agent held for them. A change
//! is done when vminfod shows it.

use std::sync::Arc;
use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Program};
use sdc_clients::quoted;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::vm;
use migration_core::carried::CONSOLES;
use migration_core::machine::Protection;

/// How long vmadm and net-agent may take.
const DEADLINE: Duration = Duration::from_secs(10 * 60);
/// How long a VM may take to shut down before it is halted.
const SHUTDOWN: Duration = Duration::from_secs(3 * 60);
/// How long a hold lasts without being renewed.
const HOLD: &str = "2h";
/// vmadm's protections against deletion.
const PROTECTIONS: [&str; 2] = ["indestructible_delegated", "indestructible_zoneroot"];

/// Something was not done on the node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A program could not be run to its end, or failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// vminfod did not answer.
    #[error("vminfod: {}", .0.in_words())]
    Vminfod(#[from] sdc_clients::Error),
    /// There is no such VM.
    #[error("there is no VM {0} here")]
    NoVm(Uuid),
    /// vmadm has ended well, and vminfod does not show it.
    #[error("vmadm succeeded, but vminfod does not show {0}")]
    NotSeen(&'static str),
    #[error("vminfod's create_timestamp {} is not a time", quoted(.0))]
    NoTime(String),
    /// net-agent's list of holds is not understood.
    #[error("`net-agent holds` did not print a list")]
    NoHolds,
}

/// The VMs of one node.
pub struct Node {
    commands: Arc<dyn Commands>,
    vminfod: Vminfod,
}

impl Node {
    /// The VMs that this vminfod shows.
    pub fn new(commands: Arc<dyn Commands>, vminfod: Vminfod) -> Node {
        Node { commands, vminfod }
    }

    pub fn vminfod(&self) -> &Vminfod {
        &self.vminfod
    }

    /// Returns the VM's object by a reading that begins now; none if there is no such VM.
    pub async fn vm(&self, uuid: Uuid) -> Result<Option<VmObject>, NodeError> {
        match self.vminfod.vm(&uuid.to_string(), true).await {
            Ok(vm) => Ok(Some(vm)),
            Err(error) if error.is_not_found_resource() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the VM's object.
    pub async fn existing(&self, uuid: Uuid) -> Result<VmObject, NodeError> {
        self.vm(uuid).await?.ok_or(NodeError::NoVm(uuid))
    }

    pub async fn set_autoboot(&self, uuid: Uuid, on: bool) -> Result<(), NodeError> {
        let vm = self.existing(uuid).await?;
        if vm::has_autoboot(&vm) == on {
            return Ok(());
        }
        self.update(&vm, uuid, [("autoboot", on)]).await?;
        let seen = vm::has_autoboot(&self.existing(uuid).await?) == on;
        if seen { Ok(()) } else { Err(NodeError::NotSeen("autoboot")) }
    }

    /// Sets `do_not_inventory`.
    pub async fn set_hidden(&self, uuid: Uuid, hidden: bool) -> Result<(), NodeError> {
        let vm = self.existing(uuid).await?;
        if vm.is_hidden() == hidden {
            return Ok(());
        }
        self.update(&vm, uuid, [("do_not_inventory", hidden)]).await?;
        let seen = self.existing(uuid).await?.is_hidden() == hidden;
        if seen { Ok(()) } else { Err(NodeError::NotSeen("do_not_inventory")) }
    }

    /// Stops the VM: it is asked to shut down, and halted if it does not.
    pub async fn stop(&self, uuid: Uuid) -> Result<(), NodeError> {
        let id = uuid.to_string();
        self.end(uuid, &[(&["stop", &id], SHUTDOWN), (&["stop", &id, "-F"], DEADLINE)]).await
    }

    /// Stops the VM at once.
    pub async fn halt(&self, uuid: Uuid) -> Result<(), NodeError> {
        self.end(uuid, &[(&["stop", &uuid.to_string(), "-F"], DEADLINE)]).await
    }

    /// Tries these one after the other until it does not run.
    async fn end(&self, uuid: Uuid, ways: &[(&[&str], Duration)]) -> Result<(), NodeError> {
        let mut failed = None;
        for (words, deadline) in ways {
            if !vm::is_running(&self.existing(uuid).await?) {
                return Ok(());
            }
            // Only the VM itself shows whether this has helped.
            failed = self.run(Program::Vmadm, words, Vec::new(), *deadline).await.err();
            if let Some(error) = &failed {
                tracing::warn!(vm = %uuid, %error, "vmadm failed to stop the VM; checking whether it still runs");
            }
        }
        if !vm::is_running(&self.existing(uuid).await?) {
            return Ok(());
        }
        Err(failed.unwrap_or(NodeError::NotSeen("a VM that is stopped")))
    }

    /// Boots the VM. vmadm sets autoboot when it does: it is put back.
    pub async fn boot(&self, uuid: Uuid) -> Result<(), NodeError> {
        let before = self.existing(uuid).await?;
        if vm::is_running(&before) {
            return Ok(());
        }
        self.run(Program::Vmadm, &["start", &uuid.to_string()], Vec::new(), DEADLINE).await?;
        self.set_autoboot(uuid, vm::has_autoboot(&before)).await?;
        let is_up = vm::is_running(&self.existing(uuid).await?);
        if is_up { Ok(()) } else { Err(NodeError::NotSeen("a VM that runs")) }
    }

    /// Deletes the VM, its protection against deletion first. What `zfs` still has of it stays.
    pub async fn delete(&self, uuid: Uuid) -> Result<(), NodeError> {
        let Some(vm) = self.vm(uuid).await? else { return Ok(()) };
        let on = PROTECTIONS.into_iter().filter(|key| vm.flag(key) == Some(true));
        let lifted: Vec<(&str, bool)> = on.map(|key| (key, false)).collect();
        if !lifted.is_empty() {
            self.update(&vm, uuid, lifted).await?;
        }
        self.run(Program::Vmadm, &["delete", &uuid.to_string()], Vec::new(), DEADLINE).await?;
        let is_gone = self.vm(uuid).await?.is_none();
        if is_gone { Ok(()) } else { Err(NodeError::NotSeen("that the VM is gone")) }
    }

    /// Protects datasets of the VM against deletion.
    pub async fn protect(&self, uuid: Uuid, of: Protection) -> Result<(), NodeError> {
        let vm = self.existing(uuid).await?;
        let lacks = of.without(vm::protection(&vm));
        let wanted = PROTECTIONS.into_iter().zip([lacks.delegated, lacks.zoneroot]);
        let set: Vec<(&str, bool)> = wanted.filter(|(_, is_wanted)| *is_wanted).collect();
        if set.is_empty() {
            return Ok(());
        }
        self.update(&vm, uuid, set).await?;
        let left = of.without(vm::protection(&self.existing(uuid).await?));
        let is_seen = left == Protection::default();
        if is_seen { Ok(()) } else { Err(NodeError::NotSeen("its protection against deletion")) }
    }

    /// Sets when the VM was created, as only zonecfg does.
    pub async fn set_created(&self, uuid: Uuid, created: &str) -> Result<(), NodeError> {
        let is_so = |vm: &VmObject| vm.text("create_timestamp") == Some(created);
        if is_so(&self.existing(uuid).await?) {
            return Ok(());
        }
        // It becomes a token of zonecfg's input.
        let is_word = |c: char| c.is_ascii_alphanumeric() || ":.+-".contains(c);
        if created.is_empty() || !created.chars().all(is_word) {
            return Err(NodeError::NoTime(created.to_owned()));
        }
        let set = format!("select attr name=create-timestamp; set value={created}; end");
        let words = ["-z", &uuid.to_string(), &set];
        self.run(Program::Zonecfg, &words, Vec::new(), DEADLINE).await?;
        let is_seen = is_so(&self.existing(uuid).await?);
        if is_seen { Ok(()) } else { Err(NodeError::NotSeen("when it was created")) }
    }

    /// Sets flags of a VM.
    async fn update<'a>(
        &self,
        vm: &VmObject,
        uuid: Uuid,
        flags: impl IntoIterator<Item = (&'a str, bool)>,
    ) -> Result<(), NodeError> {
        let flags = flags.into_iter().map(|(key, on)| (key.to_owned(), Value::Bool(on)));
        self.change(vm, uuid, flags.collect()).await
    }

    /// Changes the VM by a payload of `vmadm update`. What each update has to name is added as it is.
    pub async fn change(
        &self,
        vm: &VmObject,
        uuid: Uuid,
        mut payload: Map<String, Value>,
    ) -> Result<(), NodeError> {
        if vm.brand() == Some("bhyve") && CONSOLES.iter().all(|key| !payload.contains_key(*key)) {
            let consoles = CONSOLES.iter().filter_map(|key| Some((key, vm.get(*key)?)));
            let consoles = consoles.map(|(key, value)| ((*key).to_owned(), value.clone()));
            payload.extend(consoles.collect::<Vec<_>>());
        }
        let input = Value::Object(payload).to_string().into_bytes();
        self.run(Program::Vmadm, &["update", &uuid.to_string()], input, DEADLINE).await.map(drop)
    }

    /// Holds net-agent for the VM, or renews the hold.
    pub async fn hold(&self, uuid: Uuid, migration: Uuid) -> Result<(), NodeError> {
        let (id, reason) = (uuid.to_string(), format!("migration {migration}"));
        let words = ["hold", "--vm", &id, "--for", HOLD, "--reason", &reason];
        self.run(Program::NetAgent, &words, Vec::new(), DEADLINE).await.map(drop)
    }

    /// Releases net-agent for the VM.
    pub async fn release(&self, uuid: Uuid) -> Result<(), NodeError> {
        if !self.is_held(uuid).await? {
            return Ok(());
        }
        let words = ["release", "--vm", &uuid.to_string()];
        self.run(Program::NetAgent, &words, Vec::new(), DEADLINE).await.map(drop)
    }

    /// Returns true if net-agent has a hold on the VM.
    pub async fn is_held(&self, uuid: Uuid) -> Result<bool, NodeError> {
        let text = self.run(Program::NetAgent, &["holds", "-j"], Vec::new(), DEADLINE).await?;
        let holds: Vec<Value> = serde_json::from_slice(&text).map_err(|_| NodeError::NoHolds)?;
        let id = uuid.to_string();
        Ok(holds.iter().any(|hold| hold.get("vm").and_then(Value::as_str) == Some(&id)))
    }

    async fn run(
        &self,
        program: Program,
        words: &[&str],
        input: Vec<u8>,
        deadline: Duration,
    ) -> Result<Vec<u8>, NodeError> {
        let args = words.iter().map(|word| (*word).to_owned()).collect();
        let output =
            self.commands.run(Call::new(program, args, deadline).with_input(input)).await?;
        if output.status != 0 {
            let command = format!("{program} {}", words.first().copied().unwrap_or_default());
            return Err(CommandError::Exit { command, output }.into());
        }
        Ok(output.stdout)
    }
}
