// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The daemon and its command line; everything is in the library but the page that `serve --console`
//! starts, which the library does not know.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vminfod::cli::run_with(
        std::env::args_os(),
        Some(|hub, page, shutdown| {
            Box::pin(async move { Ok(console::beside(hub, page, shutdown).await?) })
        }),
    )
}
