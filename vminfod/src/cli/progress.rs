// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Progress on a terminal, for whatever takes longer than a second: one line on stderr that is
//! wiped away at the end. Nothing is ever written where nobody looks.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::screen;
use crate::commands::{CommandError, Commands, Follow, LineSink, Output, Tool};

/// What is done sooner than this shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two pictures.
const FRAME: Duration = Duration::from_millis(120);
/// How wide a bar is.
const BAR: usize = 24;

/// What is known of the way so far.
#[derive(Debug, Default)]
struct State {
    what: Mutex<String>,
    done: AtomicUsize,
    steps: AtomicUsize,
    lines: AtomicUsize,
    painted: AtomicBool,
}

/// Shows progress until it is dropped.
#[derive(Debug)]
pub struct Progress {
    state: Arc<State>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins; `what` is being done.
    pub fn begin(what: &str) -> Progress {
        let state = Arc::new(State::default());
        let mut progress = Progress { state: Arc::clone(&state), painter: None };
        progress.now(what);
        if !screen::shows_progress() {
            return progress;
        }
        let painter = tokio::spawn(async move {
            let began = Instant::now();
            tokio::time::sleep(PATIENCE).await;
            state.painted.store(true, Ordering::Relaxed);
            for tick in 0.. {
                paint(&state.picture(tick, began.elapsed()));
                tokio::time::sleep(FRAME).await;
            }
        });
        progress.painter = Some(painter);
        progress
    }

    /// Something else is being done now.
    pub fn now(&self, what: &str) {
        what.clone_into(&mut self.state.what.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The same commands, whose work is counted: the node is read in four steps, the last of which
    /// is files.
    pub fn over(&self, commands: Arc<dyn Commands>) -> Arc<dyn Commands> {
        self.state.steps.store(4, Ordering::Relaxed);
        Arc::new(Counted { inner: commands, state: Arc::clone(&self.state) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(painter) = self.painter.take() {
            painter.abort();
            if self.state.painted.load(Ordering::Relaxed) {
                paint("");
            }
        }
    }
}

impl State {
    fn picture(&self, tick: usize, elapsed: Duration) -> String {
        let what = self.what.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (done, steps) = (self.done.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed));
        let lines = self.lines.load(Ordering::Relaxed);
        let bar = match steps {
            // Nobody knows how long: something that moves.
            0 => (0..BAR).map(|n| if n == tick % BAR { '#' } else { '.' }).collect::<String>(),
            steps => {
                let full = BAR * done.min(steps) / steps;
                (0..BAR).map(|n| if n < full { '#' } else { '.' }).collect()
            }
        };
        let rows = if lines > 0 { format!(", {lines} rows") } else { String::new() };
        format!("[{bar}] {what}{rows}, {} s", elapsed.as_secs())
    }
}

fn paint(text: &str) {
    let mut err = std::io::stderr().lock();
    // Who cannot be shown progress does without.
    let _lost = write!(err, "\r\u{1b}[K{text}").and_then(|()| err.flush());
}

struct Counted {
    inner: Arc<dyn Commands>,
    state: Arc<State>,
}

impl Commands for Counted {
    fn run<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let result = self.inner.run(tool, args, deadline).await;
            self.state.done.fetch_add(1, Ordering::Relaxed);
            result
        })
    }

    fn lines<'a>(
        &'a self,
        tool: Tool,
        args: Vec<String>,
        deadline: Duration,
        each: LineSink<'a>,
    ) -> BoxFuture<'a, Result<Output, CommandError>> {
        Box::pin(async move {
            let mut counting = |line: &[u8]| {
                self.state.lines.fetch_add(1, Ordering::Relaxed);
                each(line);
            };
            let result = self.inner.lines(tool, args, deadline, &mut counting).await;
            self.state.done.fetch_add(1, Ordering::Relaxed);
            result
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.inner.follow(tool, args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures() {
        let state = State::default();
        "reading the node".clone_into(&mut state.what.lock().unwrap());
        let picture = state.picture(1, Duration::from_millis(2500));
        assert_eq!(picture, "[.#......................] reading the node, 2 s");
        state.steps.store(4, Ordering::Relaxed);
        state.done.store(3, Ordering::Relaxed);
        state.lines.store(812, Ordering::Relaxed);
        let picture = state.picture(1, Duration::from_secs(3));
        assert_eq!(picture, "[##################......] reading the node, 812 rows, 3 s");
    }
}
