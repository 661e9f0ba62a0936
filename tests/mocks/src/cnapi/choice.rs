// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The choice of a node for a VM, step by step: what each step leaves, and why it drops the others. Pure.
//!
//! What is random at the real one follows the order of the uuids here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::affinity::{Locality, converted};
use super::body::hash;
use super::left::{Choice, Left};
use super::node::{Node, number, object};
use super::refusal::{Params, Refusal, word};
use super::scores;
use crate::restify;

const MIB: f64 = 1_048_576.0;
/// What a node keeps free beside a VM, in MiB.
const DISK_SPARE: f64 = 10_240.0;
const MOST_VCPUS: f64 = 16.0;

/// What a choice is made from.
pub(super) struct World<'a> {
    /// The nodes, in the order of their uuids.
    pub(super) nodes: Vec<&'a Node>,
    /// What VMAPI has; nothing where it does not answer.
    pub(super) vms: Option<Vec<Params>>,
    /// By node: what open tickets for provisions will take.
    pub(super) tickets: BTreeMap<String, Vec<Params>>,
    pub(super) now_ms: i64,
}

/// Chooses a node; returns the whole answer.
pub(super) fn allocate(order: &Params, world: &World<'_>) -> Result<Value, Refusal> {
    let (vm, image) = (part(order, "vm"), part(order, "image"));
    let package = order.get("package").map(object);
    let among = order.get("servers").and_then(Value::as_array);
    let is_candidate = |node: &&&Node| {
        let uuid = word(&node.fields, "uuid");
        node.is_set_up()
            && !node.is("reserved")
            && among.is_none_or(|among| among.iter().any(|it| it == uuid))
    };
    let left = world.nodes.iter().filter(is_candidate).map(|node| Left {
        node,
        vms: Vec::new(),
        room: None,
        score: 0.0,
    });
    let mut choice = Choice { left: left.collect(), steps: Vec::new() };
    let spec = Spec { vm: &vm, image: &image, package: package.as_ref(), order };
    before_vms(&mut choice, &spec, world)?;
    with_vms(&mut choice, &spec, world)?;
    near_and_far(&mut choice, &spec, world)?;
    scores::score(&mut choice, package.as_ref())?;
    let best = choice
        .left
        .iter()
        .max_by(|a, b| a.score.total_cmp(&b.score).then_with(|| b.uuid().cmp(a.uuid())));
    let server = best.map(|best| chosen(best, world.now_ms)).unwrap_or_default();
    Ok(json!({ "server": server, "steps": choice.steps, "imgapiPeers": [] }))
}

struct Spec<'a> {
    vm: &'a Params,
    image: &'a Params,
    package: Option<&'a Params>,
    order: &'a Params,
}

fn part(order: &Params, name: &str) -> Params {
    order.get(name).map(object).unwrap_or_default()
}

/// The node as the answer has it.
fn chosen(best: &Left<'_>, now_ms: i64) -> Params {
    use super::node::Parts;
    let parts = Parts { sysinfo: true, memory: true, disk: true, ..Parts::default() };
    let mut shown = best.node.shown(parts, now_ms);
    shown.insert("score".to_owned(), json!(best.score));
    shown.extend(best.room.map(|room| room.fields()).unwrap_or_default());
    for kind in ["Network Interfaces", "Virtual Network Interfaces"] {
        let nics = shown.get_mut("sysinfo").and_then(|sysinfo| sysinfo.get_mut(kind));
        for (name, nic) in nics.and_then(Value::as_object_mut).into_iter().flatten() {
            nic["interface"] = json!(name);
        }
    }
    shown
}

