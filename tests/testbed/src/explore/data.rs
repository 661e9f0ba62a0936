// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Connections for data between the agents, which can be refused and cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use daemon::http::Secured;
use futures_util::future::BoxFuture;
use migration_agent::wire::{Connection, Incoming, Wire};
use migration_core::intent::End;
use sdc_clients::identity::Identity;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use trust::exchange::Known;
use trust::{Admits, Authority, Doors, Holder};
use uuid::Uuid;

use super::bugs::Bug;
use super::disk::{Damage, Disk};
use super::forger::Forger;
use super::names::{Calls, uuid};
use super::net::Net;
use super::points::{Fate, Life};

/// A lost connection is cut here.
const HALFWAY: usize = 20_000;

/// The connections for data of one life of an agent. Who is at their ends is known without a handshake.
pub struct Port {
    net: Arc<Net>,
    end: End,
    life: Life,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Calls>>,
}

fn name(end: End) -> String {
    format!("data-{end}")
}

impl Port {
    /// Listens for the agent of this node.
    pub fn new(net: &Arc<Net>, end: End, life: &Life) -> Port {
        let (send, incoming) = mpsc::channel(8);
        net.ports.lock().unwrap_or_else(PoisonError::into_inner).insert(name(end), send);
        Port { net: Arc::clone(net), end, life: life.clone(), incoming: incoming.into() }
    }
}

impl Wire for Port {
    fn address(&self) -> String {
        name(self.end)
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>> {
        Box::pin(async move {
            let accepted = self.incoming.lock().await.recv().await;
            self.life.pass().await;
            let (stream, peer) = accepted.ok_or_else(|| io::Error::other("closed"))?;
            let is_revoked = std::sync::Arc::new(|| false);
            let secured = Secured { stream, peer: Some(peer), shown: None, is_revoked };
            let incoming: Incoming = Box::pin(std::future::ready(Ok(secured)));
            Ok((incoming, Ipv4Addr::LOCALHOST.into()))
        })
    }

    fn dial<'a>(&'a self, address: &'a str, cn: Uuid) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let (at, fate) = self.life.begin(|| format!("connects to {address}")).await;
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let to = [End::Source, End::Target].into_iter().find(|end| address == name(*end));
            let is_cut = self.net.points.is_cut(self.life.party.end(), to);
            if fate != Fate::Goes || is_cut || to.map(uuid) != Some(cn) {
                return Err(refused());
            }
            let port =
                self.net.ports.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned();
            let (ours, near) = duplex(16 << 10);
            let (far, theirs) = duplex(16 << 10);
            let calls: Calls = (Box::new(theirs), Identity::Agent(uuid(self.end)));
            port.ok_or_else(refused)?.send(calls).await.map_err(|_| refused())?;
            let lost = self.life.end(at).await != Fate::Goes;
            let damage = lost.then_some(Damage::Cut(HALFWAY));
            let forges =
                [Some(Bug::ChangeIgnored), Some(Bug::NoTokenCheck)].contains(&self.net.bug);
            let forger = forges.then(|| Forger::new(self.net.bug, Arc::clone(&self.net.recorded)));
            tokio::spawn(carry(near, far, self.life.clone(), Trouble { damage, forger }));
            Ok(Box::new(ours) as Connection)
        })
    }
}

/// The connections for data of one life of an agent on real ZFS: TLS over TCP, through what its disk says of the
/// network.
pub struct Cable {
    listener: TcpListener,
    address: SocketAddr,
    doors: Doors,
    holder: Arc<Holder>,
    disk: Arc<Disk>,
    life: Life,
}

/// Who lets the agents in that speak over real sockets.
static AUTHORITY: OnceLock<Result<Authority, String>> = OnceLock::new();

fn holder(end: End) -> anyhow::Result<Arc<Holder>> {
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_secs())?;
    let made = || Authority::new(now).map_err(|error| error.to_string());
    let authority = AUTHORITY.get_or_init(made).as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let roots = vec![authority.certificate.clone()];
    let known = Known { roots, revoked: vec![authority.list(&[], now)?] };
    let holder = Holder::new(Admits::Known);
    holder.hold(authority.equip(Identity::Agent(uuid(end)), known, now)?)?;
    Ok(holder)
}

/// Returns how long the two agents take to know each other over a new connection.
pub async fn handshake() -> anyhow::Result<Duration> {
    let (near, far) = (holder(End::Source)?, holder(End::Target)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (dialing, doors) = (TcpStream::connect(listener.local_addr()?).await?, Doors::new(&far));
    let (accepted, from) = listener.accept().await?;
    for stream in [&dialing, &accepted] {
        stream.set_nodelay(true)?;
    }
    let began = Instant::now();
    let to = Identity::Agent(uuid(End::Target));
    let (opened, dialed) =
        tokio::join!(doors.open(accepted, from.ip()), trust::connect(&near, dialing, to));
    let took = began.elapsed();
    drop((opened?, dialed?));
    Ok(took)
}

impl Cable {
    /// Listens for the agent of this node and disk.
    pub async fn new(disk: &Arc<Disk>, end: End, life: &Life) -> anyhow::Result<Cable> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, holder) = (listener.local_addr()?, holder(end)?);
        let (doors, disk, life) = (Doors::new(&holder), Arc::clone(disk), life.clone());
        Ok(Cable { listener, address, doors, holder, disk, life })
    }
}

impl Wire for Cable {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>> {
        Box::pin(async move {
            let (stream, from) = self.listener.accept().await?;
            Ok((self.doors.open(stream, from.ip()), from.ip()))
        })
    }

    fn dial<'a>(&'a self, address: &'a str, cn: Uuid) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let damage = self.disk.damage();
            let far = TcpStream::connect(address).await?;
            if damage.is_none() {
                return trust::connect(&self.holder, far, Identity::Agent(cn)).await;
            }
            let (ours, near) = duplex(64 << 10);
            tokio::spawn(carry(near, far, self.life.clone(), Trouble { damage, forger: None }));
            trust::connect(&self.holder, ours, Identity::Agent(cn)).await
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
async fn carry<N, F>(near: N, far: F, life: Life, trouble: Trouble)
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
            life.pass().await;
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
        match forger.as_ref() {
            Some(forger) => {
                let mut receipt = Vec::new();
                let _ = answers.read_to_end(&mut receipt).await;
                if !receipt.is_empty() {
                    receipt = forger().receipt();
                }
                let _ = back.write_all(&receipt).await;
            }
            None => drop(tokio::io::copy(&mut answers, &mut back).await),
        }
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
        () = life.death() => {}
    }
}
