// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A look-up: prints each NIC of the node's VMs whose state NAPI has otherwise. `docs/agents.md`
//! walks through it.
//!
//! `nic-states VMINFOD NAPI`; both are URLs.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use daemon::exit;
use sdc_clients::http::user_agent;
use sdc_clients::napi::Napi;
use sdc_clients::vminfod::{VmFields as _, VmObject, Vminfod};
use sdc_clients::{Error, Http};

const NAME: &str = "nic-states";

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (vminfod, napi) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    match run(&vminfod, &napi).await {
        Ok(differing) => {
            differing.iter().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => exit::report(NAME, &error, exit::FAILED),
    }
}

async fn run(vminfod: &str, napi: &str) -> Result<Vec<String>, Error> {
    let agent = user_agent(NAME, env!("CARGO_PKG_VERSION"), None);
    let view = Vminfod::new(vminfod, &agent)?.vms(false).await?;
    differing(&view.vms, &Napi::new(Http::new(napi, &agent)?)).await
}

/// Returns a line for each NIC whose state is not its VM's.
async fn differing(vms: &[VmObject], napi: &Napi) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for vm in vms.iter().filter(|vm| !vm.is_hidden()) {
        let state = vm.state().unwrap_or("unknown");
        for mac in vm.macs() {
            let known = match napi.get_nic(mac).await {
                Ok(nic) => nic.value.state.to_string(),
                Err(error) if error.is_not_found_resource() => "missing".to_owned(),
                Err(error) => return Err(error),
            };
            if known != state {
                lines.push(format!("{mac} is {known}, its VM is {state}"));
            }
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use mocks::faults::{Action, Rule};
    use mocks::napi::{NewNic, Options, Server};
    use serde_json::json;

    use super::*;

    const VM: &str = "40000000-0000-4000-8000-000000000001";
    const CN: &str = "c0000000-0000-4000-8000-000000000001";

    #[tokio::test]
    async fn a_nic_in_another_state_is_named() {
        let mock = Server::start("127.0.0.1:0".parse().unwrap(), Options::default()).await.unwrap();
        let nic = NewNic::zone("90:b8:d0:00:00:01", VM, CN).with("state", json!("provisioning"));
        mock.store().add_nic(nic).unwrap();
        let vm = json!({"uuid": VM, "state": "running", "nics": [{"mac": "90:b8:d0:00:00:01"}]});
        let vms = [vm.as_object().unwrap().clone()];

        let napi = Napi::new(Http::new(&mock.url(), "test/1").unwrap().without_retries());
        let found = differing(&vms, &napi).await.unwrap();
        assert_eq!(found, ["90:b8:d0:00:00:01 is provisioning, its VM is running"]);

        // A NAPI that fails is not one without the NIC.
        mock.add_fault(Rule::any(Action::Cut));
        assert!(differing(&vms, &napi).await.is_err());
    }
}
