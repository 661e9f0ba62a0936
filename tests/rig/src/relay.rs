// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A network between two programs that fails: a port that passes on to a server what comes, stops to, or loses it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What becomes of what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It arrives.
    Open,
    /// It waits, in both directions, and neither side is told: a partition. What waits arrives when the way is open
    /// again.
    Parted,
    /// What the server sends is lost.
    Lossy,
}

/// What the server sends.
#[derive(Debug)]
struct Answers {
    /// How many bytes were lost.
    lost: AtomicUsize,
    /// How many pass before the way is parted.
    left: AtomicUsize,
    way: watch::Sender<Way>,
}

/// A listening relay; it ends when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    way: watch::Sender<Way>,
    cuts: watch::Sender<u64>,
    answers: Arc<Answers>,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Relay {
    /// Starts one before a server, which need not listen yet. Within a runtime.
    pub fn start(server: SocketAddr) -> io::Result<Relay> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let (way, cuts) = (watch::Sender::new(Way::Open), watch::Sender::new(0));
        let (lost, left) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let answers = Arc::new(Answers { lost, left, way: way.clone() });
        let (ways, cut, count) = (way.subscribe(), cuts.clone(), Arc::clone(&answers));
        let connections = Arc::new(AtomicUsize::new(0));
        let (mut task, made) = (JoinSet::new(), Arc::clone(&connections));
        task.spawn(async move {
            let mut pairs = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                made.fetch_add(1, Ordering::Relaxed);
                pairs.spawn(pair(
                    client,
                    server,
                    ways.clone(),
                    cut.subscribe(),
                    Arc::clone(&count),
                ));
            }
        });
        Ok(Relay { address, way, cuts, answers, connections, _task: task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what becomes of what is sent from now on.
    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    /// Parts the way when the server has sent so many bytes more.
    pub fn part_after(&self, bytes: usize) {
        self.answers.left.store(bytes, Ordering::Relaxed);
    }

    /// Returns true if nothing passes.
    pub fn is_parted(&self) -> bool {
        *self.way.borrow() == Way::Parted
    }

    /// Ends every connection.
    pub fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many bytes were lost.
    pub fn lost(&self) -> usize {
        self.answers.lost.load(Ordering::Relaxed)
    }
}

impl Answers {
    fn sent(&self, bytes: usize) {
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return;
        }
        let now = left.saturating_sub(bytes);
        self.left.store(if now == 0 { usize::MAX } else { now }, Ordering::Relaxed);
        if now == 0 {
            self.way.send_replace(Way::Parted);
        }
    }
}

async fn pair(
    client: TcpStream,
    server: SocketAddr,
    mut way: watch::Receiver<Way>,
    mut cut: watch::Receiver<u64>,
    answers: Arc<Answers>,
) {
    let passed = async {
        drop(way.wait_for(|way| *way != Way::Parted).await);
        // A server that is down refuses, and so does this.
        let Ok(server) = TcpStream::connect(server).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = pass(from_client, to_server, way.clone(), None) => {}
            () = pass(from_server, to_client, way.clone(), Some(answers)) => {}
        }
    };
    tokio::select! {
        () = passed => {}
        _ = cut.changed() => {}
    }
}

/// Passes on in one direction until it ends.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: watch::Receiver<Way>,
    answers: Option<Arc<Answers>>,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let Ok(len @ 1..) = from.read(&mut bytes).await else { return };
        if let Some(answers) = &answers {
            answers.sent(len);
        }
        let Ok(now) = way.wait_for(|way| *way != Way::Parted).await.map(|way| *way) else { return };
        match &answers {
            Some(answers) if now == Way::Lossy => {
                answers.lost.fetch_add(len, Ordering::Relaxed);
            }
            _ if to.write_all(&bytes[..len]).await.is_err() => return,
            _ => {}
        }
    }
}
