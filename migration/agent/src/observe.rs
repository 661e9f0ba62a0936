// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is true of a copy, of a VM and of the node, read after it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

use super::failed::Failed;
use super::in_the_way;
use super::looks::Reading;
use super::memory::Entry;
use super::node::NodeError;
use super::parts::Parts;
use super::sync;
use super::vm::{self, Run};
use migration_core::intent::{End, Power};
use migration_core::machine::{self, Copy, Snapshot};
use migration_core::protocol::{
    Datasets, Looked, Node, Observe, Observed, Open, Rest, Size, State, What, Working,
};
use migration_core::sync_plan::{Row, Side};

/// The version of the protocol.
pub const PROTOCOL: u32 = 4;

/// An observation names so many ranges of numbers at most.
const MOST_RANGES: usize = 1000;

/// A reading that takes longer is answered for before it is done.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Observes a copy. Where that takes long the answer says so, and the same question again waits for the same reading;
/// another one ends it.
pub async fn look(parts: &Arc<Parts>, asked: Observe) -> Result<Looked, Failed> {
    let mut reading = parts.looks.take(&asked).unwrap_or_else(|| begin(parts, asked));
    match timeout(AT_ONCE, &mut reading).await {
        Ok(Ok(done)) => Ok(Looked::Observed(Box::new(done?))),
        Ok(Err(_ended)) => Err(Failed::Cancelled),
        Err(_late) => {
            parts.looks.keep(asked, reading);
            let working = Working { runs: parts.running.of(asked.about.vm) };
            Ok(Looked::Working { working })
        }
    }
}

fn begin(parts: &Arc<Parts>, asked: Observe) -> Reading {
    let (mut done, reading) = oneshot::channel();
    let of = Arc::clone(parts);
    parts.tasks.spawn("observation", async move {
        let observed = tokio::select! {
            observed = observe(&of, &asked) => Some(observed),
            () = done.closed() => None,
            () = of.shutdown.wait() => None,
        };
        if let Some(observed) = observed {
            let _nobody_waits = done.send(observed).is_err();
        }
    });
    reading
}

/// Observes a copy.
async fn observe(parts: &Parts, asked: &Observe) -> Result<Observed, Failed> {
    let about = &asked.about;
    let over = parts.memory.is_over(about.migration);
    if !over {
        parts.memory.accept(about).await?;
    }
    let held = parts.node.is_held(about.vm).await?;
    let vm_agent = parts.vm_agents.find(&*parts.commands).await;
    let doing = || parts.works.of(about.migration).map(|work| work.doing());
    let Some(object) = parts.node.vm(about.vm).await? else {
        let in_the_way = match about.end {
            End::Target => in_the_way::of(parts, about.vm).await?,
            End::Source => Vec::new(),
        };
        let node = machine::Node { held, copy: None, in_the_way, vm_agent };
        return Ok(Observed { node, object: None, doing: doing(), over });
    };
    has_again(parts, about.migration, &object).await?;
    let entry = parts.memory.get(about.migration);
    let (roots, side) = match vm::to_sync(&object) {
        Some(_) => {
            let sent = sync::sent(parts, &object).await?;
            let roots: Vec<String> = sent.into_iter().map(|it| it.dataset).collect();
            let side = match asked.brief {
                true => Side { datasets: there(parts, &roots).await?, ..Side::default() },
                false => parts.recent(about.vm, &roots).await?.side,
            };
            (roots, side)
        }
        None => (Vec::new(), Side::default()),
    };
    let has_forgotten = doing().is_some_and(|doing| {
        doing.order == What::Forget { keep: None } && doing.state == State::Done
    });
    let may_lack = |it: &Snapshot| entry.as_ref().is_some_and(|entry| entry.may_lack(it.number));
    let mut snapshots = snapshots(&roots, &side);
    let is_partial = is_partial(&roots, &side) || snapshots.iter().any(may_lack);
    snapshots.retain(|it| !may_lack(it));
    let run = entry.as_ref().and_then(|entry| entry.run.as_ref());
    let last = side.snapshots.iter().filter_map(|row| row.number).max().unwrap_or(0);
    let copy = Copy {
        running: vm::is_running(&object),
        hidden: object.is_hidden(),
        autoboot: vm::has_autoboot(&object),
        taken_power: entry.as_ref().and_then(|entry| entry.power),
        half: vm::is_half(&object),
        quota_lifted: entry.as_ref().is_some_and(|entry| !entry.quotas.is_empty()),
        bare: roots.iter().all(|root| !side.datasets.contains(root)),
        partial: is_partial,
        unlisted: asked.brief && !has_forgotten,
        started_since_snapshot: !snapshots.is_empty() && Run::of(&object).is_started_since(run),
        last,
        taken: side.taken_above(last, MOST_RANGES),
        snapshots,
        protection: vm::protection(&object),
        marked: vm::marked(&object, &side),
    };
    let in_the_way = match copy.half {
        true => in_the_way::older_than(parts, about.vm, &object).await?,
        false => Vec::new(),
    };
    let node = machine::Node { held, copy: Some(copy), in_the_way, vm_agent };
    Ok(Observed { node, object: Some(object), doing: doing(), over })
}

