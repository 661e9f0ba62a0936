// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The helper in process and without inotify: it reports the changes that it is told. For simulated
//! time, in which nothing outside the runtime may be waited for.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::command::Running;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lines::{
    Command, FILE_DELETE, FILE_MODIFIED, event, parse, ready, refused, response, status,
};

/// Bytes of lines that vminfod may leave unread.
const UNREAD: usize = 16 << 20;
/// Lines that wait to be written.
const WAITING: usize = 1 << 16;

/// The helper. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    watched: BTreeSet<String>,
    lines: Option<mpsc::Sender<Value>>,
    /// The tasks of the helper that runs.
    _tasks: JoinSet<()>,
}

impl Told {
    /// Starts the helper anew; the one before it ends.
    pub fn converse(&self) -> Running {
        let (near, far) = duplex(UNREAD);
        let (errors, _) = duplex(1);
        let (input, requests) = duplex(UNREAD);
        let (lines, waiting) = mpsc::channel(WAITING);
        let _room = lines.try_send(ready([0, 0]));
        let mut tasks = JoinSet::new();
        tasks.spawn(write(waiting, far));
        tasks.spawn(self.clone().answer(requests));
        *self.state() = State { watched: BTreeSet::new(), lines: Some(lines), _tasks: tasks };
        let end = Box::pin(async { 0 });
        Running::new(Box::new(near), Box::new(errors), end).with_stdin(Box::new(input))
    }

    /// Ends the helper, as if its process had died.
    pub fn cut(&self) {
        *self.state() = State::default();
    }

    /// A file changed, appeared or went.
    pub fn changed(&self, path: &Path) {
        let Some(text) = path.to_str() else { return };
        let mut state = self.state();
        let is_gone = std::fs::symlink_metadata(path).is_err();
        if state.watched.contains(text) {
            let flags = if is_gone { FILE_DELETE } else { FILE_MODIFIED };
            state.say(event([0, 0], text, flags, is_gone));
        }
        if is_gone {
            state.watched.remove(text);
        }
        let parent = path.parent().and_then(Path::to_str).unwrap_or_default();
        if state.watched.contains(parent) {
            state.say(event([0, 0], parent, FILE_MODIFIED, false));
        }
    }

    async fn answer(self, requests: DuplexStream) {
        let mut requests = BufReader::new(requests).lines();
        while let Ok(Some(line)) = requests.next_line().await {
            let mut state = self.state();
            let answer = match parse(&line) {
                Ok(Command::Watch(key, path)) => {
                    let is_there = std::fs::symlink_metadata(path).is_ok();
                    if is_there {
                        state.watched.insert(path.to_owned());
                    }
                    let text = |text: &str| text.to_owned();
                    let outcome = if is_there { Ok(text("watched")) } else { Err(text("missing")) };
                    response([0, 0], key, path, outcome)
                }
                Ok(Command::Unwatch(key, path)) => {
                    state.watched.remove(path);
                    response([0, 0], key, path, Ok("no longer watched".to_owned()))
                }
                Ok(Command::Status(key)) => {
                    let files: Vec<&str> = state.watched.iter().map(String::as_str).collect();
                    // It stands for a process of its own.
                    status([0, 0], key, &files, std::process::id().wrapping_add(1))
                }
                Err(refusal) => refused([0, 0], &refusal),
            };
            state.say(answer);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A helper whose lines nobody reads ends.
    fn say(&mut self, line: Value) {
        if self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_err()) {
            self.lines = None;
        }
    }
}

async fn write(mut lines: mpsc::Receiver<Value>, mut pipe: DuplexStream) {
    while let Some(line) = lines.recv().await {
        if pipe.write_all(format!("{line}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}
