// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is installed, and how it is run.

use std::time::Duration;

use daemon::command::{Call, CommandError, Commands, Output, Program, Spawned};

use super::finding::Finding;
use crate::place::Place;

/// How long a command may take: a node with many snapshots is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The node's programs.
pub struct Programs(pub Spawned);

impl Programs {
    pub(super) fn of(place: &Place) -> Programs {
        Programs(Spawned::new(place.commands.clone()))
    }

    /// Runs a program to its end.
    pub(super) async fn run(
        &self,
        program: Program,
        args: &[&str],
    ) -> Result<Output, CommandError> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.0.run(Call::new(program, args, PATIENCE)).await
    }

    /// Runs a program to its end; returns what it printed, or why that does not count.
    pub(super) async fn printed(&self, program: Program, args: &[&str]) -> Result<Vec<u8>, String> {
        match self.run(program, args).await {
            Ok(output) if output.status == 0 => Ok(output.stdout),
            // What it complains of may have names in it.
            Ok(output) => Err(format!("{program} ended with status {}", output.status)),
            Err(CommandError::Spawn { error, .. }) => {
                Err(format!("{program} cannot be started: {}", error.kind()))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Looks whether each program is there.
pub(super) fn check(place: &Place) -> Vec<Finding> {
    let is_program = |program: &Program| {
        use std::os::unix::fs::PermissionsExt;
        let meta = std::fs::metadata(place.commands.of(*program));
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let lacking: Vec<String> = place
        .wanted
        .iter()
        .filter(|program| !is_program(program))
        .map(|program| format!("{} is no program", place.commands.of(*program).display()))
        .collect();
    vec![Finding::unless("B1", &lacking, format!("{} programs", place.wanted.len()))]
}