/// Returns which of these datasets are there.
async fn there(parts: &Parts, roots: &[String]) -> Result<Vec<String>, Failed> {
    Ok(parts.zfs.each("type", roots).await?.into_keys().collect())
}

/// Where no order runs, and the VM does all that was taken from it: an operator has given it back.
async fn has_again(parts: &Parts, migration: Uuid, object: &VmObject) -> Result<(), Failed> {
    let is_busy =
        parts.works.of(migration).is_some_and(|work| work.doing().state == State::Running);
    let has_taken = |entry: &Entry| entry.power.is_some();
    if is_busy || !parts.memory.get(migration).as_ref().is_some_and(has_taken) {
        return Ok(());
    }
    let (running, autoboot) = (vm::is_running(object), vm::has_autoboot(object));
    let lacks = |it: &Power| it.running && !running || it.autoboot && !autoboot;
    Ok(parts.memory.change(migration, |entry| entry.power = entry.power.filter(lacks)).await?)
}

/// Returns the sync snapshots that all datasets have, oldest first, with the GUID that the first of the roots has.
pub fn snapshots(roots: &[String], side: &Side) -> Vec<Snapshot> {
    let Some((first, others)) = roots.split_first() else { return Vec::new() };
    // A child without any was made later.
    let numbers = side.numbers();
    let lacks_all = others.iter().any(|root| !numbers.contains_key(root.as_str()));
    let is_common = |number: &u32| !lacks_all && numbers.values().all(|all| all.contains(number));
    let snapshot =
        |row: &Row| Some(Snapshot { number: row.number.filter(is_common)?, guid: row.guid });
    side.of(first).into_iter().filter_map(snapshot).collect()
}

/// Returns true if a dataset was received in part, or some have a sync snapshot that others lack. A dataset without
/// any was made later.
fn is_partial(roots: &[String], side: &Side) -> bool {
    let numbers = side.numbers();
    let newest: BTreeSet<Option<&u32>> = numbers.values().map(BTreeSet::last).collect();
    let lacks = roots.iter().any(|root| !numbers.contains_key(root.as_str()));
    !side.tokens.is_empty() || newest.len() > 1 || !newest.is_empty() && lacks
}

/// Returns what a VM uses.
pub async fn size(parts: &Parts, uuid: Uuid) -> Result<Size, Failed> {
    let vm = parts.node.existing(uuid).await?;
    let sent = sync::sent(parts, &vm).await?;
    let roots: Vec<String> = sent.into_iter().map(|it| it.dataset).collect();
    Ok(Size { bytes: used(parts, &roots).await? })
}

async fn used(parts: &Parts, datasets: &[String]) -> Result<u64, Failed> {
    let used = parts.zfs.each("used", datasets).await?;
    Ok(used.values().filter_map(|text| text.parse::<u64>().ok()).sum())
}

/// Returns the datasets of a VM.
pub async fn datasets(parts: &Parts, uuid: Uuid) -> Result<Datasets, Failed> {
    let vm = parts.node.existing(uuid).await?;
    let sent = sync::sent(parts, &vm).await?;
    let roots: Vec<String> = sent.into_iter().map(|it| it.dataset).collect();
    let listed = parts.list(uuid, &roots, &[]).await?;
    Ok(Datasets { side: listed.side, referenced: listed.referenced, failed: None })
}

/// Returns the node.
pub async fn node(parts: &Parts) -> Result<Node, Failed> {
    let answer = parts.node.vminfod().sysinfo().await.map_err(NodeError::from)?;
    let sysinfo = answer.get("sysinfo").unwrap_or(&answer);
    let text = |key: &str| sysinfo.get(key).and_then(Value::as_str).map(str::to_owned);
    // What guests see of the CPU: its name, and how it supports them.
    let cpu = text("CPU Type").map(|kind| match text("CPU Virtualization") {
        Some(virtualization) => format!("{kind}, {virtualization}"),
        None => kind,
    });
    let view = parts.node.vminfod().vms(false).await.map_err(NodeError::from)?;
    let can = parts.zfs.can().await?;
    let pool = parts.zfs.pool().to_owned();
    let cipher = match can.encryption {
        true => parts.zfs.each("encryption", std::slice::from_ref(&pool)).await?.remove(&pool),
        false => None,
    };
    let free = parts.zfs.each("available", std::slice::from_ref(&pool)).await?;
    Ok(Node {
        cn: parts.cn,
        version: PROTOCOL,
        cpu,
        platform: text("Live Image"),
        now_ms: daemon::wall::now().as_millisecond(),
        can_resume: can.resume,
        has_bookmarks: can.bookmarks,
        has_limits: Some(can.limits),
        pool: Some(pool.clone()),
        encrypted: Some(cipher.is_some_and(|cipher| cipher != "off" && cipher != "-")),
        free_bytes: free.get(&pool).and_then(|text| text.parse().ok()),
        mbps: parts.streams.rate.mbps(),
        vms: view.vms.iter().filter_map(|vm| vm.uuid()?.parse().ok()).collect(),
        vm_agent: parts.vm_agents.find(&*parts.commands).await,
    })
}

