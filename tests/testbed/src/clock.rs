// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated clock: a runtime of one thread whose time stands still while anything can run and
//! jumps to the next timer when nothing can. Nothing on it may wait for a child or a socket.
//!
//! Work that is handed to a blocking thread, such as the reading of files, takes no time, and it
//! never runs beside the tasks: the thread starts when no task can run, and no task runs until the
//! thread has done all that it was given. So what happens does not depend on how fast threads are.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use simnode::clock::simulate;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// A runtime on a clock of its own.
pub struct Paused {
    runtime: Option<Runtime>,
    turns: Arc<Turns>,
}

/// Returns a runtime on a clock of its own. Sockets may be bound on it, for code that must have one.
pub fn paused() -> io::Result<Paused> {
    let turns = Arc::new(Turns::default());
    let turn = |step: fn(&Turns)| {
        let turns = Arc::clone(&turns);
        move || step(&turns)
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // What the thread woke comes first; otherwise it would come first at each 31st turn of the
        // loop, and how many turns there were without work hangs on threads.
        .global_queue_interval(1)
        // One blocking thread at a time, and it ends with the last of its work: its end is what
        // the tasks wait for.
        .max_blocking_threads(1)
        .thread_keep_alive(Duration::ZERO)
        .on_thread_park(turn(Turns::tasks_rest))
        .on_thread_unpark(turn(Turns::tasks_go_on))
        .on_thread_start(turn(Turns::work_begins))
        .on_thread_stop(turn(Turns::work_ends))
        .build()?;
    Ok(Paused { runtime: Some(runtime), turns })
}

impl Paused {
    /// Runs this and what it spawns until this ends.
    pub fn block_on<F: Future>(&self, work: F) -> F::Output {
        let runtime = self.runtime.as_ref().expect("invariant: taken by drop alone");
        runtime.block_on(async {
            simulate(Some(*self.turns.began.get_or_init(Instant::now)));
            let done = work.await;
            simulate(None);
            done
        })
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // Nobody takes turns any more: a thread that is waiting for its own has to end.
        self.turns.change(|turn| turn.over = true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    turn: Mutex<Turn>,
    changed: Condvar,
    /// When simulated time began.
    began: OnceLock<Instant>,
}

#[derive(Default)]
struct Turn {
    /// No task can run.
    rests: bool,
    /// The blocking thread is at work.
    works: bool,
    over: bool,
}

impl Turns {
    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait(&self, may_go_on: impl Fn(&Turn) -> bool) -> MutexGuard<'_, Turn> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.changed.wait_while(turn, |turn| !turn.over && !may_go_on(turn));
        done.unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks_rest(&self) {
        self.change(|turn| turn.rests = true);
    }

    fn tasks_go_on(&self) {
        self.wait(|turn| !turn.works).rests = false;
    }

    fn work_begins(&self) {
        simulate(self.began.get().copied());
        self.wait(|turn| turn.rests).works = true;
    }

    fn work_ends(&self) {
        self.change(|turn| turn.works = false);
    }
}
