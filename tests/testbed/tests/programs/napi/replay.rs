// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The conformance runner itself, on a small recording of our own and on the packed ones.

use std::path::{Path, PathBuf};

use testbed::conform::napi::{Transcript, replay};

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

#[tokio::test]
async fn own_recording_replays() {
    let outcome = replay(&Transcript::read(&own("napi-own.jsonl")).unwrap(), None).await;
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.passed, 8);
}

#[tokio::test]
async fn a_wrong_answer_is_reported_with_its_place() {
    let outcome = replay(&Transcript::read(&own("napi-own-wrong.jsonl")).unwrap(), None).await;
    assert_eq!(
        outcome.failures,
        ["own 1 GET /nics/90b8d0000001: body.state: expected \"stopped\", got \"provisioning\""]
    );
}

#[test]
fn a_line_that_is_no_exchange_is_named() {
    let error = Transcript::parse("{\"seed\":\"a\",\"requests\":[]}\n{\"id\":1}", Path::new("f"))
        .unwrap_err();
    assert!(error.to_string().starts_with("f:2: "), "{error}");
}

#[tokio::test]
async fn the_packed_recordings_replay() {
    for name in ["napi-transcripts.jsonl", "napi-transcripts-eras.jsonl"] {
        let text = recordings::text(name).unwrap();
        let transcript = Transcript::parse(&text, Path::new(name)).unwrap();
        let outcome = replay(&transcript, None).await;
        assert_eq!(outcome.failures, Vec::<String>::new(), "{name}");
    }
}
