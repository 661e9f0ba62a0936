// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is between the nodes: requests to agents and vminfods, and connections for data, which can be cut or changed
//! at any byte.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use daemon::http::{Body, Router};
use futures_util::future::BoxFuture;
use http::StatusCode;
use http::header::HeaderMap;
use migration_agent::wire::{Connection, Incoming, Wire};
use sdc_clients::Error;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::identity::Identity;
use sdc_clients::vminfod::SYNCED;
use serde_json::json;
use simnode::Node;
use simnode::in_process::InProcess;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex,
};
use tokio::sync::mpsc;
use trust::{Admits, Authority, Doors, Holder};
use uuid::Uuid;
use vminfod::node::root::Root;
use vminfod::node::{Ctx, load};

/// What happens to the next connection for data, counted in bytes of the sender.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Cut(usize),
    Flip(usize),
}

/// An authority, and what it lets in.
pub struct Signs(Authority, Mutex<HashMap<Identity, Arc<Holder>>>);

impl Default for Signs {
    fn default() -> Signs {
        Signs(Authority::new(now()).unwrap(), Mutex::default())
    }
}

fn now() -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

impl Signs {
    fn holder(&self, name: Identity) -> Arc<Holder> {
        let mut held = self.1.lock().unwrap();
        if let Some(holder) = held.get(&name) {
            return Arc::clone(holder);
        }
        let holder = Holder::new(Admits::Known);
        let known = trust::exchange::Known {
            roots: vec![self.0.certificate.clone()],
            revoked: vec![self.0.list(&[], now()).unwrap()],
        };
        holder.hold(self.0.equip(name, known, now()).unwrap()).unwrap();
        held.insert(name, Arc::clone(&holder));
        holder
    }
}

/// The network.
#[derive(Default)]
pub struct Net {
    /// Who signs the certificates of those who carry data over it.
    authority: Signs,
    agents: Mutex<HashMap<String, Router>>,
    /// Who is at a host.
    names: Mutex<HashMap<String, Identity>>,
    listeners: Mutex<HashMap<String, mpsc::Sender<Connection>>>,
    faults: Mutex<Vec<Fault>>,
    /// Bytes that senders have sent.
    pub carried: Mutex<usize>,
}

impl Net {
    /// The agent of this host answers from now on, or none.
    pub fn connect(&self, host: &str, name: Identity, agent: Option<Router>) {
        self.names.lock().unwrap().insert(host.to_owned(), name);
        let mut agents = self.agents.lock().unwrap();
        match agent {
            Some(agent) => drop(agents.insert(host.to_owned(), agent)),
            None => drop(agents.remove(host)),
        }
    }

    /// What this program has, of this network's authority.
    pub fn holder(&self, name: Identity) -> Arc<Holder> {
        self.authority.holder(name)
    }

    /// What a program has that another authority has let in under this name. It knows this network's too.
    pub fn stranger(&self, name: Identity) -> Arc<Holder> {
        let other = Authority::new(now()).unwrap();
        let both = [&other, &self.authority.0];
        let known = trust::exchange::Known {
            roots: both.map(|it| it.certificate.clone()).into(),
            revoked: both.map(|it| it.list(&[], now()).unwrap()).into(),
        };
        let holder = Holder::new(Admits::Known);
        holder.hold(other.equip(name, known, now()).unwrap()).unwrap();
        holder
    }

    /// The hosts of all nodes.
    pub fn hosts(&self) -> BTreeMap<Uuid, String> {
        let names = self.names.lock().unwrap();
        names.iter().filter_map(|(host, name)| Some((name.cn()?, host.clone()))).collect()
    }

    /// The next connection meets this.
    pub fn fails(&self, fault: Fault) {
        self.faults.lock().unwrap().push(fault);
    }

    /// Returns what the next connection meets.
    fn next_fault(&self) -> Option<Fault> {
        self.faults.lock().unwrap().pop()
    }
}

async fn answer(router: Router, request: Request, from: Option<Identity>) -> Response {
    let mut asked = http::Request::new(Body::from(request.body.clone().unwrap_or_default()));
    *asked.uri_mut() = request.target().parse().unwrap();
    *asked.method_mut() = request.method;
    *asked.headers_mut() = request.headers;
    asked.extensions_mut().insert(from);
    let (head, body) = daemon::http::call(router, asked).await.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    Response { status: head.status, headers: head.headers, body }
}

/// Requests to agents, of a peer that has proved to be this program.
pub struct ToAgents(pub Arc<Net>, pub Option<Identity>);

impl Transport for ToAgents {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        Box::pin(async move {
            let host = request.url.host_str().unwrap().to_owned();
            let router = self.0.agents.lock().unwrap().get(&host).cloned();
            let Some(router) = router else {
                return Err(Error::connect(&request.method, request.target(), "no agent listens"));
            };
            // The connection proves who is at its other end.
            if self.0.names.lock().unwrap().get(&host).copied() != request.peer {
                return Err(Error::connect(
                    &request.method,
                    request.target(),
                    "another one answers",
                ));
            }
            Ok(answer(router, request, self.1).await)
        })
    }
}

