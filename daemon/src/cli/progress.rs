// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Progress of what takes longer than a second: one line on stderr, if that is a terminal, erased at the
//! end. A thread paints it, so it needs neither a runtime nor its clock.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::screen;

/// Nothing is shown before this.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two paintings.
const FRAME: Duration = Duration::from_millis(120);
/// Width of the picture that moves.
const BAR: usize = 24;

/// Shows progress until it is dropped.
#[derive(Debug)]
pub struct Progress {
    painter: Option<Painter>,
}

impl Progress {
    /// Begins showing `what`.
    pub fn begin(what: &str) -> Progress {
        let painter = screen::shows_progress().then(|| Painter::begin(what));
        Progress { painter: painter.flatten() }
    }

    /// Shows `what` from now on.
    pub fn say(&self, what: &str) {
        let shown = self.painter.as_ref().and_then(|painter| painter.open.as_ref());
        // Without a terminal there is no reader.
        let _unheard = shown.map(|open| open.send(what.to_owned()));
    }
}

/// Shows progress while this runs.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _shown = Progress::begin(what);
    work()
}

/// The thread that paints; it ends when its channel does.
#[derive(Debug)]
struct Painter {
    open: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Painter {
    /// Returns `None` if no thread can be started.
    fn begin(what: &str) -> Option<Painter> {
        let ((open, end), what) = (channel(), what.to_owned());
        let thread = std::thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || paint_until(&end, &what)).ok()?;
        Some(Painter { open: Some(open), thread: Some(thread) })
    }
}

impl Drop for Painter {
    fn drop(&mut self) {
        drop(self.open.take());
        // It only paints: a panic there is not worth another one.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

fn paint_until(news: &Receiver<String>, what: &str) {
    let mut what = what.to_owned();
    let began = Instant::now();
    let mut pause = PATIENCE;
    for tick in 0.. {
        match news.recv_timeout(pause) {
            Ok(new) => what = new,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        screen::paint(&picture(&what, tick, began.elapsed()));
        pause = FRAME;
    }
    if pause == FRAME {
        screen::paint("");
    }
}

fn picture(what: &str, tick: usize, elapsed: Duration) -> String {
    let bar: String = (0..BAR).map(|n| if n == tick % BAR { '#' } else { '.' }).collect();
    format!("[{bar}] {what}, {} s", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures() {
        let picture = picture("reading the node", 1, Duration::from_millis(2500));
        assert_eq!(picture, "[.#......................] reading the node, 2 s");
    }

    #[test]
    fn the_painter_ends_when_it_is_dropped() {
        drop(Painter::begin("reading the node").unwrap());
    }
}
