// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which programs of the node run now, and since when: people have to know what an order waits for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::command::{Call, Commands, LineSink, Run};
use migration_core::protocol::Runs;
use uuid::Uuid;

/// So much of a command is kept.
const LONGEST: usize = 200;

/// The node's programs, each of whose runs is known while it lasts.
pub struct Watched {
    inner: Arc<dyn Commands>,
    running: Arc<Running>,
}

/// The runs of now, oldest first.
#[derive(Debug, Default)]
pub struct Running(Mutex<(u64, BTreeMap<u64, Runs>)>);

/// One run.
struct Guard(Arc<Running>, u64);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.1);
    }
}

impl Running {
    fn begin(self: &Arc<Running>, call: &Call) -> Guard {
        let command = format!("{} {}", call.program, call.args.join(" "));
        let command = command.chars().take(LONGEST).collect();
        let runs = Runs { command, since_ms: daemon::wall::now().as_millisecond() };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.0 += 1;
        let id = all.0;
        all.1.insert(id, runs);
        Guard(Arc::clone(self), id)
    }

    /// Returns the oldest run that is about a VM.
    pub fn of(&self, vm: Uuid) -> Option<Runs> {
        let vm = vm.to_string();
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.1.values().find(|runs| runs.command.contains(&vm)).cloned()
    }
}

impl Watched {
    /// Returns the same programs, and which of them run.
    pub fn beside(inner: Arc<dyn Commands>) -> (Arc<dyn Commands>, Arc<Running>) {
        let running = Arc::new(Running::default());
        (Arc::new(Watched { inner, running: Arc::clone(&running) }), running)
    }
}

impl Commands for Watched {
    fn run(&self, call: Call) -> Run<'_> {
        let guard = self.running.begin(&call);
        Box::pin(async move {
            let _guard = guard;
            self.inner.run(call).await
        })
    }

    fn lines<'a>(&'a self, call: Call, each: LineSink<'a>) -> Run<'a> {
        let guard = self.running.begin(&call);
        Box::pin(async move {
            let _guard = guard;
            self.inner.lines(call, each).await
        })
    }

    fn inner(&self) -> Option<&dyn Commands> {
        Some(&*self.inner)
    }
}
