// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The operations of vmadm on a VM, step by step in its order. As vmadm does, they wait until
//! vminfod shows a step before the next one begins.

use serde_json::{Value, json};

use crate::error::NodeError;
use crate::new_vm;
use crate::node::Node;
use crate::payload::{self, Payload};
use crate::state::{Zone, ZoneState};
use crate::vmadm::volumes::{self, Step};
use crate::vmadm::{self, forms};
use crate::wait::Wait;
use crate::{config, files, protection, zones};

/// A VM is provisioned within so many seconds.
const PROVISIONED: i64 = 300;

/// vmadm's verbs on one node.
#[derive(Clone)]
pub struct Verbs {
    node: Node,
    wait: Wait,
}

/// Runs a step that takes locks and writes files where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NodeError> + Send + 'static,
) -> Result<T, NodeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(NodeError::refused(format!("a step of the node did not finish: {e}"))),
    }
}

impl Verbs {
    /// Verbs that wait as `wait` says.
    pub fn new(node: &Node, wait: Wait) -> Verbs {
        Verbs { node: node.clone(), wait }
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// A VM by zone name, UUID or unique alias.
    pub fn resolve(&self, name: &str) -> Result<Zone, NodeError> {
        let zones = self.node.zones()?;
        if let Some(zone) = zones.find(name) {
            return Ok(zone.clone());
        }
        let wanted = {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(name)
        };
        let mut named = zones.iter().filter(|z| {
            self.node
                .zone_config(&z.zonename)
                .is_ok_and(|x| x.value("attr", "alias") == Some(&wanted))
        });
        match (named.next(), named.next()) {
            (Some(zone), None) => Ok(zone.clone()),
            (Some(_), Some(_)) => {
                Err(NodeError::refused(format!("more than one VM has the alias {name}")))
            }
            _ => Err(NodeError::UnknownVm(name.to_string())),
        }
    }

    /// One blocking step on the node.
    pub(crate) async fn on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Node) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let node = self.node.clone();
        blocking(move || work(&node)).await
    }

    /// How this waits for vminfod.
    pub(crate) fn wait(&self) -> &Wait {
        &self.wait
    }

    /// vmadm create: returns the new VM's UUID.
    pub async fn create(&self, given: &Payload) -> Result<String, NodeError> {
        let payload = given.clone();
        let (vm, before) = self
            .on_node(move |node| {
                let mut around = node.around(&payload)?;
                let mut vm = vmadm::create::create(&payload, &mut around)?;
                let before = volumes::before_zone(&vm, &around);
                vm.extend(own_attributes(&vm));
                Ok((vm, before))
            })
            .await?;
        let uuid = payload::text(&vm, "uuid").unwrap_or_default().to_string();
        let u = uuid.as_str();
        self.node.check_pool(&format!("zones/{uuid}"))?;
        let boots = vm.get("autoboot").is_some_and(forms::is_true);
        // A payload without a valid configuration leaves no datasets behind.
        config::zone_xml(&vm, "/zones/checked", 0)?;
        if self.node.zones()?.find(u).is_some() {
            return Err(NodeError::refused(format!("VM {u} exists already")));
        }
        let make = |steps: Vec<Step>| {
            move |node: &Node| {
                for step in &steps {
                    node.zfs(|all| step.make(all))?;
                }
                Ok(())
            }
        };
        self.on_node(make(before)).await?;
        let configured = vm.clone();
        self.on_node(move |node| configure(node, &configured)).await?;
        self.wait.until(u, "the new VM", |v| v.is_some()).await?;
        let rest = volumes::at_install(&vm, new_vm::has_image(&*self.node.datasets()?, &vm));
        let name = uuid.clone();
        self.on_node(move |node| node.zone_install(&name, |_| make(rest)(node))).await?;
        self.wait.key(u, "zone_state", &json!("installed")).await?;
        self.wait.key(u, "zfs_filesystem", &json!(format!("zones/{uuid}"))).await?;
        let (name, installed) = (uuid.clone(), vm.clone());
        self.on_node(move |node| {
            node.zfs(|all| protection::apply(all, &format!("zones/{name}"), &installed))?;
            if config::is_installed_later(&installed) {
                node.zone_reconfigure(&name, |xml| {
                    config::installed(xml, &installed);
                    Ok(())
                })?;
            }
            let dir = node.path(&format!("/zones/{name}/config"));
            files::make_dir(&dir)?;
            let files = new_vm::config_files(&installed);
            files.iter().try_for_each(|(file, value)| files::write_json(&dir.join(file), value))
        })
        .await?;
        let tags = vm.get("tags").filter(|tags| tags.is_object());
        let tags = tags.cloned().unwrap_or_else(|| json!({}));
        self.wait.key(u, "tags", &tags).await?;
        if boots {
            self.start(u).await?;
        }
        let none = |key: &str| (key.to_string(), Value::Null);
        self.set_fields(u, &Payload::from_iter([none("provisioning"), none("transition")])).await?;
        Ok(uuid)
    }

    pub(crate) async fn start(&self, uuid: &str) -> Result<(), NodeError> {
        let name = uuid.to_string();
        self.on_node(move |node| node.zone_boot(&name)).await?;
        self.wait.key(uuid, "zone_state", &json!("running")).await
    }

    /// zonecfg: one key of the VM.
    pub async fn set_field(&self, uuid: &str, key: &str, value: Value) -> Result<(), NodeError> {
        self.set_fields(uuid, &Payload::from_iter([(key.to_string(), value)])).await
    }

    /// zonecfg: some keys of the VM, in one step.
    pub(crate) async fn set_fields(&self, uuid: &str, fields: &Payload) -> Result<(), NodeError> {
        let (name, wanted) = (uuid.to_string(), fields.clone());
        self.on_node(move |node| {
            node.zone_reconfigure(&name, |xml| {
                wanted.iter().try_for_each(|(key, value)| match config::apply(xml, key, value)? {
                    true => Ok(()),
                    false => Err(NodeError::invalid(key.as_str(), "is no field that can be set")),
                })
            })
        })
        .await?;
        self.seen(uuid, fields.iter()).await
    }

    /// Waits until vminfod shows these properties.
    pub(crate) async fn seen(
        &self,
        uuid: &str,
        fields: impl Iterator<Item = (&String, &Value)>,
    ) -> Result<(), NodeError> {
        for (key, value) in fields {
            if key == "transition" {
                continue; // the object shows what it means
            }
            let blank =
                value.is_null() || *value == json!(false) || forms::printed(value).is_empty();
            // A number may be given as text, a list is a text in places, and a blank may be stored as absence.
            let shows = |now: Option<&Value>| match now {
                None => blank || key == "restart_init" && *value == json!(true),
                Some(now) => now == value || forms::printed(now) == forms::printed(value),
            };
            self.wait.until(uuid, key, |vm| vm.is_some_and(|v| shows(v.get(key)))).await?;
        }
        Ok(())
    }

    pub async fn boot(&self, name: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        self.start(&zone.zonename).await?;
        self.set_field(&zone.zonename, "autoboot", json!(true)).await
    }

    /// vmadm stop: init ends with this wait status.
    pub async fn halt(&self, name: &str, status: i64) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.as_str();
        if !zone.state.is_active() {
            return Err(NodeError::refused(format!("VM {z} is not running")));
        }
        self.set_field(z, "autoboot", json!(false)).await?;
        self.stop(z, status).await
    }

    pub(crate) async fn stop(&self, zonename: &str, status: i64) -> Result<(), NodeError> {
        let name = zonename.to_string();
        self.on_node(move |node| node.zone_halt(&name, status)).await?;
        let stopped = |vm: Option<&Payload>| {
            vm.is_some_and(|v| {
                v.get("zone_state") == Some(&json!("installed")) && v.contains_key("exit_timestamp")
            })
        };
        self.wait.until(zonename, "the halt", stopped).await
    }

    pub async fn reboot(&self, name: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.clone();
        let after = self
            .on_node(move |node| {
                node.zone_reboot(&z)?;
                node.zone(&z)
            })
            .await?;
        let zoneid = json!(after.zoneid);
        let seen = |vm: Option<&Payload>| {
            let Some(vm) = vm else { return false };
            vm.get("zoneid") == Some(&zoneid) && vm.get("zone_state") == Some(&json!("running"))
        };
        self.wait.until(&zone.zonename, "the reboot", seen).await
    }

    /// vmadm reprovision: the root is made anew from an image of the pool.
    pub async fn reprovision(&self, name: &str, image: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.as_str();
        let top = zone.zonepath.trim_start_matches('/').to_string();
        let origin = self.node.may_reprovision(&zone, image)?;
        let was_active = zone.state.is_active();
        if was_active {
            self.stop(z, zones::CLEAN_EXIT).await?;
        }
        self.set_field(z, "image_uuid", json!(image)).await?;
        self.on_node(move |node| node.reprovision(&top, &origin)).await?;
        if was_active { self.start(z).await } else { Ok(()) }
    }

    pub async fn delete(&self, name: &str) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let z = zone.zonename.as_str();
        let top = zone.zonepath.trim_start_matches('/');
        protection::check(&*self.node.datasets()?, z, top)?;
        if zone.state.is_active() {
            self.stop(z, zones::CLEAN_EXIT).await?;
        }
        if self.node.zone(z)?.state != ZoneState::Configured {
            let name = zone.zonename.clone();
            self.on_node(move |node| node.zone_uninstall(&name)).await?;
            let unmade = |vm: Option<&Payload>| {
                vm.is_some_and(|v| {
                    v.get("zone_state") == Some(&json!("configured")) && !v.contains_key("zpool")
                })
            };
            self.wait.until(z, "the uninstall", unmade).await?;
        }
        let name = zone.zonename.clone();
        self.on_node(move |node| node.zone_deconfigure(&name)).await?;
        self.wait.gone(z).await
    }

    /// The same files and events as [`Verbs::delete`], without waiting for vminfod.
    pub async fn delete_raw(&self, name: &str) -> Result<(), NodeError> {
        Verbs::new(&self.node, Wait::none()).delete(name).await
    }

    /// vmadm update quota=, in GiB.
    pub async fn set_quota(&self, name: &str, gib: u64) -> Result<(), NodeError> {
        let zone = self.resolve(name)?;
        let bytes =
            gib.checked_mul(1 << 30).ok_or_else(|| NodeError::invalid("quota", "too large"))?;
        let key = if zone.brand == "bhyve" { "refquota" } else { "quota" };
        let dataset = zone.zonepath.trim_start_matches('/').to_string();
        self.on_node(move |node| node.zfs(|all| all.set(&dataset, key, &bytes.to_string())))
            .await?;
        let shown = json!(gib);
        let seen = |vm: Option<&Payload>| {
            vm.is_some_and(|vm| vm.get("quota").map_or(gib == 0, |now| *now == shown))
        };
        self.wait.until(&zone.zonename, "quota", seen).await
    }
}

/// What vmadm keeps of its own work in the configuration of a new VM.
fn own_attributes(vm: &Payload) -> Payload {
    let mut own = Payload::from_iter([
        ("provisioning".to_string(), json!(true)),
        ("v".to_string(), json!(1)),
        ("create_timestamp".to_string(), json!(files::now_iso())),
    ]);
    if vm.get("autoboot").is_some_and(forms::is_true) {
        let until = (files::now_seconds() + PROVISIONED).saturating_mul(1000);
        own.insert("transition".to_string(), json!(format!("provisioning:running:{until}")));
    }
    own
}

fn configure(node: &Node, vm: &Payload) -> Result<(), NodeError> {
    let zonedid = node.step(|guard| {
        let mut zones = node.zones()?;
        let zonedid = zones.take_zonedid();
        guard.save_zones(&zones)?;
        Ok(zonedid)
    })?;
    let mut zone = new_vm::zone(vm, zonedid)?;
    zone.state = ZoneState::Configured;
    let xml = config::zone_xml(vm, &zone.zonepath, zonedid)?;
    node.zone_configure(&zone, &xml)
}
