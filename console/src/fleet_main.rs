// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `console` with the page of the data centre: everything is in the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    console::cli::run(std::env::args_os())
}
