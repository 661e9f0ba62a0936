// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Helpers that fail in every way.

use daemon::command::{Call, Run};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// Hands out prepared children.
struct Children(std::sync::Mutex<Vec<(DuplexStream, DuplexStream)>>);

impl Commands for Children {
    fn run(&self, _: Call) -> Run<'_> {
        Box::pin(std::future::pending())
    }

    fn start(&self, launch: Launch) -> Result<Running, CommandError> {
        assert_eq!((launch.program, launch.pipes), (Program::Sysevent, Pipes::Out));
        let (out, err) = self.0.lock().unwrap().pop().expect("no more children prepared");
        Ok(Running::new(Box::new(out), Box::new(err), Box::pin(async { 0 })))
    }
}

struct Harness {
    inbox: Arc<Inbox>,
    shutdown: Shutdown,
    /// The far ends of the children, in the order they are started.
    children: std::collections::VecDeque<(DuplexStream, DuplexStream)>,
    task: tokio::task::JoinHandle<()>,
}

fn harness(count: usize) -> Harness {
    let (mut near, mut far) = (Vec::new(), std::collections::VecDeque::new());
    for _ in 0..count {
        let ((out, out_far), (err, err_far)) = (duplex(1 << 16), duplex(1 << 10));
        near.insert(0, (out, err));
        far.push_back((out_far, err_far));
    }
    let (inbox, shutdown) = (Arc::new(Inbox::default()), Shutdown::new());
    let follower = Follower {
        channel: Channel::Zones,
        commands: Arc::new(Children(std::sync::Mutex::new(near))),
        inbox: Arc::clone(&inbox),
        restart: Arc::new(Notify::new()),
        health: Box::new(|_| {}),
        shutdown: shutdown.clone(),
    };
    Harness {
        inbox,
        shutdown,
        children: far,
        task: tokio::spawn(follower.run(Jitter::from_seed(1))),
    }
}

const READY: &[u8] = b"{\"date\":\"d\",\"type\":\"ready\"}\n";
const EVENT: &[u8] = b"{\"date\":\"d\",\"type\":\"event\",\"class\":\"status\",\"subclass\":\"change\",\"data\":{\"zonename\":\"z\",\"newstate\":\"running\"}}\n";

impl Harness {
    async fn ready_child(&mut self) -> (DuplexStream, DuplexStream) {
        let (mut out, err) = self.children.pop_front().unwrap();
        out.write_all(READY).await.unwrap();
        self.inbox.news().await;
        assert!(self.inbox.take().everything, "a fresh child makes everything stale");
        (out, err)
    }

    async fn end(self) {
        self.shutdown.trigger();
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_failure_starts_a_new_child() {
    let mut harness = harness(6);
    // Garbage, though cut in pieces.
    let (mut out, _err) = harness.ready_child().await;
    out.write_all(&EVENT[..20]).await.unwrap();
    out.write_all(&EVENT[20..]).await.unwrap();
    harness.inbox.news().await;
    assert_eq!(harness.inbox.take().zones.len(), 1);
    out.write_all(b"nonsense\n").await.unwrap();
    // A complaint.
    let (_out, mut err) = harness.ready_child().await;
    err.write_all(b"sysevent: bind failed\n").await.unwrap();
    // An exit.
    drop(harness.ready_child().await);
    // A line that never ends.
    let (mut out, _err) = harness.ready_child().await;
    let long = vec![b'x'; 10 << 20];
    let _refused_half_way = out.write_all(&long).await;
    // One that never gets ready is given up after its limit.
    let mute = harness.children.pop_front().unwrap();
    let _last = harness.ready_child().await;
    drop(mute);
    harness.end().await;
}
