// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `restart-volume-zone`, `update-volume-zone` and `delete-volume-zone`: what is to be done, who uses the volumes, the
//! question, the orders, and what came of them.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use daemon::cli::ask::{goes_on, is_answered};
use daemon::cli::{Progress, Usage, names, screen};
use daemon::exit;
use daemon::text::counted;
use sdc_clients::imgapi::{Image, Imgapi};
use sdc_clients::quoted;
use sdc_clients::vmapi::Ordered;
use sdc_clients::volapi::Volume;
use serde_json::Value;

use super::args::{Chosen, NAME};
use super::job;
use super::services::Services;
use super::shell::word;
use super::zones::{Vms, called, chosen, is_live, mount, records, text};

/// What is done to the volumes.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// Their storage VMs are rebooted, or started.
    Restart,
    /// Their storage VMs are made anew, from this image or the newest one.
    Update(Option<String>),
    /// They are deleted.
    Delete,
}

/// What is to be done to a volume.
enum Task {
    Reboot,
    Start,
    Remake(Box<Image>),
    Delete,
}

/// One volume, and what is to be done to it.
struct Order {
    volume: Volume,
    task: Task,
}

/// Does it, or fails with the users of the volumes.
/// Fails if nothing fits what was asked for, or a service does not answer.
pub(super) async fn act(
    services: &Services,
    asked: &Chosen,
    deed: &Deed,
) -> anyhow::Result<ExitCode> {
    let volumes = chosen(services, asked).await?;
    let uuids = volumes.iter().flat_map(|volume| {
        volume.refs.iter().chain(std::iter::once(&volume.vm_uuid)).map(String::as_str)
    });
    let vms = records(&services.vmapi()?, uuids).await?;
    let orders = orders(services, volumes, &vms, deed).await?;
    if orders.is_empty() {
        return say("Nothing to do.");
    }
    // One that is stopped serves no user: they gain by its start.
    let hurt = orders.iter().filter(|order| !matches!(order.task, Task::Start));
    let used: String = hurt.filter_map(|order| used_by(&order.volume, &vms)).collect();
    if !used.is_empty() && !asked.force {
        eprintln!("{used}{NAME}: nothing was done: there are users; --force does it all the same");
        return Ok(ExitCode::from(exit::FAILED));
    }
    if !asked.yes {
        let question = format!("{used}{}", question(&orders));
        if !is_answered() {
            let what = "there is no terminal to ask on; confirm it with -y";
            return Err(Usage(format!("{} {what}", question.replace('\n', " "))).into());
        }
        if !goes_on(&question)? {
            return Ok(ExitCode::from(exit::FAILED));
        }
    }
    let mut failed = 0;
    for order in &orders {
        match carry_out(services, order, asked).await {
            Ok(done) => drop(say(&format!("{}: {done}", called(&order.volume)))?),
            // One that is refused does not keep the others.
            Err(error) => {
                failed += 1;
                let why = screen::visible(&format!("{error:#}"));
                eprintln!("{NAME}: {}: {why}", called(&order.volume));
            }
        }
    }
    Ok(ExitCode::from(if failed == 0 { 0 } else { exit::FAILED }))
}

