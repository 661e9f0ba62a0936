// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed fleet-feed`: does the feed show every node, whatever is killed? Three real nats-servers; agents in
//! processes of a hundred nodes, consumers in processes of their own; kill -9 of any of them at random moments.

mod judge; // what has to be true at the end

mod run; // one run, from the first server to the verdict

mod shake; // changes and deaths

mod agree; // does everybody show the same?

mod site; // what runs

mod progress; // what it says meanwhile

mod centre; // the nodes: what vminfod would show, over HTTP

mod page; // a large data centre for a browser

mod children; // the processes that are killed

mod options; // how large it is

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use centre::{Hubs, cn, hubs, serve, vm};
pub use children::{mirror, nodes};
pub use options::Options;
pub use page::page;
pub use run::{Passed, feed};

/// The command `fleet-feed`.
pub fn run(args: &[OsString]) -> ExitCode {
    crate::arguments::command("testbed fleet-feed", args, async |mut options: Options| {
        if let Some(why) = rig::nats::why_not() {
            println!("skipped: {why}");
            return Ok(true);
        }
        crate::process::raise_descriptors();
        options.seed = Some(crate::arguments::seed(options.seed));
        let passed = feed(&options).await?;
        println!("{passed}");
        Ok(true)
    })
}
