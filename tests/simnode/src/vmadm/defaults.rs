// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What create adds where a payload says nothing.

use serde_json::{Value, json};

use super::memory;
use super::refusal::Refusal;
use crate::payload::{self, Payload};

const NOBODY: &str = "00000000-0000-0000-0000-000000000000";
/// The largest share of the processors.
const MOST_SHARES: u64 = 65_535;
/// The consoles of a bhyve guest.
const CONSOLES: [(&str, &str); 2] = [("com1", "/dev/zconsole"), ("com2", "socket,/tmp/vm.ttyb")];

/// The privileges of a zone.
fn privileges(brand: &str) -> Value {
    match payload::is_hvm(brand) {
        true => json!([
            "default",
            "-file_link_any",
            "-net_access",
            "-proc_fork",
            "-proc_info",
            "-proc_session"
        ]),
        false => json!(["default"]),
    }
}

/// Adds the defaults of a new VM.
pub(crate) fn complete(vm: &mut Payload, brand: &str) -> Result<(), Refusal> {
    let hvm = payload::is_hvm(brand);
    let put = |vm: &mut Payload, name: &str, value: Value| {
        vm.entry(name).or_insert(value);
    };
    put(vm, "owner_uuid", json!(NOBODY));
    put(vm, "autoboot", json!(true));
    put(vm, "zpool", json!("zones"));
    if !hvm {
        put(vm, "dns_domain", json!("local"));
    }
    put(vm, "cpu_shares", json!(100));
    least_shares(vm);
    put(vm, "zfs_io_priority", json!(100));
    put(vm, "max_lwps", json!(2000));
    memory::complete(vm, brand)?;
    for name in ["max_msg_ids", "max_sem_ids", "max_shm_ids"] {
        put(vm, name, json!(4096));
    }
    put(vm, "limit_priv", privileges(brand));
    put(vm, "quota", json!(if brand == "bhyve" { 1 } else { 10 }));
    put(vm, "billing_id", json!(NOBODY));
    if hvm {
        put(vm, "vcpus", json!(1));
    }
    Ok(())
}

/// Lowers what is above the largest share.
pub(crate) fn least_shares(vm: &mut Payload) {
    if let Some(shares) =
        vm.get_mut("cpu_shares").filter(|n| n.as_u64().is_some_and(|n| n > MOST_SHARES))
    {
        *shares = json!(MOST_SHARES);
    }
}

/// The consoles and the log of a bhyve VM: of a new one, and of one with each change that names neither console.
pub(crate) fn consoles(vm: &mut Payload) {
    if !CONSOLES.iter().any(|(name, _)| vm.contains_key(*name)) {
        for (name, path) in CONSOLES {
            vm.insert(name.to_string(), json!(path));
        }
    }
    vm.insert("zlog_mode".to_string(), json!("g--"));
    vm.insert("zlog_name".to_string(), json!("platform.log"));
}