fn before_vms<'a>(
    choice: &mut Choice<'a>,
    spec: &Spec<'_>,
    world: &World<'a>,
) -> Result<(), Refusal> {
    choice.keep("Received by DAPI")?;
    choice.keep("Servers which have been setup")?;
    choice.drop_those("Servers which are currently running", |left| {
        let status = left.node.status(world.now_ms);
        (status != "running").then(|| format!("Server has status: {status}"))
    })?;
    choice.keep("Servers which have the required OS")?;
    choice.drop_those("Servers objects which are valid", |left| {
        let is_valid = !left.node.memory.is_empty() && !left.node.disk.is_empty();
        (!is_valid).then(|| "Server has no memory or disk information".to_owned())
    })?;
    choice.keep("Forced failure")?;
    choice.keep("Servers which are not virtual servers")?;
    let metadata = spec.vm.get("internal_metadata").map(object).unwrap_or_default();
    let is_wanted = metadata.get("encrypted").is_some_and(|it| !restify::falsy(it));
    choice.drop_those("Servers which are zpool encrypted", |left| {
        let is = left.node.sysinfo.get("Zpool Encrypted").is_some_and(|it| !restify::falsy(it));
        let says = if is { "Server is Zpool Encrypted" } else { "Server is not Zpool Encrypted" };
        (is != is_wanted).then(|| says.to_owned())
    })?;
    volumes_from(choice, spec, world)?;
    choice.keep("Servers which are not reserved")?;
    choice.skip("Servers with enough free disk", "No minimum free disk set")?;
    let lists = wanted_tags(spec.order);
    choice.drop_those("Servers supporting required NIC Tags", |left| {
        let tags = left.node.nic_tags();
        let missing = lists.iter().find(|any| !any.iter().any(|it| tags.contains(&it.as_str())))?;
        Some(format!("Server must have one of the NIC Tags: {}", missing.join(", ")))
    })?;
    let platforms = "Servers which meet image manifest and package platform requirements";
    choice.drop_those(platforms, |left| platform(left.node, spec))?;
    choice.keep("Servers which meet various features' platform requirements")?;
    let traits = traits(spec);
    choice.drop_those("Servers with correct traits", |left| {
        let own = left.node.fields.get("traits").map(object).unwrap_or_default();
        let says = || {
            let (wanted, own) = (json!(traits), json!(own));
            format!("Combined vm/pkg/img traits require {wanted} but server has {own}")
        };
        (own != traits).then(says)
    })?;
    choice.drop_those("Servers which are not headnodes", |left| {
        left.node.is("headnode").then(String::new)
    })?;
    choice.keep("Force overprovisioning to fixed values")?;
    let ratios = "Servers with same overprovision ratios as requested VM";
    match spec.package {
        None => choice.skip(ratios, "No pkg provided"),
        Some(_) => choice.keep(ratios),
    }
}

/// A container of docker that uses the volumes of others is placed beside them.
fn volumes_from(
    choice: &mut Choice<'_>,
    spec: &Spec<'_>,
    world: &World<'_>,
) -> Result<(), Refusal> {
    const STEP: &str = "Servers containing VMs required for volumesfrom";
    let is_docker = spec.vm.get("docker").is_some_and(|it| !restify::falsy(it));
    let metadata = spec.vm.get("internal_metadata").filter(|it| is_docker && it.is_object());
    let Some(metadata) = metadata else {
        let why = "Requested VM is not a Docker container and/or has no internal_metadata";
        return choice.skip(STEP, why);
    };
    let texts = metadata["docker:volumesfrom"].as_str();
    let vms: Vec<String> = texts.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    if vms.is_empty() {
        let why = "Requested VM has no VMs listed in internal_data docker:volumesfrom";
        return choice.skip(STEP, why);
    }
    let known = world.vms.as_deref().unwrap_or_default();
    choice.drop_those(STEP, |left| {
        let is_here = |vm: &Params| word(vm, "server_uuid") == left.uuid();
        let lacks =
            |uuid: &&String| !known.iter().any(|vm| word(vm, "uuid") == *uuid && is_here(vm));
        let uuid = vms.iter().find(lacks)?;
        Some(format!("VM needs volumes from {uuid}, which was not found on server"))
    })
}

/// Each list needs one tag that the node has.
fn wanted_tags(order: &Params) -> Vec<Vec<String>> {
    let list = |name: &str| order.get(name).and_then(Value::as_array).into_iter().flatten();
    let text = |it: &Value| it.as_str().map(str::to_owned);
    let ones = list("nic_tags").filter_map(text).map(|tag| vec![tag]);
    let anys = list("nic_tag_requirements").filter_map(Value::as_array);
    anys.map(|any| any.iter().filter_map(text).collect()).chain(ones).collect()
}

fn platform(node: &Node, spec: &Spec<'_>) -> Option<String> {
    let requirements = spec.image.get("requirements").map(object).unwrap_or_default();
    let of_package = spec.package.and_then(|package| hash(package.get("min_platform")?));
    let of = |name: &str| requirements.get(name).map(object);
    let (version, runs) = (word(&node.sysinfo, "SDC Version"), word(&node.sysinfo, "Live Image"));
    let limit = |from: &Option<Params>| Some(from.as_ref()?.get(version)?.as_str()?.to_owned());
    let is_too_old = [limit(&of("min_platform")), limit(&of_package)]
        .into_iter()
        .flatten()
        .any(|least| runs < least.as_str());
    let is_too_new = limit(&of("max_platform")).is_some_and(|most| runs > most.as_str());
    (is_too_old || is_too_new).then(|| format!("Platform {runs} is not one that is asked for"))
}

