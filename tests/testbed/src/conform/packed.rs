// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The packed recordings: where `conform KIND` without a path finds them, and
//! `testbed recordings`, which unpacks and repacks them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: testbed recordings unpack DIR      write the packed recordings into DIR
       testbed recordings pack DIR [TO]   pack DIR into TO (default: tests/recordings)
";

/// Returns the paths that `conform KIND` reads when it is given none, below the unpacked `dir`.
pub(super) fn defaults(kind: &str, dir: &Path) -> Vec<PathBuf> {
    let names: &[&str] = match kind {
        "napi" => &["napi-transcripts.jsonl", "napi-transcripts-eras.jsonl"],
        "vmload" => &["."],
        "vminfod-events" => &["vminfod-events.jsonl"],
        "vminfod-http" => &["vminfod-http.jsonl"],
        "vmadm-cli" => &["vmadm-cli.jsonl"],
        "qmp" => &["qmp-transcripts.jsonl"],
        _ => &[],
    };
    names.iter().map(|name| dir.join(name)).collect()
}

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
