// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lines as they come and as they never should.

use serde_json::json;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::commands::Output;

fn line(value: serde_json::Value) -> Result<Line, Garbage> {
    parse(value.to_string().as_bytes())
}

fn zone(name: &str, newstate: &str, zoneid: Option<i64>) -> Line {
    Line::Event(vec![Signal::Zone(ZoneSignal {
        name: name.into(),
        newstate: newstate.into(),
        zoneid,
    })])
}

#[test]
fn zone_lines() {
    let event = |class: &str, subclass: &str, data: serde_json::Value| {
        line(
            json!({"date": "d", "type": "event", "class": class, "subclass": subclass, "data": data}),
        )
    };
    let data = json!({"zonename": "z", "newstate": "running", "zoneid": 7, "when": 1_767_607_200_178_431_227_u64});
    assert_eq!(event("status", "change", data.clone()), Ok(zone("z", "running", Some(7))));
    assert_eq!(event("status", "other", data.clone()), Ok(zone("z", "running", Some(7))));
    assert_eq!(
        event("init", "restart", json!({"zonename": "z", "restarts": 2})),
        Ok(zone("z", "", None))
    );
    assert_eq!(
        event("status", "change", json!({"zonename": "z", "newstate": "", "zoneid": -1})),
        Ok(zone("z", "", None))
    );
    for (class, subclass) in [("init", "other"), ("else", "change"), ("", "")] {
        assert_eq!(event(class, subclass, data.clone()), Ok(Line::Event(vec![])));
    }
    assert_eq!(event("status", "change", json!({})), Ok(Line::Event(vec![])));
    assert_eq!(event("status", "change", json!([1])), Ok(Line::Event(vec![])));
}

#[test]
fn events_without_data_and_ready() {
    assert_eq!(
        line(json!({"type": "event", "class": "status", "subclass": "ping"})),
        Ok(Line::Event(vec![]))
    );
    assert_eq!(line(json!({"date": "d", "type": "ready"})), Ok(Line::Ready));
}

#[test]
fn garbage_is_an_error_and_never_a_crash() {
    for text in ["", "{", "null", "[]", "{}", r#"{"type":"other"}"#, "ready", "\u{0}"] {
        assert!(parse(text.as_bytes()).is_err(), "{text:?}");
    }
    // A character cut in half spoils its own name only.
    let cut = b"{\"type\":\"event\",\"class\":\"status\",\"data\":{\"zonename\":\"z\xe2\x82\"}}";
    assert!(matches!(parse(cut), Ok(Line::Event(signals)) if signals.len() == 1));
}

/// Hands out prepared children.
struct Children(std::sync::Mutex<Vec<(DuplexStream, DuplexStream)>>);

impl Commands for Children {
    fn run<'a>(
        &'a self,
        _: Tool,
        _: Vec<String>,
        _: Duration,
    ) -> futures_util::future::BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(std::future::pending())
    }

    fn follow(&self, tool: Tool, _: Vec<String>) -> Result<Follow, CommandError> {
        assert_eq!(tool, Tool::Sysevent);
        let (out, err) = self.0.lock().unwrap().pop().expect("no more children prepared");
        Ok(Follow::new(Box::new(out), Box::new(err), Box::pin(async { 0 })))
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
        jitter: Jitter::from_seed(1),
        health: Box::new(|_| {}),
        shutdown: shutdown.clone(),
    };
    Harness { inbox, shutdown, children: far, task: tokio::spawn(follower.run()) }
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
async fn every_way_to_fail_leads_to_a_fresh_child() {
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
