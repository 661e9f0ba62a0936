// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Questions before something is done.

use std::io::{self, IsTerminal as _, Write as _};

use super::program::Usage;

/// Returns true if a person can answer a question.
pub fn is_answered() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Says what would be done, and asks whether to go on. A no is acknowledged.
pub fn goes_on(text: &str) -> io::Result<bool> {
    let mut err = io::stderr().lock();
    write!(err, "{text}\nDo you wish to continue y/n? ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        writeln!(err, "Nothing was done.")?;
    }
    Ok(is_yes)
}

/// Says what is lost, and returns true if it was confirmed: by `-y`, else by a person.
///
/// # Errors
/// If there is no terminal to ask on.
pub fn confirmed<E: From<Usage> + From<io::Error>>(text: &str, yes: bool) -> Result<bool, E> {
    if yes {
        return Ok(true);
    }
    if !is_answered() {
        let what = text.lines().collect::<Vec<_>>().join(" ");
        return Err(Usage(format!("{what} Confirm it with -y")).into());
    }
    Ok(goes_on(text)?)
}
