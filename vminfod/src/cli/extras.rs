// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Completions and manual pages, made from the grammar itself.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell as Known, generate};

use super::NAME;
use super::args::{Cli, Shell};
use super::problem::Problem;

/// The script for a shell.
pub fn completions(shell: Shell) -> String {
    let known = match shell {
        Shell::Bash => Known::Bash,
        Shell::Elvish => Known::Elvish,
        Shell::Fish => Known::Fish,
        Shell::Powershell => Known::PowerShell,
        Shell::Zsh => Known::Zsh,
    };
    let mut script = Vec::new();
    generate(known, &mut Cli::command(), NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The page of the program; with a directory, the pages of all commands are written there.
pub fn man(dir: Option<&Path>) -> Result<String, Problem> {
    let command = Cli::command();
    match dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            clap_mangen::generate_to(command, dir)?;
            Ok(String::new())
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).section("8").render(&mut page)?;
            Ok(String::from_utf8_lossy(&page).into_owned())
        }
    }
}
