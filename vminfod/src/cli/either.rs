// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Objects from the daemon if it runs, else from the node itself (RFD 39's disableability). The
//! service manager decides whether the daemon is off or starting.

use std::path::Path;
use std::time::Duration;

use daemon::cli::Progress;
use tokio::time::Instant;

use super::client_config::ClientConfig;
use super::smf::{self, Service};
use super::supply::{FromDaemon, Supplied, Supplier, SupplyError};
use crate::node::Ctx;

/// How long to wait for a daemon that is starting.
pub const WAIT: Duration = Duration::from_secs(60);
/// Where the service manager's program is.
const SVCS: &str = "/usr/bin/svcs";
/// Pause between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// The daemon, or the node if it is off.
pub struct Either {
    pub daemon: FromDaemon,
    /// Reads the node.
    pub ctx: Ctx,
    /// The service manager's program.
    pub svcs: &'static str,
    /// Do not ask the daemon.
    pub direct: bool,
    /// How long to wait for a daemon that refuses connections. If set, also where there is no service
    /// manager.
    pub wait: Option<Duration>,
}

impl Either {
    /// The daemon and the node of these config; `program` is the user agent.
    pub fn of(config: &ClientConfig, program: &str) -> Result<Either, SupplyError> {
        Ok(Either {
            daemon: FromDaemon::new(&config.url, program)?,
            ctx: config.ctx(),
            svcs: SVCS,
            direct: false,
            wait: None,
        })
    }

    /// Waits for a daemon that refuses connections; returns false if it is off, or no wait is asked for.
    async fn comes(&self) -> Result<bool, SupplyError> {
        let limit = match (smf::service(Path::new(self.svcs)).await, self.wait) {
            (Service::Off, _) | (Service::Unmanaged, None) => return Ok(false),
            (Service::Unmanaged, Some(wait)) => wait,
            (Service::Starting, wait) => wait.unwrap_or(WAIT),
        };
        let _shown = Progress::begin("waiting for vminfod to start");
        let end = Instant::now() + limit;
        loop {
            match self.daemon.get(sdc_clients::http::Call::get(&["ping"])).await {
                Ok(_) => return Ok(true),
                Err(SupplyError::Refused(_)) if Instant::now() < end => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(SupplyError::Refused(_)) => return Err(SupplyError::NotUp(limit)),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Adds to the error that the daemon is not running either.
fn neither(error: SupplyError) -> SupplyError {
    SupplyError::Request(format!(
        "vminfod is not running, and the node cannot be read without it: {error}"
    ))
}

impl Supplier for Either {
    fn objects<'a>(&'a self, only: Option<&'a str>) -> Supplied<'a> {
        Box::pin(async move {
            if !self.direct {
                let _shown = Progress::begin("asking vminfod");
                match self.daemon.objects(only).await {
                    Err(SupplyError::Refused(_)) => {}
                    answered => return answered,
                }
                if self.comes().await? {
                    return self.daemon.objects(only).await;
                }
            }
            let _shown = Progress::begin("vminfod is off: reading the node");
            let read = self.ctx.objects(only).await;
            read.map_err(|error| if self.direct { error } else { neither(error) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::root::Root;
    use daemon::command::{Paths, Program, Spawned};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What svcs exits with or prints if the daemon is off, if it is coming, and if there is no svcs.
    const OFF: &str = "/bin/false";
    const STARTING: &str = "/bin/echo";
    const UNMANAGED: &str = "/nowhere/svcs";

    /// A supplier with the daemon at this address, where the node cannot be read.
    fn either(address: &str, svcs: &'static str, wait: Option<Duration>) -> Either {
        let commands = Paths::default().with(Program::Zoneadm, "/nowhere/zoneadm");
        Either {
            daemon: FromDaemon::new(&format!("http://{address}"), "test").unwrap(),
            ctx: Ctx::new(Root::new("/nowhere"), Arc::new(Spawned::new(commands))),
            svcs,
            direct: false,
            wait,
        }
    }

    #[tokio::test]
    async fn a_daemon_that_is_off_is_not_waited_for() {
        let port = rig::port::Port::local().unwrap();
        let address = port.address().to_string();
        for (svcs, wait) in [(OFF, Some(Duration::from_secs(60))), (OFF, None), (UNMANAGED, None)] {
            let error = either(&address, svcs, wait).objects(None).await.unwrap_err().to_string();
            assert!(
                error.contains("vminfod is not running, and the node cannot be read"),
                "{error}"
            );
            assert!(error.contains("/nowhere/"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_daemon_that_is_late_is_waited_for() {
        let port = rig::port::Port::local().unwrap();
        let address = port.address().to_string();
        let wait = Some(Duration::from_millis(300));
        for svcs in [STARTING, UNMANAGED] {
            let error = either(&address, svcs, wait).objects(None).await.unwrap_err();
            assert!(matches!(error, SupplyError::NotUp(_)), "{error}");
        }
        let late = either(&address, STARTING, Some(Duration::from_secs(30)));
        let server = async {
            let listener = TcpListener::bind(&address).await.unwrap();
            for body in ["{\"ping\":\"pong\"}", "[{\"uuid\":\"a\"}]"] {
                let (mut peer, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                assert!(peer.read(&mut request).await.unwrap() > 0);
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
                let answer = format!("{head}: {}\r\n\r\n{body}", body.len());
                peer.write_all(answer.as_bytes()).await.unwrap();
            }
        };
        let (vms, ()) = tokio::join!(late.objects(None), server);
        assert_eq!(vms.unwrap()[0]["uuid"], "a");
    }
}
