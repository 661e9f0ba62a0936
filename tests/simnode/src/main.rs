// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The simulated node as a program of its own: `simnode cn`, `simnode vm`, and the tools of the
//! nodes that it creates.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os();
    let program = std::path::PathBuf::from(args.next().unwrap_or_default());
    match simnode::exec::as_tool(&program) {
        Some((tool, node)) => simnode::exec::run(tool, &node, args.collect()),
        None => simnode::cli::run("simnode", args),
    }
}
