// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The program under test.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Longer than anything takes on a busy machine.
const LATE: Duration = Duration::from_secs(120);

/// What a run printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A configuration for both services at `url`, with short waits.
pub fn config(dir: &Path, url: &str) -> String {
    let file = dir.join("sdc-migrate.json");
    let text = serde_json::json!({
        "vmapi_url": url, "cnapi_url": url, "poll": "20ms",
    });
    std::fs::write(&file, text.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[allow(clippy::disallowed_methods)] // the program under test
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdc-migrate"));
    for name in ["VMAPI_URL", "CNAPI_URL", "SDC_MIGRATE_CONFIG", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

/// Runs the program for the service at `url`, to its end.
pub async fn run(url: &str, args: &[&str]) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path(), url);
    run_with(&config, args).await
}

/// The same with this configuration.
pub async fn run_with(config: &str, args: &[&str]) -> Finished {
    let done = command(&[args, &["--config", config]].concat()).output();
    let done = tokio::time::timeout(LATE, done).await.expect("it ends").unwrap();
    Finished {
        code: done.status.code(),
        stdout: String::from_utf8(done.stdout).unwrap(),
        stderr: String::from_utf8(done.stderr).unwrap(),
    }
}

/// A program that runs.
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Starts the program with this configuration.
pub fn start(config: &str, args: &[&str]) -> Running {
    let mut child = command(&[args, &["--config", config]].concat()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Running { child, lines }
}

impl Running {
    /// Returns its next line.
    pub async fn line(&mut self) -> String {
        let line = tokio::time::timeout(LATE, self.lines.next_line()).await;
        line.expect("a line in time").unwrap().expect("a line")
    }

    /// Presses Ctrl-C, and waits for its end.
    pub async fn interrupt(mut self) -> Finished {
        let pid = self.child.id().unwrap().to_string();
        #[allow(clippy::disallowed_methods)] // the same signal as a terminal sends
        let sent = Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
        assert!(sent.success());
        let mut rest = String::new();
        while let Ok(Some(line)) = self.lines.next_line().await {
            rest += &format!("{line}\n");
        }
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        let ended = tokio::time::timeout(LATE, self.child.wait()).await.expect("it ends").unwrap();
        Finished { code: ended.code(), stdout: rest, stderr }
    }
}
