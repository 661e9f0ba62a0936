// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `docs/mocks.md`: its commands as they stand there, its test in Python, and its table of doors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sdc_clients::Http;
use sdc_clients::http::Call;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const LATE: Duration = Duration::from_secs(60);
/// The services in the order of their lines, as the page calls them, and their ports there.
const SERVICES: [&str; 6] = ["NAPI", "VMAPI", "CNAPI", "PAPI", "IMGAPI", "workflow"];
const PORTS: [u16; 6] = [8080, 8081, 8082, 8083, 8084, 8085];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(repository().join("docs/mocks.md")).unwrap()
}

/// The blocks of indented lines of which the first begins with one of these words.
fn blocks(page: &str, words: &[&str]) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in page.lines() {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(code), Some(block)) => *block += &format!("{code}\n"),
            _ => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| words.iter().any(|word| block.starts_with(word)));
    blocks
}

/// Starts the mocks as the page says, on free ports; their URLs.
#[allow(clippy::disallowed_methods)] // It starts the program under test.
async fn start(page: &str) -> (Child, Vec<String>) {
    let [line] = &blocks(page, &["cargo run -p mock-triton"])[..] else {
        panic!("one command: {page}")
    };
    let args = line.trim().strip_prefix("cargo run -p mock-triton -- ").unwrap();
    let args = PORTS.iter().fold(args.replace("\\\n", ""), |args, port| {
        args.replace(&format!("127.0.0.1:{port}"), "127.0.0.1:0")
    });
    let mut mocks = Command::new(env!("CARGO_BIN_EXE_mock-triton"))
        .args(args.split_whitespace())
        .current_dir(repository())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(mocks.stdout.take().unwrap()).lines();
    let mut url = async || {
        let line = tokio::time::timeout(LATE, lines.next_line()).await.unwrap().unwrap().unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let mut urls = Vec::new();
    for _ in SERVICES {
        urls.push(url().await);
    }
    (mocks, urls)
}

/// Runs a program to its end; what it printed.
#[allow(clippy::disallowed_methods)] // These are the page's own commands.
async fn run(program: &str, args: &[&str], dir: &Path, napi: &str) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).env("NAPI", napi).kill_on_drop(true);
    let done = tokio::time::timeout(LATE, command.output()).await.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, said) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{program} {args:?}\n{printed}\n{said}");
    printed
}

#[tokio::test]
async fn each_command_answers_as_written() {
    let page = page();
    let (_mocks, urls) = start(&page).await;
    let blocks = blocks(&page, &["N=", "T=", "curl "]);
    let script = blocks.join("echo ==\n");
    let here = PORTS.iter().zip(&urls).fold(script, |script, (port, url)| {
        script.replace(&format!("http://127.0.0.1:{port}"), url)
    });
    // Each answer on lines of its own.
    let curl = "set -euo pipefail\ncurl() { command curl --max-time 60 -w '\\n' \"$@\"; }\n";
    let printed =
        run("/bin/bash", &["-c", &format!("{curl}{here}")], &repository(), &urls[0]).await;
    let printed: Vec<&str> = printed.split("==\n").collect();
    let expected = [
        &[
            "\"ip\":\"10.99.99.11\"",
            "\"alias\":\"web-0\"",
            "\"ip4addr\":\"10.99.99.7\"",
            "sample-1G",
            "\"name\":\"base\"",
            "\"execution\":\"running\"",
        ][..],
        &["GET /_mock/requests"],
        &["{\"nics\":2}\n{}"],
        &["{\"added\":1}", "\"status\":503", "\"seen\":1"],
        &["\"status\":503", "90b8d0000002", "curl/"],
        &[
            "\"era\":\"master\"",
            "90:b8:d0:00:00:02",
            "{\"era\":\"rfd58\"}\n{\"era\":\"rfd58\"}\n{}",
        ],
        &["\"status\":\"queued\"", "\"status\":\"active\""],
        &["\"status\":\"failure\"", "VM is busy"],
        &["\"execution\":\"failed\""],
        &["\"subResources\":[\"alias\""],
        &["sdc_volume_nfs_10", "\"image_uuid\":\"b0000000-0000-4000-8000-000000000002\""],
    ];
    assert_eq!(printed.len(), expected.len(), "{printed:#?}");
    for (printed, expected) in printed.iter().zip(expected) {
        for part in expected {
            assert!(printed.contains(part), "{part}: {printed}");
        }
    }
}

#[tokio::test]
async fn the_test_in_python_passes_and_can_fail() {
    let page = page();
    let (_, code) = page.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let (_mocks, urls) = start(&page).await;
    let napi = &urls[0];
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("test_napi.py"), code).unwrap();
    run("python3", &["-m", "unittest", "test_napi"], dir.path(), napi).await;
    // A NAPI without etags deletes it.
    let http = Http::new(napi, "test/1").unwrap();
    let era = Call::new(http::Method::PUT, &["_mock", "era"]);
    http.execute(era.json(&serde_json::json!({"era": "era-c"}))).await.unwrap();
    let failed = "python3 -m unittest test_napi 2>&1 | grep '^FAILED'";
    run("/bin/bash", &["-c", failed], dir.path(), napi).await;
}

#[tokio::test]
async fn the_table_of_doors_is_what_the_mocks_list() {
    let page = page();
    let (_mocks, urls) = start(&page).await;
    let mut listed = BTreeSet::new();
    for (service, url) in SERVICES.iter().zip(&urls) {
        let http = Http::new(url, "test/1").unwrap();
        let answer = http.execute(Call::get(&["_mock"])).await.unwrap().object().unwrap();
        listed.extend(answer["doors"].as_object().unwrap().keys().map(|d| (d.clone(), *service)));
    }
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows = rows.filter(|(door, _)| door.contains(" /_mock/"));
    let told: BTreeSet<(String, &str)> = rows
        .flat_map(|(door, rest)| {
            let told = rest.split(" | ").next().unwrap();
            let has_it = move |service: &&&str| told == "all" || told == **service;
            SERVICES.iter().filter(has_it).map(move |service| (door.to_owned(), *service))
        })
        .collect();
    assert_eq!(told, listed);
}