fn traits(spec: &Spec<'_>) -> Params {
    let of =
        |from: Option<&Params>| from.and_then(|from| hash(from.get("traits")?)).unwrap_or_default();
    let mut all = of(Some(spec.image));
    all.extend(of(spec.package));
    all.extend(of(Some(spec.vm)));
    all
}

fn with_vms<'a>(
    choice: &mut Choice<'a>,
    spec: &Spec<'_>,
    world: &World<'a>,
) -> Result<(), Refusal> {
    const LOAD: &str = "Load info about all VMs for each server";
    let mut loaded = Params::new();
    match &world.vms {
        None => choice.left.clear(),
        Some(vms) => {
            for left in &mut choice.left {
                let uuid = left.uuid().to_owned();
                let is_there = |vm: &&Params| word(vm, "server_uuid") == uuid;
                left.vms = vms.iter().filter(is_there).cloned().collect();
                loaded.insert(uuid, json!(format!("{} VMs loaded", left.vms.len())));
            }
        }
    }
    choice.enter(LOAD, loaded)?;
    for left in &mut choice.left {
        left.vms.extend(world.tickets.get(left.uuid()).cloned().unwrap_or_default());
    }
    choice.keep("Add VMs which have open provisioning tickets")?;
    let capped = match spec.package {
        Some(package) => package.get("cpu_cap"),
        None => spec.vm.get("cpu_cap"),
    };
    let is_capped = capped.is_some_and(|cap| !cap.is_null());
    choice.drop_those("Servers which have same existence of cpu_cap as package", |left| {
        let has_cap = |vm: &&Params| vm.get("cpu_cap").is_some_and(|cap| !cap.is_null());
        let other = left.vms.iter().find(|vm| has_cap(vm) != is_capped)?;
        let uuid = word(other, "uuid");
        Some(match is_capped {
            true => format!("VM {uuid} has no cpu_cap, while the package does"),
            false => format!("VM {uuid} has a cpu_cap, while the package does not"),
        })
    })?;
    choice.keep("Servers with more VMs than limit")?;
    let Some(brand) = spec.vm.get("brand").and_then(Value::as_str) else {
        return Err(Refusal::Dies);
    };
    let vcpus = spec.vm.get("vcpus");
    if vcpus.is_some_and(|it| !it.is_number()) {
        return Err(Refusal::Dies);
    }
    choice.drop_those("Servers which are capable of requested virtualization", |left| {
        virtualization(left.node, brand, number(vcpus))
    })?;
    for left in &mut choice.left {
        left.room = left.node.room(&left.vms);
    }
    choice.keep("Calculate unreserved resources on each server")?;
    let ram = number(spec.vm.get("ram")).unwrap_or(0.0);
    choice.drop_those("Servers with enough unreserved RAM", |left| {
        let has = left.room.map_or(0.0, |room| room.ram);
        (has < ram).then(|| format!("VM's calculated RAM {ram} is more than {has}"))
    })?;
    let cpu = number(spec.vm.get("cpu_cap")).unwrap_or(0.0) / 4.0;
    choice.drop_those("Servers with enough unreserved CPU", |left| {
        let has = left.room.map_or(0.0, |room| room.cpu);
        (has < cpu).then(|| format!("VM's calculated CPU {cpu} is more than {has}"))
    })?;
    const DISK: &str = "Servers with enough unreserved disk";
    let need = disk(spec, brand)?;
    match need {
        None => choice.skip(DISK, "Vm and pkg have no quota"),
        Some(need) => choice.drop_those(DISK, |left| {
            let has = left.room.map_or(0.0, |room| room.disk);
            let fits = need <= has; // what is no number fits nowhere
            (!fits).then(|| format!("VM's calculated disk {need} is more than {has}"))
        }),
    }
}

fn virtualization(node: &Node, brand: &str, vcpus: Option<f64>) -> Option<String> {
    let can = |name: &str| node.sysinfo.get(name) == Some(&Value::Bool(true));
    match brand {
        "bhyve" => {
            let most = number(node.sysinfo.get("Bhyve Max Vcpus")).unwrap_or(MOST_VCPUS);
            let cpus = number(node.sysinfo.get("CPU Count")).unwrap_or(most);
            let fits = vcpus.is_some_and(|it| it >= 1.0 && it <= most.min(cpus));
            (!can("Bhyve Capable") || !fits).then(|| "Bhyve VMs need other hardware".to_owned())
        }
        "kvm" => (!can("VM Capable")).then(|| "HVM VMs need other hardware".to_owned()),
        _ => None,
    }
}

