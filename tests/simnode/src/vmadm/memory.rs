// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The memory limits of a VM, which vmadm derives from one another where a payload names only some.

use serde_json::{Value, json};

use super::forms::NO_NUMBER;
use super::kinds::whole;
use super::refusal::Refusal;
use crate::payload::{self, Payload};

/// The least swap that a zone can have, in MiB.
const LEAST_SWAP: f64 = 256.0;
/// What a hypervisor needs at least besides the guest's memory, in MiB.
const LEAST_OVERHEAD: f64 = 256.0;

/// The limits that a VM has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Memory of the guest.
    pub ram: Option<u64>,
    /// `max_physical_memory`
    pub physical: Option<u64>,
    /// `max_locked_memory`
    pub locked: Option<u64>,
    /// `max_swap`
    pub swap: Option<u64>,
    /// Size of `/tmp`.
    pub tmpfs: Option<u64>,
}

/// What QEMU or bhyve has besides the guest's memory, in MiB.
fn overhead(brand: &str) -> f64 {
    match brand {
        "kvm" => 1024.0,
        "bhyve" => 1280.0,
        _ => 0.0,
    }
}

fn number(vm: &Payload, name: &str) -> Option<f64> {
    vm.get(name).and_then(Value::as_f64)
}

/// What is no number stays none.
fn value(number: Option<f64>) -> Value {
    match number {
        Some(number) => whole(Some(number)).map_or_else(|| json!(number), |whole| json!(whole)),
        None => json!(NO_NUMBER),
    }
}

fn put(vm: &mut Payload, name: &str, number: Option<f64>) {
    vm.insert(name.to_string(), value(number));
}

/// Fills in the limits of a new VM.
pub(crate) fn complete(vm: &mut Payload, brand: &str) -> Result<(), Refusal> {
    vm.entry("ram").or_insert(json!(256));
    if !vm.contains_key("max_physical_memory") {
        let ram = number(vm, "ram");
        put(vm, "max_physical_memory", ram.map(|ram| ram + overhead(brand)));
    }
    if vm["max_physical_memory"].is_null() {
        return Err(Refusal::Dies("max_physical_memory is unset"));
    }
    let physical = number(vm, "max_physical_memory");
    let swap = physical.map(|mib| mib.max(LEAST_SWAP));
    for (name, limit) in [
        ("max_locked_memory", physical),
        ("max_swap", swap),
        ("tmpfs", physical),
        ("max_shm_memory", physical),
    ] {
        if !vm.contains_key(name) && (name != "tmpfs" || !payload::is_hvm(brand)) {
            put(vm, name, limit);
        }
    }
    fit(vm, brand, &Limits::default())
}

/// Adds the limits that move with a new `max_physical_memory`.
pub(crate) fn follow(changes: &mut Payload, brand: &str, now: &Limits) -> Result<(), Refusal> {
    if changes.contains_key("ram") && !changes.contains_key("max_physical_memory") {
        let ram = number(changes, "ram");
        match ram.map(|ram| ram + overhead(brand)) {
            None if !payload::is_hvm(brand) => {
                drop(changes.insert("max_physical_memory".to_string(), Value::Null))
            }
            physical => put(changes, "max_physical_memory", physical),
        }
    }
    for name in ["max_locked_memory", "max_swap"] {
        if changes.get(name).is_some_and(Value::is_null) {
            return Err(Refusal::Dies("a limit is unset"));
        }
    }
    if changes.contains_key("max_physical_memory")
        && let Some(old) = now.physical.map(float)
    {
        let new = number(changes, "max_physical_memory");
        for (name, limit, least) in
            [("max_locked_memory", now.locked, 0.0), ("max_swap", now.swap, LEAST_SWAP)]
        {
            if let Some(limit) = limit.map(float).filter(|_| !changes.contains_key(name)) {
                put(changes, name, new.map(|new| (limit + new - old).max(least)));
            }
        }
        if let Some(tmpfs) = now
            .tmpfs
            .map(float)
            .filter(|_| !changes.contains_key("tmpfs") && !payload::is_hvm(brand))
        {
            let scaled = new
                .map_or_else(|| NO_NUMBER.to_string(), |new| format!("{:.0}", tmpfs / old * new));
            changes.insert("tmpfs".to_string(), json!(scaled));
        }
    }
    fit(changes, brand, now)
}

#[allow(clippy::cast_precision_loss)] // sizes in MiB
fn float(mib: u64) -> f64 {
    mib as f64
}

/// Raises and lowers what cannot be beside the others.
fn fit(vm: &mut Payload, brand: &str, now: &Limits) -> Result<(), Refusal> {
    let of = |vm: &Payload, name: &str, now: Option<u64>| match vm.get(name) {
        None => now.map(float),
        Some(value) => value.as_f64(),
    };
    if payload::is_hvm(brand)
        && let Some(ram) = of(vm, "ram", now.ram)
    {
        for name in ["max_physical_memory", "max_locked_memory"] {
            if number(vm, name).is_some_and(|limit| limit < ram + LEAST_OVERHEAD) {
                put(vm, name, Some(ram + LEAST_OVERHEAD));
            }
        }
    }
    let Some(physical) = of(vm, "max_physical_memory", now.physical) else { return Ok(()) };
    for name in ["max_locked_memory", "tmpfs"] {
        if number(vm, name).is_some_and(|limit| limit > physical) {
            put(vm, name, Some(physical));
        }
    }
    if number(vm, "max_swap").is_some_and(|limit| limit < physical) {
        put(vm, "max_swap", Some(physical));
    }
    // Without a limit that is below it, the least swap is the least.
    if number(vm, "max_swap").is_some_and(|limit| limit < LEAST_SWAP) && physical >= 0.0 {
        put(vm, "max_swap", Some(LEAST_SWAP));
    }
    Ok(())
}
