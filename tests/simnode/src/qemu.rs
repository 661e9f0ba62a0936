// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A QEMU that only has monitors: real sockets, one client at a time, the protocol's order of
//! words. What it says is the test's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

/// What QEMU greets with.
pub const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}"#;
/// What ends the negotiation.
pub const RETURN: &str = r#"{"return": {}}"#;
/// The guest powers off.
pub const OFF: &str = r#"{"timestamp": {"seconds": 1795227749, "microseconds": 103582}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}"#;
/// After TERM.
pub const TERM: &str =
    r#"{"event": "SHUTDOWN", "data": {"guest": false, "reason": "host-signal"}}"#;
/// After `quit`.
pub const QUIT: &str =
    r#"{"event": "SHUTDOWN", "data": {"guest": false, "reason": "host-qmp-quit"}}"#;
/// After `system_powerdown`.
pub const POWERDOWN: &str = r#"{"event": "POWERDOWN"}"#;
/// The processors stand still.
pub const STOP: &str = r#"{"event": "STOP"}"#;

enum Order {
    Bytes(Vec<u8>, oneshot::Sender<()>),
    Leave(oneshot::Sender<()>),
}

/// The fake.
pub struct Qemu {
    /// Its socket.
    pub path: PathBuf,
    orders: mpsc::Sender<Order>,
    received: Arc<Mutex<Vec<u8>>>,
    clients: Arc<AtomicUsize>,
}

/// How it treats a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As QEMU does.
    Proper,
    /// Accepts no client: another one holds the monitor.
    Silent,
    /// Greets and reads nothing, so that an end is a reset.
    Deaf,
}

impl Qemu {
    /// Binds over whatever is there, as QEMU does, and serves.
    /// Fails if nothing can be bound there.
    pub fn start(path: &Path) -> io::Result<Self> {
        Self::with_manner(path, Manner::Proper)
    }

    /// The same with another manner.
    /// Fails if nothing can be bound there.
    pub fn with_manner(path: &Path, manner: Manner) -> io::Result<Self> {
        let _there_was_none = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        let (orders, inbox) = mpsc::channel(16);
        let received = Arc::new(Mutex::new(Vec::new()));
        let clients = Arc::new(AtomicUsize::new(0));
        tokio::spawn(serve(listener, manner, inbox, Arc::clone(&received), Arc::clone(&clients)));
        Ok(Self { path: path.to_owned(), orders, received, clients })
    }

    /// Says a line to its client, whenever there is one.
    pub async fn say(&self, line: &str) {
        self.say_bytes(format!("{line}\r\n").as_bytes()).await;
    }

    /// Says these bytes.
    pub async fn say_bytes(&self, bytes: &[u8]) {
        let (done, said) = oneshot::channel();
        self.orders.send(Order::Bytes(bytes.to_vec(), done)).await.unwrap_or_default();
        // It may have left.
        let _left = said.await;
    }

    /// Ends cleanly: connection first, file a moment later.
    pub async fn end(self) {
        let path = self.path.clone();
        self.kill().await;
        tokio::time::sleep(Duration::from_millis(5)).await; // As measured on real ones.
        let _another_took_it = std::fs::remove_file(path);
    }

    /// Ends without an event; its file stays.
    pub async fn kill(self) {
        let (done, left) = oneshot::channel();
        let _ended_already = self.orders.send(Order::Leave(done)).await;
        let _ended_already = left.await;
    }

    /// All that was ever sent to it.
    pub fn received(&self) -> String {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&received).into_owned()
    }

    /// How many clients it has greeted.
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::SeqCst)
    }
}

async fn serve(
    listener: UnixListener,
    manner: Manner,
    mut orders: mpsc::Receiver<Order>,
    received: Arc<Mutex<Vec<u8>>>,
    clients: Arc<AtomicUsize>,
) {
    if manner == Manner::Silent {
        while let Some(order) = orders.recv().await {
            if let Order::Leave(done) = order {
                drop(listener);
                return done.send(()).unwrap_or_default();
            }
        }
        return;
    }
    loop {
        let mut client = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => continue,
            },
            Some(Order::Leave(done)) = orders.recv() => {
                drop(listener);
                return done.send(()).unwrap_or_default();
            }
            else => return,
        };
        clients.fetch_add(1, Ordering::SeqCst);
        let _gone = client.write_all(format!("{GREETING}\r\n").as_bytes()).await;
        if manner == Manner::Deaf {
            let _gone = client.write_all(format!("{RETURN}\r\n").as_bytes()).await;
        }
        let mut heard = Vec::new();
        loop {
            let mut piece = [0; 256];
            tokio::select! {
                read = client.read(&mut piece), if manner == Manner::Proper => {
                    let count = read.unwrap_or(0);
                    if count == 0 {
                        break;
                    }
                    let bytes = &piece[..count];
                    received.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
                    heard.extend_from_slice(bytes);
                    while let Some(at) = heard.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = heard.drain(..=at).collect();
                        let answer = if line.windows(16).any(|part| part == b"qmp_capabilities") {
                            RETURN
                        } else {
                            r#"{"error": {"class": "CommandNotFound", "desc": ""}}"#
                        };
                        let _gone = client.write_all(format!("{answer}\r\n").as_bytes()).await;
                    }
                }
                order = orders.recv() => match order {
                    Some(Order::Bytes(bytes, done)) => {
                        let _gone = client.write_all(&bytes).await;
                        let _nobody_waits = done.send(());
                    }
                    Some(Order::Leave(done)) => {
                        drop(client);
                        drop(listener);
                        return done.send(()).unwrap_or_default();
                    }
                    None => return,
                },
            }
        }
    }
}
