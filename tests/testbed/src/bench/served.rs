// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A vminfod process on a measured node.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::Instant;

use super::client::Client;
use super::cn::Cn;
use crate::client::tools::fetch;
use crate::held::memory;
use crate::process::Child;

const START_LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Served {
    child: Child,
    pub address: SocketAddr,
    /// From its start to the moment at which it serves.
    pub ready_after: Duration,
    pid: u32,
}

/// CPU time that a process has used, threads that have ended included.
pub(super) fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?))?;
    Ok(clock.now()?.into())
}

impl Served {
    /// Starts vminfod on the node and waits until it serves.
    pub(super) async fn start(cn: &mut Cn, more: Value) -> anyhow::Result<Served> {
        let config = cn.config(more)?;
        cn.arm()?;
        let (program, own) = match &cn.vminfod {
            Some(program) => (program.clone(), None),
            None => (std::env::current_exe()?, Some("@vminfod")),
        };
        let args = ["serve", "--config", &config.to_string_lossy()].map(str::to_owned);
        let args: Vec<String> = own.map(str::to_owned).into_iter().chain(args).collect();
        let began = Instant::now();
        let mut child = Child::spawn("vminfod", &program, &args)?;
        let ready = tokio::time::timeout(START_LIMIT, child.said("listening"));
        let ready = ready.await.context("vminfod did not get ready")??;
        let ready_after = began.elapsed();
        let address = ready["address"].as_str().context("no address")?.parse()?;
        let pid = child.id().context("vminfod has ended")?;
        child.ignore();
        Ok(Served { child, address, ready_after, pid })
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.child.stop(Duration::from_secs(10)).await?;
        Ok(())
    }

    /// Bytes of memory that it has now (`VmRSS`), that are pages of files (`RssFile`), or that it
    /// had at most (`VmHWM`).
    pub(super) fn memory(&self, name: &str) -> anyhow::Result<f64> {
        Ok(memory(self.pid, name)? as f64)
    }

    /// CPU time that it has used, threads that have ended included.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.pid)
    }

    /// A connection to it.
    pub(super) fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(self.address)
    }

    /// One answer, parsed.
    pub(super) async fn json(&self, path: &str) -> anyhow::Result<Value> {
        Ok(fetch(&format!("http://{}", self.address), path).await?)
    }

    /// Waits until it says of itself what is wanted.
    pub(super) async fn until(&self, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while !wanted(&self.json("/status").await?) {
            if Instant::now() > end {
                bail!("what was waited for did not come: {}", self.json("/status").await?);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until it does nothing: no CPU time for a while.
    pub(super) async fn quiet(&self) -> anyhow::Result<()> {
        let mut before = self.cpu()?;
        let (mut calm, end) = (0, Instant::now() + Duration::from_secs(60));
        while calm < 4 {
            if Instant::now() > end {
                bail!("vminfod does not come to rest");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.cpu()?;
            calm = if now.saturating_sub(before) < Duration::from_millis(1) { calm + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }
}
