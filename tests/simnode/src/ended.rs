// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The end of a command.

use crate::error::NodeError;

/// The end of a command.
pub(crate) enum Ended {
    /// Status 0 and this output.
    Printed(String),
    /// A line on stderr and a status.
    Failed(u8, String),
}

impl From<NodeError> for Ended {
    fn from(error: NodeError) -> Ended {
        Ended::Failed(1, error.to_string())
    }
}
