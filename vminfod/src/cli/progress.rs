// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The progress of reading the node itself: the node's commands, counted as they go by.

use std::sync::Arc;
use std::time::Duration;

use daemon::cli::Progress;
use daemon::cli::progress::Meter;
use futures_util::future::BoxFuture;

use crate::commands::{CommandError, Commands, Follow, LineSink, Output, Tool};

/// The node is read in this many steps, the last of which is files.
const STEPS: usize = 4;

/// The same commands, whose work shows.
pub fn over(progress: &Progress, commands: Arc<dyn Commands>) -> Arc<dyn Commands> {
    let meter = progress.meter();
    meter.of(STEPS);
    Arc::new(Counted { inner: commands, meter })
}

struct Counted {
    inner: Arc<dyn Commands>,
    meter: Arc<Meter>,
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
            self.meter.step();
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
                self.meter.row();
                each(line);
            };
            let result = self.inner.lines(tool, args, deadline, &mut counting).await;
            self.meter.step();
            result
        })
    }

    fn follow(&self, tool: Tool, args: Vec<String>) -> Result<Follow, CommandError> {
        self.inner.follow(tool, args)
    }
}
