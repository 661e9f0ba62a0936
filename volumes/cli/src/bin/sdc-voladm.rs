// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Looks after the storage VMs of volumes; everything is in the library.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    volumes_cli::voladm::run(std::env::args_os())
}
