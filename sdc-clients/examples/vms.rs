// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The shortest look-up: the name, state and MACs of each VM.

use sdc_clients::vminfod::{VmFields as _, Vminfod};

#[tokio::main]
async fn main() -> Result<(), sdc_clients::Error> {
    let vminfod = Vminfod::new("http://127.0.0.1:9090", "my-agent/0.1")?;
    for vm in vminfod.vms(false).await?.vms {
        println!("{:?} is {:?}, NICs {:?}", vm.alias(), vm.state(), vm.macs());
    }
    Ok(())
}
