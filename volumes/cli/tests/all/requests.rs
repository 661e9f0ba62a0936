// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-volapi`.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::world::{Finished, LOGS, OWNER, World, run};

async fn ask(world: &World, args: &[&str]) -> Finished {
    let args = [args, &["--url", &world.volapi]].concat();
    run(env!("CARGO_BIN_EXE_sdc-volapi"), &args).await
}

#[tokio::test] // V89
async fn one_request_is_sent_as_it_stands_and_its_answer_printed_whole() {
    let world = World::start().await;
    let done = ask(&world, &[&format!("/volumes/{LOGS}")]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    let (head, body) = done.stdout.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("server: VOLAPI"), "{head}");
    let volume: Value = serde_json::from_str(body).unwrap();
    assert_eq!(volume["name"], "logs");

    let path = format!("/volumes/{LOGS}/addreference");
    let body = json!({"owner_uuid": OWNER, "vm_uuid": OWNER}).to_string();
    let done = ask(&world, &["-sS", "-i", &path, "-d", &body]).await;
    assert!(done.stdout.starts_with("HTTP/1.1 204 No Content\r\n"), "{}", done.stdout);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, &body).unwrap();
    let done = ask(&world, &[&path, "-X", "POST", "-d", &format!("@{}", file.display())]).await;
    assert!(done.stdout.starts_with("HTTP/1.1 204 "), "{}", done.stdout);
    let users = ask(&world, &["--bare", &format!("/volumes/{LOGS}/references")]).await;
    assert_eq!(users.stdout, format!("[\"{OWNER}\"]\n"));
    let done = ask(&world, &["/volumes?name=lo*&state=ready", "--bare", "-H", "x-a: b"]).await;
    assert_eq!(serde_json::from_str::<Value>(&done.stdout).unwrap()[0]["uuid"], LOGS);
}

#[tokio::test] // V89
async fn a_refusal_is_an_answer_and_silence_is_none() {
    let world = World::start().await;
    let done = ask(&world, &["/volumes/nope"]).await;
    assert!(done.code == Some(0) && done.stdout.starts_with("HTTP/1.1 409 "), "{}", done.stdout);
    assert!(done.stdout.ends_with("}\n"), "{}", done.stdout);
    assert_eq!(ask(&world, &["/volumes/nope", "-f"]).await.code, Some(22));
    let program = env!("CARGO_BIN_EXE_sdc-volapi");
    for (args, code, said) in [
        (&["/ping", "--url", "http://127.0.0.1:1"][..], 1, "nothing answers on http://127.0.0.1:1"),
        (&["/ping"], 2, "where is volapi? Give --url, $VOLAPI_URL"),
        (&["ping", "--url", "http://127.0.0.1:1"], 2, "a path begins with a slash: \"ping\""),
        (&["/ping", "-H", "x", "--url", "http://127.0.0.1:1"], 2, "\"x\" is not NAME: VALUE"),
        (&["/ping", "-X", "a b", "--url", "http://127.0.0.1:1"], 2, "\"a b\" is not a method"),
    ] {
        let done = run(program, args).await;
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "{args:?}");
        assert!(done.stderr.contains(said) && done.stderr.lines().count() == 1, "{}", done.stderr);
    }
    let done = run(program, &[]).await;
    assert!(done.code == Some(2) && done.stderr.contains("Usage: sdc-volapi"), "{}", done.stderr);
    for args in [&["--help"][..], &["--man"], &["--completions", "bash"]] {
        let done = run(program, args).await;
        assert!(done.code == Some(0) && done.stdout.lines().count() > 20, "{args:?}");
    }
}
