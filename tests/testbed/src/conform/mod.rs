// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The conformance runner: recorded behaviour of the shipped software against ours.
//!
//! Every kind prints one line per failing case (where, expected, got), then `N passed, M failed`.
//! Exit 0: all passed; 1: some failed; 2: the path cannot be read.

mod vminfod_http; // what vminfod answers to bytes on its socket

pub(crate) mod vminfod_events; // what vminfod tells its listeners

mod deviations; // where vminfod differs on purpose

mod step; // what one step sent, against what was recorded

mod asked; // a request to vminfod and what came for it

mod vmadm_cli; // what vmadm and vminfo print

mod vmadm_validate; // payloads that vmadm judged, by the simulated one

pub(crate) mod vmload; // VM objects of recorded nodes

pub mod napi; // NAPI exchanges against the mock

mod vmapi; // VMAPI exchanges against the mock

mod volapi; // volapi exchanges against ours

mod cnapi; // the nodes of a recording of CNAPI

mod real_runs; // what ours asked of the real services, against the mocks

mod peers; // what VMAPI and volapi asked of others, against the mocks

mod services; // PAPI, IMGAPI and workflow API exchanges against the mocks

mod purpose; // where services answer otherwise on purpose

mod wire; // one recorded request over a socket

mod transcript; // the lines of the recordings of services

mod reply; // the responses in the bytes of a reply

mod qmp; // what QEMU says when a VM ends

pub mod tally; // what a comparison comes to

pub mod packed; // the recordings that are built in

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use daemon::cli::progress::during;

use tally::Tally;

const USAGE: &str = "\
usage: testbed conform KIND [PATH] [FLAGS]

  vmload DIR           VM objects of recorded nodes (--keys: key order too)
  napi FILE            NAPI exchanges (--only GROUP: one group)
  vmapi FILE           VMAPI exchanges (--only GROUP: one group)
  volapi FILE          volapi exchanges against ours (--only GROUP: one group)
  cnapi FILE           CNAPI exchanges against the mock (--only GROUP: one group)
  papi, imgapi, workflow FILE
                       exchanges of these against the mocks (--only GROUP: one group)
  real-runs FILE       what ours asked of the real services, against the mocks (--only 'RUN SERVICE'), and asked again
                       (--only RUN)
  peers FILE           what VMAPI and volapi asked of other services, against the mocks
  vminfod-events PATH  what vminfod tells its listeners, scenario by scenario
  vminfod-http PATH    what vminfod answers to bytes on its socket
  vmadm-cli FILE       what vmadm and vminfo print, with a daemon and without
  vmadm-validate FILE  payloads that vmadm judged, by the simulated vmadm
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
    let Some(kind) = KINDS.iter().find(|known| known.name == kind) else {
        eprintln!("testbed conform: no kind {kind:?}");
        eprint!("{USAGE}");
        return ExitCode::from(daemon::exit::USAGE);
    };
    if let Some(path) = path {
        return report(kind, Path::new(path), &flags);
    }
    let unpacked = match recordings::unpacked() {
        Ok(unpacked) => unpacked,
        Err(error) => {
            eprintln!("testbed conform: unpacking the recordings: {error}");
            return ExitCode::from(2);
        }
    };
    let codes = kind.files.iter().map(|file| report(kind, &unpacked.path().join(file), &flags));
    codes
        .fold(ExitCode::SUCCESS, |worst, code| if code == ExitCode::SUCCESS { worst } else { code })
}

struct Kind {
    name: &'static str,
    /// What is told while it runs.
    doing: &'static str,
    /// The built-in recordings.
    files: &'static [&'static str],
    check: fn(&Path, &[String]) -> anyhow::Result<Tally>,
}

const KINDS: [Kind; 15] = [
    Kind {
        name: "vmload",
        doing: "composing what was recorded",
        files: &["."],
        check: vmload::check,
    },
    Kind {
        name: "napi",
        doing: "replaying NAPI",
        files: &["napi-transcripts.jsonl", "napi-transcripts-eras.jsonl"],
        check: napi::check,
    },
    Kind { name: "vmapi", doing: "replaying VMAPI", files: &[vmapi::FILE], check: vmapi::check },
    Kind {
        name: "volapi",
        doing: "replaying volapi",
        files: &[volapi::FILE],
        check: volapi::check,
    },
    Kind { name: "cnapi", doing: "replaying CNAPI", files: &[cnapi::FILE], check: cnapi::check },
    Kind {
        name: "papi",
        doing: "replaying PAPI",
        files: &[services::PAPI],
        check: services::check_papi,
    },
    Kind {
        name: "imgapi",
        doing: "replaying IMGAPI",
        files: &[services::IMGAPI],
        check: services::check_imgapi,
    },
    Kind {
        name: "workflow",
        doing: "replaying the workflow API",
        files: &[services::WORKFLOW],
        check: services::check_workflow,
    },
    Kind {
        name: "real-runs",
        doing: "replaying runs at the real services",
        files: &[real_runs::FILE],
        check: real_runs::check,
    },
    Kind { name: "peers", doing: "replaying calls", files: &peers::FILES, check: peers::check },
    Kind {
        name: "vminfod-events",
        doing: "replaying vminfod-events",
        files: &[vminfod_events::FILE],
        check: vminfod_events::check,
    },
    Kind {
        name: "vminfod-http",
        doing: "replaying vminfod-http",
        files: &[vminfod_http::FILE],
        check: vminfod_http::check,
    },
    Kind {
        name: "vmadm-cli",
        doing: "replaying vmadm",
        files: &[vmadm_cli::FILE],
        check: vmadm_cli::check,
    },
    Kind {
        name: "vmadm-validate",
        doing: "judging payloads",
        files: &[vmadm_validate::FILE],
        check: vmadm_validate::check,
    },
    Kind {
        name: "qmp",
        doing: "replaying QEMU",
        files: &["qmp-transcripts.jsonl"],
        check: qmp::check,
    },
];

/// Compares, and prints what came out.
fn report(kind: &Kind, path: &Path, flags: &[String]) -> ExitCode {
    match during(kind.doing, || (kind.check)(path, flags)) {
        Ok(tally) => {
            tally.notes.iter().chain(&tally.failures).for_each(|line| println!("{line}"));
            println!("{} passed, {} failed", tally.passed, tally.failures.len());
            ExitCode::from(u8::from(!tally.failures.is_empty()))
        }
        Err(error) => {
            eprintln!("testbed conform {}: {error:#}", kind.name);
            ExitCode::from(2)
        }
    }
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