/// The vminfod of a node, as far as its objects go: each answer is a fresh reading.
pub struct ToVminfod(pub Node);

impl Transport for ToVminfod {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        let name = request.target().trim_start_matches("/vms/").replace("?sync=true", "");
        Box::pin(async move {
            let commands = Arc::new(InProcess::new(&self.0));
            let ctx = Ctx::new(Root::new(self.0.root()), commands);
            let found = load::object(&ctx, &name).await;
            let (status, body) = match found {
                Ok(Some(vm)) => (StatusCode::OK, json!(vm)),
                Ok(None) => {
                    let message = format!("VM Not Found: {name}");
                    (StatusCode::NOT_FOUND, json!({"code": "ResourceNotFound", "message": message}))
                }
                Err(error) => {
                    let message = error.to_string();
                    (
                        StatusCode::SERVICE_UNAVAILABLE,
                        json!({"code": "Unavailable", "message": message}),
                    )
                }
            };
            let synced =
                (http::HeaderName::from_static(SYNCED), http::HeaderValue::from_static("true"));
            Ok(Response {
                status,
                headers: HeaderMap::from_iter([synced]),
                body: body.to_string().into(),
            })
        })
    }
}

/// Connections for data of one host.
pub struct Port {
    net: Arc<Net>,
    host: String,
    incoming: tokio::sync::Mutex<mpsc::Receiver<Connection>>,
    doors: Doors,
    holder: Arc<Holder>,
}

impl Port {
    /// Listens at this host, with a certificate of this program.
    pub fn new(net: &Arc<Net>, host: &str, name: Identity) -> Port {
        let (send, incoming) = mpsc::channel(8);
        net.listeners.lock().unwrap().insert(host.to_owned(), send);
        let holder = net.authority.holder(name);
        let (net, doors) = (Arc::clone(net), Doors::new(&holder));
        Port { net, host: host.to_owned(), incoming: incoming.into(), doors, holder }
    }
}

impl Wire for Port {
    fn address(&self) -> String {
        self.host.clone()
    }

    fn accept(&self) -> BoxFuture<'_, io::Result<(Incoming, IpAddr)>> {
        Box::pin(async move {
            let gone = || io::Error::other("closed");
            let accepted = self.incoming.lock().await.recv().await.ok_or_else(gone)?;
            let from = Ipv4Addr::LOCALHOST.into();
            Ok((self.doors.open(accepted, from), from))
        })
    }

    fn dial<'a>(&'a self, address: &'a str, cn: Uuid) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let ours = knock(&self.net, address).await?;
            trust::connect(&self.holder, ours, Identity::Agent(cn)).await
        })
    }
}

/// Makes a connection, and proves nothing.
pub async fn knock(net: &Arc<Net>, address: &str) -> io::Result<DuplexStream> {
    let listener = net.listeners.lock().unwrap().get(address).cloned();
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let (ours, near) = duplex(16 << 10);
    let (far, theirs) = duplex(16 << 10);
    listener.ok_or_else(refused)?.send(Box::new(theirs)).await.map_err(|_| refused())?;
    let fault = net.next_fault();
    tokio::spawn(carry(Arc::clone(net), near, far, fault));
    Ok(ours)
}

/// Carries both directions of a connection; the sender's meets the fault.
async fn carry<N, F>(net: Arc<Net>, near: N, far: F, fault: Option<Fault>)
where
    N: AsyncRead + AsyncWrite,
    F: AsyncRead + AsyncWrite,
{
    let ((mut from, mut back), (mut answers, mut to)) =
        (tokio::io::split(near), tokio::io::split(far));
    let there = async {
        let (mut bytes, mut seen) = (vec![0; 4096], 0);
        while let Ok(len @ 1..) = from.read(&mut bytes).await {
            let piece = &mut bytes[..len];
            match fault {
                Some(Fault::Cut(at)) if at < seen + len => {
                    let _ = to.write_all(&piece[..at - seen]).await;
                    return true;
                }
                Some(Fault::Flip(at)) if (seen..seen + len).contains(&at) => piece[at - seen] ^= 1,
                _ => {}
            }
            seen += piece.len();
            *net.carried.lock().unwrap() += piece.len();
            if to.write_all(piece).await.is_err() {
                return true;
            }
        }
        let _ = to.shutdown().await;
        false
    };
    let answer = async {
        let _ = tokio::io::copy(&mut answers, &mut back).await;
        let _ = back.shutdown().await;
    };
    tokio::pin!(there, answer);
    tokio::select! {
        is_cut = &mut there => {
            if !is_cut {
                answer.await;
            }
        }
        () = &mut answer => {}
    }
}
