// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the commands share.

use anyhow::Context as _;

use super::args::Files;
use crate::config::Config;

/// The name in messages and logs.
pub(super) const NAME: &str = "net-agent";

/// Wrong usage of the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

pub(super) fn load(files: &Files) -> anyhow::Result<Config> {
    Ok(Config::load(&files.config, files.policy.as_deref())?)
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}