/// Returns the migrations that are open on the node.
pub async fn open(parts: &Parts) -> Vec<Open> {
    let open = parts.memory.open();
    // What is open is known without vminfod.
    let view = if open.is_empty() { None } else { parts.node.vminfod().vms(false).await.ok() };
    let runs = |uuid: Uuid| {
        let vms = &view.as_ref()?.vms;
        let is_it = |vm: &&VmObject| vm.uuid() == Some(uuid.to_string().as_str());
        Some(vms.iter().find(is_it).is_some_and(vm::is_running))
    };
    let open = open.into_iter().map(|(migration, entry)| {
        let Entry { vm, end, revision, nonce, power, other, instead, .. } = entry;
        Open { migration, vm, end, revision, nonce, power, other, instead, runs: runs(vm) }
    });
    open.collect()
}

/// Returns what migrations left on the node: hidden VMs, and what the state file has.
pub async fn copies(parts: &Parts) -> Result<Vec<Rest>, Failed> {
    let view = parts.node.vminfod().vms(false).await.map_err(NodeError::from)?;
    let hidden = view.vms.iter().filter(|vm| vm.is_hidden());
    let hidden = hidden.filter_map(|vm| Some((vm.uuid()?.parse().ok()?, None)));
    let mut found: BTreeMap<Uuid, Option<(Uuid, migration_core::intent::End)>> = hidden.collect();
    for (migration, entry) in parts.memory.open() {
        found.insert(entry.vm, Some((migration, entry.end)));
    }
    let mut rests = Vec::new();
    for (vm, known) in found {
        let root = format!("{}/{vm}", parts.zfs.pool());
        let bytes = used(parts, &[root]).await?;
        let (migration, end) = known.unzip();
        rests.push(Rest { vm, migration, end, bytes });
    }
    Ok(rests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use migration_core::sync_plan::{Notes, Token};

    fn side(text: &str) -> Side {
        let mut side = Side::default();
        for word in text.split_whitespace() {
            let (dataset, name) = word.split_once('@').unwrap_or((word, ""));
            if !side.datasets.iter().any(|it| it == dataset) {
                side.datasets.push(dataset.to_owned());
            }
            if !name.is_empty() {
                let guid = name.len() as u64;
                let (dataset, name) = (dataset.to_owned(), name.to_owned());
                side.snapshots.push(Row { dataset, name, guid, ..Row::default() });
            }
        }
        side.number("a", &Notes::default(), &BTreeSet::new());
        side
    }

    #[test]
    fn a_copy_is_partial_where_some_datasets_have_received_more_than_others() {
        for (roots, text, partial, numbers) in [
            (vec!["a"], "a", false, vec![]),
            (vec!["a"], "a@vm-migration-1 a/b@vm-migration-1", false, vec![1]),
            (vec!["a"], "a@vm-migration-1 a@vm-migration-2 a/b@vm-migration-1", true, vec![1]),
            (vec!["a"], "a@vm-migration-1 a/new", false, vec![1]),
            (vec!["a", "d"], "a@vm-migration-1 d", true, vec![]),
            (vec!["a", "d"], "a@vm-migration-1 a@u d@vm-migration-1", false, vec![1]),
            (vec!["a"], "a a/b@vm-migration-9", false, vec![]),
            (vec!["a"], "a@vm-migration-1 a/b@vm-migration-1 a/b@vm-migration-9", false, vec![1]),
            (vec!["a", "d"], "a d@vm-migration-9", false, vec![]),
        ] {
            let roots: Vec<String> = roots.into_iter().map(str::to_owned).collect();
            let side = side(text);
            assert_eq!(is_partial(&roots, &side), partial, "{text}");
            let found: Vec<u32> = snapshots(&roots, &side).iter().map(|it| it.number).collect();
            assert_eq!(found, numbers, "{text}");
        }
        let token = Token { dataset: "a".into(), text: "t".into(), guid: 0 };
        assert!(is_partial(&["a".into()], &Side { tokens: vec![token], ..side("a") }));
    }
}
