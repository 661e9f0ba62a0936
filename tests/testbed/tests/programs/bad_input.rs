// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Bad input gives one clear line on stderr and a non-zero exit, never a panic.

use std::net::TcpListener;
use std::path::Path;

use testbed::process::Finished;

use super::common::{node, run};

async fn fails<S: AsRef<str>>(args: &[S], says: &[&str]) -> Finished {
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let done = run(&args).await;
    assert!(done.code.is_some_and(|code| code != 0), "{args:?} ended with {:?}", done.code);
    assert!(!done.stderr.contains("panicked"), "{args:?}: {}", done.stderr);
    for word in says {
        assert!(done.stderr.contains(word), "{args:?} does not say {word:?}: {}", done.stderr);
    }
    done
}

async fn fails_in_one_line<S: AsRef<str>>(args: &[S], says: &[&str]) {
    let done = fails(args, says).await;
    assert_eq!(done.stderr.trim_end().lines().count(), 1, "one line: {}", done.stderr);
}

fn config(dir: &Path, name: &str, value: &serde_json::Value) -> String {
    let file = dir.join(name);
    std::fs::write(&file, value.to_string()).unwrap();
    file.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn vminfod_names_the_command_the_root_and_the_port_that_it_cannot_have() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let good = node(dir.path(), 1).vminfod_config_json("127.0.0.1:0");
    for (place, value) in
        [("/commands/zfs", "/nowhere/zfs"), ("/root", "/nowhere/root"), ("/listen", &address)]
    {
        let mut wrong = good.clone();
        *wrong.pointer_mut(place).unwrap() = value.into();
        let file = config(dir.path(), "v.json", &wrong);
        fails_in_one_line(&["@vminfod", "serve", "--config", &file], &[value]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_flags_and_words_are_named() {
    for args in [
        &["@vminfod", "serve", "--nonsense"][..],
        &["@net-agent", "serve", "--nonsense"],
        &["lab", "--nonsense"],
        &["napi", "--nonsense"],
        &["cn", "create", "/tmp/never-made", "--nonsense"],
        &["conform", "vmload", "/tmp", "--nonsense"],
        &["fuzz", "--nonsense"],
    ] {
        fails(args, &["--nonsense"]).await;
    }
    fails(&["nonsense"], &["nonsense"]).await;
    fails(&["conform", "nonsense", "/tmp"], &["nonsense"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_configuration_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.json");
    std::fs::write(&broken, "{\n  \"listen\": ").unwrap();
    let broken = broken.to_string_lossy();
    for daemon in ["@vminfod", "@net-agent"] {
        fails_in_one_line(&[daemon, "serve", "--config", &broken], &["broken.json", "line 2"])
            .await;
    }
    let wrong = serde_json::json!({ "listen": "nowhere", "sweep": "5", "concurrency": 0 });
    let wrong = config(dir.path(), "wrong.json", &wrong);
    let says = ["listen", "sweep", "concurrency"];
    fails_in_one_line(&["@vminfod", "serve", "--config", &wrong], &says).await;
    let missing = dir.path().join("absent.json").to_string_lossy().into_owned();
    fails_in_one_line(&["@vminfod", "serve", "--config", &missing], &["absent.json"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runner_names_what_it_cannot_read() {
    for kind in ["vmload", "napi", "vminfod-events", "vminfod-http", "vmadm-cli", "qmp"] {
        let done = fails(&["conform", kind, "/nowhere/recording"], &["/nowhere/"]).await;
        assert_eq!(done.code, Some(2), "{kind}");
    }
    let done = fails(&["conform", "poems", "/nowhere"], &["no kind", "poems"]).await;
    assert_eq!(done.code, Some(2));
}
