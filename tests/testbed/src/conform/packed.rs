// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed recordings`, which unpacks and repacks the packed recordings.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: testbed recordings unpack DIR      write the packed recordings into DIR
       testbed recordings pack DIR [TO]   pack DIR into TO (default: tests/recordings)
";

/// Runs `testbed recordings`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    let done = match args {
        [verb, dir] if verb == "unpack" => recordings::unpack(Path::new(dir)),
        [verb, dir] if verb == "pack" => {
            recordings::pack(Path::new(dir), Path::new("tests/recordings"))
        }
        [verb, dir, to] if verb == "pack" => recordings::pack(Path::new(dir), Path::new(to)),
        [flag] if flag == "--help" || flag == "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(daemon::exit::USAGE);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testbed recordings: {error}");
            ExitCode::from(daemon::exit::FAILED)
        }
    }
}
