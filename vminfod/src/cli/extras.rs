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
    let mut command = Cli::command();
    let Some(dir) = dir else {
        return Ok(String::from_utf8_lossy(&page(command, NAME)?).into_owned());
    };
    std::fs::create_dir_all(dir)?;
    command.build();
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        let name = format!("{NAME}-{}", part.get_name());
        let page = page(part.clone(), &name)?;
        std::fs::write(dir.join(name + ".8"), page)?;
    }
    std::fs::write(dir.join(format!("{NAME}.8")), page(command, NAME)?)?;
    Ok(String::new())
}

fn page(command: clap::Command, title: &str) -> Result<Vec<u8>, Problem> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).title(title).section("8").render(&mut page)?;
    Ok(page)
}