/// What a VM needs, in MiB; an image whose sizes are not told needs what no node has.
fn disk(spec: &Spec<'_>, brand: &str) -> Result<Option<f64>, Refusal> {
    let of_package = || number(spec.package?.get("quota"));
    let quota = number(spec.vm.get("quota")).map(|gib| gib * 1024.0).or_else(of_package);
    let Some(quota) = quota else { return Ok(None) };
    let files = spec.image.get("files").and_then(Value::as_array).filter(|it| !it.is_empty());
    let Some(files) = files else { return Err(Refusal::Dies) };
    let size = |file: &Value| file["size"].as_f64().unwrap_or(f64::NAN);
    let files: f64 = files.iter().map(size).sum();
    let is_disk = matches!(brand, "bhyve" | "kvm") || word(spec.image, "type") == "zvol";
    let image = match is_disk {
        true => number(spec.image.get("image_size")).unwrap_or(f64::NAN),
        false => 0.0,
    };
    Ok(Some(quota + files / MIB + image + DISK_SPARE))
}

fn near_and_far<'a>(
    choice: &mut Choice<'a>,
    spec: &Spec<'_>,
    world: &World<'a>,
) -> Result<(), Refusal> {
    const CONVERT: &str = "Convert affinity to locality hints";
    let vms = world.vms.as_deref().unwrap_or_default();
    let hints = match converted(spec.vm, vms)? {
        Ok(None) => {
            choice.skip(CONVERT, "No affinity found")?;
            Locality::of(spec.vm)
        }
        Ok(Some(hints)) => {
            choice.keep(CONVERT)?;
            hints
        }
        Err(why) => {
            choice.left.clear();
            return choice.enter(CONVERT, object(&json!({ "*": why })));
        }
    };
    let owner = word(spec.vm, "owner_uuid");
    const HARD: &str = "Servers with requested hard locality considered";
    let is_hard = hints.hard.is_any();
    if is_hard {
        let (keep, reasons) = hints.hard.judged(&choice.left, "", owner);
        choice.left = keep_those(std::mem::take(&mut choice.left), &keep);
        choice.enter(HARD, reasons)?;
    } else {
        choice.skip(HARD, "No strict locality requested")?;
    }
    let why = "No filter_owner_server default to run";
    choice.skip("Filter CNs based on owner filters", why)?;
    choice.drop_those("Servers which are not in the reservoir", |left| {
        left.node.is("reservoir").then(String::new)
    })?;
    choice.keep("Filter out the largest and most empty servers")?;
    const SOFT: &str = "Servers with requested soft locality considered";
    if hints.soft.is_any() {
        let (keep, mut reasons) = hints.soft.judged(&choice.left, "~", owner);
        let ignored = |why: &Value| {
            json!(format!("{} (ignored b/c non-strict)", why.as_str().unwrap_or_default()))
        };
        match keep.contains(&true) {
            true => choice.left = keep_those(std::mem::take(&mut choice.left), &keep),
            false => reasons.values_mut().for_each(|why| *why = ignored(why)),
        }
        return choice.enter(SOFT, reasons);
    }
    if is_hard {
        return choice.skip(SOFT, "Strict locality requested and no spreading needed");
    }
    spread(choice, spec, SOFT)
}

/// Nodes with VMs of the same owner are left out, while others remain.
fn spread(choice: &mut Choice<'_>, spec: &Spec<'_>, step: &str) -> Result<(), Refusal> {
    const WHY: &str = "exclude: spread by owner";
    let owner = word(spec.vm, "owner_uuid");
    let has = |left: &Left<'_>| left.vms.iter().any(|vm| word(vm, "owner_uuid") == owner);
    match choice.left.iter().all(has) {
        true => {
            let why = format!("{WHY} (ignored b/c non-strict)");
            choice.enter(step, object(&json!({ "*": why })))
        }
        false => choice.drop_those(step, |left| has(left).then(|| WHY.to_owned())),
    }
}

fn keep_those<'a>(all: Vec<Left<'a>>, keep: &[bool]) -> Vec<Left<'a>> {
    all.into_iter().zip(keep).filter_map(|(left, keep)| keep.then_some(left)).collect()
}