fn say(line: &str) -> anyhow::Result<ExitCode> {
    screen::write(&format!("{line}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the lines on which live VMs use the volume, if any does.
fn used_by(volume: &Volume, vms: &Vms) -> Option<String> {
    let users = volume.refs.iter().filter_map(|uuid| {
        let vm = vms.get(uuid).filter(|vm| is_live(vm))?;
        let alias = text(vm, "alias").map(word).unwrap_or_default();
        let mount = mount(vm, &volume.name);
        let mount = mount.map(|(at, mode)| format!(" {} {}", word(&at), word(&mode)));
        let state = text(vm, "state").map(word).unwrap_or_default();
        Some(format!("  {uuid} {alias} {state}{}\n", mount.unwrap_or_default()))
    });
    let users: Vec<String> = users.collect();
    let count = users.len();
    let title = match count {
        0 => return None,
        1 => "1 VM uses".to_owned(),
        _ => format!("{count} VMs use"),
    };
    Some(format!("{title} {}:\n{}", called(volume), users.concat()))
}

/// Returns what is to be done: a volume that has the newest image already is left out, with a line.
async fn orders(
    services: &Services,
    volumes: Vec<Volume>,
    vms: &Vms,
    deed: &Deed,
) -> anyhow::Result<Vec<Order>> {
    let wanted = match deed {
        Deed::Update(wanted) => wanted,
        Deed::Delete => {
            let order = |volume| Order { volume, task: Task::Delete };
            return Ok(volumes.into_iter().map(order).collect());
        }
        Deed::Restart => {
            let order = |volume: Volume| {
                let task = restart(&volume, vms)?;
                Ok(Order { volume, task })
            };
            return volumes.into_iter().map(order).collect();
        }
    };
    let imgapi = services.imgapi()?;
    let mut orders = Vec::new();
    for volume in volumes {
        let zone = vms.get(&volume.vm_uuid);
        let zone = zone.with_context(|| format!("{}: VMAPI has no storage VM", called(&volume)))?;
        let has = text(zone, "image_uuid").with_context(|| {
            format!("{}: VMAPI's record of its storage VM has no image", called(&volume))
        })?;
        let image = match wanted {
            Some(wanted) => named_image(&imgapi, wanted, has).await?,
            None => newest(&imgapi, has).await?,
        };
        if image.state != "active" {
            bail!("the image {} is {}", word(&image.uuid), word(&image.state));
        }
        if image.uuid == has {
            say(&format!("{}: it has {} already", called(&volume), named(&image)))?;
            continue;
        }
        orders.push(Order { volume, task: Task::Remake(Box::new(image)) });
    }
    Ok(orders)
}

/// Returns what brings a storage VM back: VMAPI takes a reboot of one that is stopped, and its job fails.
fn restart(volume: &Volume, vms: &Vms) -> anyhow::Result<Task> {
    let called = called(volume);
    let state = vms.get(&volume.vm_uuid).map(|vm| text(vm, "state").unwrap_or("in no known state"));
    match state {
        Some("running") => Ok(Task::Reboot),
        Some("stopped") => Ok(Task::Start),
        None | Some("destroyed" | "failed") => {
            bail!("{called}: its storage VM is gone; {NAME} check says what repairs it")
        }
        Some(state) => {
            bail!(
                "{called}: its storage VM is {}; wait until it is running or stopped",
                word(state)
            )
        }
    }
}

/// Returns the newest active image with the name and the owner of this one.
async fn newest(imgapi: &Imgapi, has: &str) -> anyhow::Result<Image> {
    let old = imgapi.get_image(has).await.context("the image of the storage VM")?;
    let newest = of_owner(imgapi, &old, &old.name).await?.into_iter().max_by_key(published);
    Ok(newest.filter(|newest| published(newest) > published(&old)).unwrap_or(old))
}

/// Returns the image that was typed: its uuid, `NAME@VERSION`, or the newest of a name. Every user may give an image
/// any name: only one of the owner of the present image is meant.
async fn named_image(imgapi: &Imgapi, typed: &str, has: &str) -> anyhow::Result<Image> {
    if let Ok(uuid) = names::uuid(typed) {
        return Ok(imgapi.get_image(&uuid).await?);
    }
    let old = imgapi.get_image(has).await.context("the image of the storage VM")?;
    let (name, version) = typed.split_once('@').map_or((typed, None), |it| (it.0, Some(it.1)));
    let mut known = of_owner(imgapi, &old, name).await?;
    known.retain(|image| version.is_none() || image.version.as_deref() == version);
    let newest = known.into_iter().max_by_key(published);
    Ok(newest.ok_or_else(|| {
        Usage(format!(
            "no active image of the owner of {} is called {}",
            named(&old),
            quoted(typed)
        ))
    })?)
}

/// Returns the active images of this name that the owner of `like` has.
async fn of_owner(imgapi: &Imgapi, like: &Image, name: &str) -> anyhow::Result<Vec<Image>> {
    let owner = |image: &Image| image.other.get("owner").cloned();
    let (mut known, left_out) = imgapi.list_images(name).await?;
    if let Some(why) = left_out.first.first() {
        let images = counted(left_out.count, "image", "images");
        eprintln!(
            "{NAME}: IMGAPI lists {images} that cannot be read and are left out: {}",
            word(why)
        );
    }
    known.retain(|it| it.name == name && it.state == "active" && owner(it) == owner(like));
    Ok(known)
}

/// When an image was published. Times in ISO 8601 and UTC sort as texts.
fn published(image: &Image) -> String {
    image.other.get("published_at").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns `nfsserver 1.2.0 (UUID)`.
fn named(image: &Image) -> String {
    let version = image.version.as_deref().map(|it| format!(" {}", word(it))).unwrap_or_default();
    format!("{}{version} ({})", word(&image.name), word(&image.uuid))
}

fn question(orders: &[Order]) -> String {
    let lines = orders.iter().map(|Order { volume, task }| {
        let called = called(volume);
        match task {
            Task::Reboot => format!("This will reboot the storage VM of {called}."),
            Task::Start => format!("This will start the storage VM of {called}, which is stopped."),
            Task::Delete => format!("This will delete {called} and all that is in it."),
            Task::Remake(image) => {
                let image = named(image);
                format!("This will make the storage VM of {called} anew from {image}.")
            }
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn carry_out(services: &Services, order: &Order, asked: &Chosen) -> anyhow::Result<String> {
    let Order { volume, task } = order;
    let vm = &volume.vm_uuid;
    let (ordered, [goes_on, is_done]): (Ordered, [String; 2]) = match task {
        Task::Delete => {
            services.volapi()?.delete(&volume.uuid, &volume.owner_uuid, asked.force).await?;
            return Ok("it is deleted once its storage VM is".to_owned());
        }
        Task::Reboot => {
            let texts = ["its storage VM reboots", "its storage VM was rebooted"];
            (services.vmapi()?.reboot_vm(vm).await?, texts.map(str::to_owned))
        }
        Task::Start => {
            let texts = ["its storage VM starts", "its storage VM was started"];
            (services.vmapi()?.start_vm(vm).await?, texts.map(str::to_owned))
        }
        Task::Remake(image) => {
            let named = named(image);
            let texts = [
                format!("its storage VM is made anew from {named}"),
                format!("its storage VM has {named} now"),
            ];
            (services.vmapi()?.reprovision_vm(vm, &image.uuid).await?, texts)
        }
    };
    if asked.no_wait {
        return Ok(format!("{goes_on} (job {})", word(&ordered.job_uuid)));
    }
    let _shown = Progress::begin(&format!("{}: {goes_on}", called(volume)));
    job::done(&ordered).await?;
    Ok(is_done)
}
