// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Elsewhere: a look every two seconds. No QEMU of Ganeti's runs there, and SmartOS's verdicts
//! come from vminfod; this serves the rest.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Places, Signal};

/// Follows until nobody listens.
pub async fn follow(_places: &Places, sender: &mpsc::Sender<Signal>) -> io::Result<()> {
    while sender.send(Signal::Everything).await.is_ok() {
        sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}
