// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Progress of what takes longer than a second: one line on stderr, if that is a terminal, erased at the
//! end. A thread paints it, so it needs neither a runtime nor its clock.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::time::Instant;

use super::screen;

/// Nothing is shown before this.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two paintings.
const FRAME: Duration = Duration::from_millis(120);
/// Width of a bar.
const BAR: usize = 24;

/// The steps so far; counted from any thread.
#[derive(Debug, Default)]
pub struct Meter {
    what: Mutex<String>,
    done: AtomicUsize,
    steps: AtomicUsize,
    rows: AtomicUsize,
}

impl Meter {
    /// Sets the number of all steps.
    pub fn of(&self, steps: usize) {
        self.steps.store(steps, Ordering::Relaxed);
    }

    /// Counts a step.
    pub fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a row.
    pub fn row(&self) {
        self.rows.fetch_add(1, Ordering::Relaxed);
    }

    fn picture(&self, tick: usize, elapsed: Duration) -> String {
        let what = self.what.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (done, steps) = (self.done.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed));
        let rows = self.rows.load(Ordering::Relaxed);
        let bar = match steps {
            // The total is unknown: show something that moves.
            0 => (0..BAR).map(|n| if n == tick % BAR { '#' } else { '.' }).collect::<String>(),
            steps => {
                let full = BAR * done.min(steps) / steps;
                (0..BAR).map(|n| if n < full { '#' } else { '.' }).collect()
            }
        };
        let rows = if rows > 0 { format!(", {rows} rows") } else { String::new() };
        format!("[{bar}] {what}{rows}, {} s", elapsed.as_secs())
    }
}

/// Shows progress until it is dropped.
#[derive(Debug)]
pub struct Progress {
    meter: Arc<Meter>,
    painter: Option<Painter>,
}

impl Progress {
    /// Begins showing `what`.
    pub fn begin(what: &str) -> Progress {
        let meter = Arc::new(Meter::default());
        let painter = screen::shows_progress().then(|| Painter::begin(Arc::clone(&meter)));
        let progress = Progress { meter, painter: painter.flatten() };
        progress.now(what);
        progress
    }

    /// Shows `what` from now on.
    pub fn now(&self, what: &str) {
        what.clone_into(&mut self.meter.what.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the counter of steps.
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(painter) = self.painter.take() {
            painter.end();
        }
    }
}

/// Shows progress while this runs.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let _shown = Progress::begin(what);
    work()
}

/// The thread that paints, and its stop signal.
#[derive(Debug)]
struct Painter {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Painter {
    /// Returns `None` if no thread can be started.
    fn begin(meter: Arc<Meter>) -> Option<Painter> {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&ended);
        let paint = move || {
            let began = Instant::now();
            let mut pause = PATIENCE;
            for tick in 0.. {
                if ends_within(&told, pause) {
                    break;
                }
                paint(&meter.picture(tick, began.elapsed()));
                pause = FRAME;
            }
            if pause == FRAME {
                paint("");
            }
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(paint).ok()?;
        Some(Painter { ended, thread })
    }

    fn end(self) {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.1.notify_all();
        // It only paints: a panic there is not worth another one.
        let _ended = self.thread.join();
    }
}

fn ends_within(ended: &(Mutex<bool>, Condvar), pause: Duration) -> bool {
    let guard = ended.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ended.1.wait_timeout_while(guard, pause, |ended| !*ended);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn paint(text: &str) {
    let mut err = std::io::stderr().lock();
    // Progress that cannot be shown is left out.
    let _lost = write!(err, "\r\u{1b}[K{text}").and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures() {
        let meter = Meter::default();
        "reading the node".clone_into(&mut meter.what.lock().unwrap());
        let picture = meter.picture(1, Duration::from_millis(2500));
        assert_eq!(picture, "[.#......................] reading the node, 2 s");
        meter.of(4);
        for _ in 0..3 {
            meter.step();
        }
        for _ in 0..812 {
            meter.row();
        }
        let picture = meter.picture(1, Duration::from_secs(3));
        assert_eq!(picture, "[##################......] reading the node, 812 rows, 3 s");
    }

    #[test]
    fn the_painter_ends_when_it_is_told_to() {
        let painter = Painter::begin(Arc::new(Meter::default())).unwrap();
        painter.end();
    }
}
