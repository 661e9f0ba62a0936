// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The conformance runner: recorded behaviour of the shipped software against ours.
//!
//! Every kind prints one line per failing case (where, expected, got), then `N passed, M failed`.
//! Exit 0: all passed; 1: some failed; 2: the path cannot be read.

mod deviations;
pub mod napi;
pub mod qmp;
pub mod vmadm_cli;
pub mod vminfod_events;
pub mod vminfod_http;
pub mod vmload;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: testbed conform KIND PATH [FLAGS]

  vmload DIR           VM objects of recorded nodes (--keys: key order too)
  napi FILE            NAPI exchanges (--only GROUP: one group)
  vminfod-events PATH  what vminfod tells its listeners, scenario by scenario
  vminfod-http PATH    what vminfod answers to bytes on its socket
  vmadm-cli FILE       what vmadm and vminfo print, with a daemon and without
  qmp FILE             what QEMU says when a VM ends

Examples:
  testbed conform napi ../shared/fixtures/napi-transcripts.jsonl
  testbed conform vmload ../shared/fixtures --keys

Exit status: 0 all passed, 1 some failed, 2 the path cannot be read or the usage is wrong.
";

/// Runs `testbed conform`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    // Each kind knows its own flags.
    let [kind, path, flags @ ..] = words.as_slice() else {
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    let path = Path::new(path);
    match kind.as_str() {
        "vmload" => vmload::run(path, flags),
        "napi" => napi::run(path, flags),
        "vminfod-events" => vminfod_events::run(path, flags),
        "vminfod-http" => vminfod_http::run(path, flags),
        "vmadm-cli" => vmadm_cli::run(path, flags),
        "qmp" => qmp::run(path, flags),
        _ => {
            eprintln!("testbed conform: no kind {kind:?}");
            eprint!("{USAGE}");
            ExitCode::from(daemon::exit::USAGE)
        }
    }
}
