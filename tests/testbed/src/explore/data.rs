// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections for data between the agents, which can be refused and cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use migration_agent::wire::{Connection, Tcp, Wire};
use migration_core::journal::End;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex};
use tokio::sync::mpsc;

use super::bugs::Bug;
use super::disk::{Damage, Disk};
use super::forger::Forger;
use super::net::Net;
use super::points::{Fate, Seat};

/// A lost connection is cut here.
const HALFWAY: usize = 20_000;

/// The connections for data of one life of an agent.
pub struct Port {
    net: Arc<Net>,
    name: String,
    seat: Seat,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Connection>>,
}

impl Port {
    /// Listens for the agent of this node.
    pub fn new(net: &Arc<Net>, end: End, seat: &Seat) -> Port {
        let (send, incoming) = mpsc::channel(8);
        let name = format!("data-{end}");
        net.ports.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), send);
        Port { net: Arc::clone(net), name, seat: seat.clone(), incoming: incoming.into() }
    }
}

impl Wire for Port {
    fn address(&self) -> String {
        self.name.clone()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Connection, IpAddr)>> {
        Box::pin(async move {
            let accepted = self.incoming.lock().await.recv().await;
            self.seat.pass().await;
            let accepted = accepted.ok_or_else(|| io::Error::other("closed"))?;
            Ok((accepted, Ipv4Addr::LOCALHOST.into()))
        })
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let (at, fate) = self.seat.begin(|| format!("connects to {address}")).await;
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let to = [End::Source, End::Target]
                .into_iter()
                .find(|end| address.contains(&end.to_string()));
            let is_cut = self.net.points.is_cut(self.seat.party.end(), to);
            if fate != Fate::Goes || is_cut {
                return Err(refused());
            }
            let port =
                self.net.ports.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned();
            let (ours, near) = duplex(16 << 10);
            let (far, theirs) = duplex(16 << 10);
            port.ok_or_else(refused)?.send(Box::new(theirs)).await.map_err(|_| refused())?;
            let lost = self.seat.end(at).await != Fate::Goes;
            let damage = lost.then_some(Damage::Cut(HALFWAY));
            let forges = [Some(Bug::MacIgnored), Some(Bug::NoTokenCheck)].contains(&self.net.bug);
            let forger = forges.then(|| Forger::new(self.net.bug, Arc::clone(&self.net.recorded)));
            tokio::spawn(carry(near, far, self.seat.clone(), Trouble { damage, forger }));
            Ok(Box::new(ours) as Connection)
        })
    }
}

/// The connections for data of one life of an agent on real ZFS: TCP, through what its disk says of the network.
pub struct Cable {
    tcp: Tcp,
    disk: Arc<Disk>,
    seat: Seat,
}

impl Cable {
    /// Listens for the agent of this disk.
    pub async fn new(disk: &Arc<Disk>, seat: &Seat) -> io::Result<Cable> {
        let tcp = Tcp::bind((Ipv4Addr::LOCALHOST, 0).into()).await?;
        Ok(Cable { tcp, disk: Arc::clone(disk), seat: seat.clone() })
    }
}

impl Wire for Cable {
    fn address(&self) -> String {
        self.tcp.address()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Connection, IpAddr)>> {
        self.tcp.accept()
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let damage = self.disk.damage();
            let far = self.tcp.dial(address).await?;
            if damage.is_none() {
                return Ok(far);
            }
            let (ours, near) = duplex(64 << 10);
            tokio::spawn(carry(near, far, self.seat.clone(), Trouble { damage, forger: None }));
            Ok(Box::new(ours) as Connection)
        })
    }
}

/// What happens to a connection for data.
struct Trouble {
    /// What the sender's direction meets.
    damage: Option<Damage>,
    /// A deliberate bug: what it carries is changed on its way.
    forger: Option<Forger>,
}

/// Carries both directions of a connection, while the one who dialled is not stopped.
async fn carry<N, F>(near: N, far: F, seat: Seat, trouble: Trouble)
where
    N: AsyncRead + AsyncWrite,
    F: AsyncRead + AsyncWrite,
{
    let Trouble { damage, forger } = trouble;
    let forger = forger.map(Mutex::new);
    let forger =
        forger.as_ref().map(|forger| || forger.lock().unwrap_or_else(PoisonError::into_inner));
    let ((mut from, mut back), (mut answers, mut to)) =
        (tokio::io::split(near), tokio::io::split(far));
    let there = async {
        let (mut bytes, mut seen) = (vec![0; 4096], 0);
        while let Ok(len @ 1..) = from.read(&mut bytes).await {
            seat.pass().await;
            let piece = bytes.get_mut(..len).unwrap_or_default();
            match damage {
                Some(Damage::Cut(at)) if at < seen + len => {
                    let _ = to.write_all(piece.get(..at - seen).unwrap_or_default()).await;
                    return true;
                }
                Some(Damage::Flip(at)) => {
                    if let Some(byte) = at.checked_sub(seen).and_then(|at| piece.get_mut(at)) {
                        *byte ^= 1;
                    }
                }
                _ => {}
            }
            seen += len;
            let forged = forger.as_ref().map(|forger| forger().pass(piece).unwrap_or_default());
            if to.write_all(forged.as_deref().unwrap_or(piece)).await.is_err() {
                return true;
            }
        }
        // The other end may be gone.
        let _ = to.shutdown().await;
        false
    };
    let answer = async {
        let mut receipt = Vec::new();
        let _ = answers.read_to_end(&mut receipt).await;
        if let Some(forger) = forger.as_ref().filter(|_| !receipt.is_empty()) {
            receipt = forger().receipt();
        }
        let _ = back.write_all(&receipt).await;
        let _ = back.shutdown().await;
    };
    tokio::pin!(there, answer);
    let both = async {
        tokio::select! {
            is_cut = &mut there => {
                if !is_cut {
                    answer.await;
                }
            }
            () = &mut answer => {}
        }
    };
    tokio::select! {
        () = both => {}
        () = seat.death() => {}
    }
}
