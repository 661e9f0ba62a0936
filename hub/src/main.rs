// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `hub`: everything is in the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    hub::cli::run(std::env::args_os())
}
