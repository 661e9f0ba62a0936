// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which vm-agent the node has: ours answers on its socket, which the deployed one does not have. Where none answers,
//! SMF says which one it starts.

use std::path::PathBuf;
use std::time::Duration;

use daemon::cli::control::ask;
use daemon::command::Commands;
use daemon::smf::{Whose, whose_service};
use migration_core::vm_agent::VmAgent;

/// How long the socket may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What our vm-agent's status has and no other program's.
const MARK: &str = "hidden";

/// The vm-agent of the node.
#[derive(Debug)]
pub struct VmAgents {
    socket: PathBuf,
}

impl VmAgents {
    /// The one whose socket would be this.
    pub fn new(socket: PathBuf) -> VmAgents {
        VmAgents { socket }
    }

    /// Returns which one it is now.
    pub async fn find(&self, commands: &dyn Commands) -> VmAgent {
        let asked = ask(&self.socket, "GET", "/status", None, MARK);
        if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, asked).await {
            return VmAgent::Ours;
        }
        match whose_service(commands, "vm-agent").await {
            Ok(Some(Whose::Ours)) => VmAgent::Ours,
            Ok(Some(Whose::Deployed)) => VmAgent::Deployed,
            Ok(Some(Whose::Another) | None) => VmAgent::Unknown,
            Err(error) => {
                tracing::warn!(%error, "cannot tell which vm-agent this node has; a begin here is refused without --force");
                VmAgent::Unknown
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use daemon::command::{Call, CommandError, Launch, Output, Program, Run, Running};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    use super::*;

    /// SMF, which prints this of vm-agent's service and counts how often it was asked.
    struct Smf(Option<&'static str>, Mutex<u32>);

    impl Commands for Smf {
        fn run(&self, call: Call) -> Run<'_> {
            assert_eq!(call.program, Program::Svcprop);
            assert_eq!(call.args, ["-p", "start/exec", "vm-agent"]);
            *self.1.lock().unwrap() += 1;
            let status = i32::from(self.0.is_none());
            let stdout = self.0.unwrap_or_default().as_bytes().to_vec();
            Box::pin(async move { Ok(Output { status, stdout, stderr: Vec::new() }) })
        }

        fn start(&self, _launch: Launch) -> Result<Running, CommandError> {
            unreachable!("svcprop is run to its end")
        }
    }

    /// Answers one request at the socket with this body.
    fn answers(socket: &Path, body: &'static str) {
        let listener = UnixListener::bind(socket).unwrap();
        drop(tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 1024];
            let _some = stream.read(&mut asked).await.unwrap();
            let answer = format!("HTTP/1.0 200 OK\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }));
    }

    #[tokio::test] // M197
    async fn the_socket_of_ours_is_asked_first_and_smf_where_it_does_not_answer() {
        const OURS: &str = "/opt/smartdc/agents/lib/node_modules/vm-agent/smf/vm-agent\\ start\n";
        const THEIRS: &str = "/opt/smartdc/agents/lib/node_modules/vm-agent/node/bin/node\\ x.js\n";
        for (body, smf, want, asked) in [
            (Some(r#"{"hidden": 0}"#), Some(THEIRS), VmAgent::Ours, 0),
            (Some(r#"{"other": 0}"#), Some(THEIRS), VmAgent::Deployed, 1),
            (None, Some(THEIRS), VmAgent::Deployed, 1),
            (None, Some(OURS), VmAgent::Ours, 1),
            (None, Some("/usr/bin/true\n"), VmAgent::Unknown, 1),
            (None, None, VmAgent::Unknown, 1),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let socket = dir.path().join("control.sock");
            if let Some(body) = body {
                answers(&socket, body);
            }
            let smf = Smf(smf, Mutex::default());
            assert_eq!(VmAgents::new(socket).find(&smf).await, want, "{body:?} {:?}", smf.0);
            assert_eq!(*smf.1.lock().unwrap(), asked, "{body:?} {:?}", smf.0);
        }
    }
}
