// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The conformance runner: recorded behaviour of the shipped software against ours.
//!
//! Every kind prints one line per failing case (where, expected, got), then `N passed, M failed`.
//! Exit 0: all passed; 1: some failed; 2: the path cannot be read.

pub mod vminfod_http; // what vminfod answers to bytes on its socket

pub mod vminfod_events; // what vminfod tells its listeners

mod deviations; // where vminfod differs on purpose

mod step; // what one step sent, against what was recorded

mod asked; // a request to vminfod and what came for it

pub mod vmadm_cli; // what vmadm and vminfo print

pub mod vmload; // VM objects of recorded nodes

pub mod napi; // NAPI exchanges against the mock

pub mod qmp; // what QEMU says when a VM ends

pub mod packed; // the recordings that are built in

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: testbed conform KIND [PATH] [FLAGS]

  vmload DIR           VM objects of recorded nodes (--keys: key order too)
  napi FILE            NAPI exchanges (--only GROUP: one group)
  vminfod-events PATH  what vminfod tells its listeners, scenario by scenario
  vminfod-http PATH    what vminfod answers to bytes on its socket
  vmadm-cli FILE       what vmadm and vminfo print, with a daemon and without
  qmp FILE             what QEMU says when a VM ends

Without PATH it reads the recordings of tests/recordings, which are built in
(`testbed recordings unpack DIR` writes them out).

Examples:
  testbed conform napi
  testbed conform vmload --keys cn-of-mine

Exit status: 0 all passed, 1 some failed, 2 the path cannot be read or the usage is wrong.
";

/// Runs `testbed conform`; the arguments start after that word.
pub fn run(args: &[OsString]) -> ExitCode {
    let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some((kind, path, flags)) = sorted(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    let Some(replay) = runner(kind) else {
        eprintln!("testbed conform: no kind {kind:?}");
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    if let Some(path) = path {
        return replay(Path::new(path), &flags);
    }
    let unpacked = match recordings::unpacked() {
        Ok(unpacked) => unpacked,
        Err(error) => {
            eprintln!("testbed conform: unpacking the recordings: {error}");
            return ExitCode::from(2);
        }
    };
    let codes =
        packed::defaults(kind, unpacked.path()).into_iter().map(|path| replay(&path, &flags));
    codes
        .fold(ExitCode::SUCCESS, |worst, code| if code == ExitCode::SUCCESS { worst } else { code })
}

type Runner = fn(&Path, &[String]) -> ExitCode;

fn runner(kind: &str) -> Option<Runner> {
    Some(match kind {
        "vmload" => vmload::run,
        "napi" => napi::run,
        "vminfod-events" => vminfod_events::run,
        "vminfod-http" => vminfod_http::run,
        "vmadm-cli" => vmadm_cli::run,
        "qmp" => qmp::run,
        _ => return None,
    })
}

/// Splits the arguments into the kind, the path if one is given, and the flags, which may stand on
/// either side of the path.
fn sorted(words: &[String]) -> Option<(&String, Option<&String>, Vec<String>)> {
    let (kind, rest) = words.split_first()?;
    let is_value = |at: usize| at > 0 && rest[at - 1] == "--only";
    match (0..rest.len()).find(|&at| !rest[at].starts_with("--") && !is_value(at)) {
        Some(at) => Some((kind, Some(&rest[at]), [&rest[..at], &rest[at + 1..]].concat())),
        None => Some((kind, None, rest.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_on_either_side_of_the_path() {
        for (line, path, flags) in [
            ("vmload DIR --keys", Some("DIR"), "--keys"),
            ("vmload --keys DIR", Some("DIR"), "--keys"),
            ("napi --only reap FILE", Some("FILE"), "--only reap"),
            ("napi FILE --only reap", Some("FILE"), "--only reap"),
            ("napi --only reap", None, "--only reap"),
            ("vmload --keys", None, "--keys"),
            ("qmp", None, ""),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let (_, got, rest) = sorted(&words).unwrap();
            assert_eq!(
                (got.map(String::as_str), rest.join(" ")),
                (path, flags.to_owned()),
                "{line}"
            );
        }
        assert!(sorted(&[]).is_none());
    }
}
