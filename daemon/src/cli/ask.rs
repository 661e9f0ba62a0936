// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Questions before something is done.

use std::io::{self, IsTerminal as _, Write as _};

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
