// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which vm-agent keeps VMAPI's records of a node's VMs.
//!
//! The deployed one compares at its start what VMAPI lists on its node with the VMs that are not hidden there, and
//! reports destroyed what it misses. So while both copies of a VM are hidden, or VMAPI still names the node of the
//! hidden one, a restart of it has VMAPI believe that the VM is gone.

use serde::{Deserialize, Serialize};

/// The vm-agent of a node, as its migration-agent finds it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VmAgent {
    /// Ours, which reports no hidden VM destroyed.
    Ours,
    /// The deployed one.
    Deployed,
    /// Not known: the agent of an earlier version does not report it, or the node does not show it.
    #[default]
    #[serde(other)]
    Unknown,
}

impl VmAgent {
    /// Returns why a migration does not rely on it, for people; none if it does.
    pub fn against(self) -> Option<&'static str> {
        match self {
            VmAgent::Ours => None,
            VmAgent::Deployed => Some(
                "is the deployed one, which reports a hidden copy destroyed when it starts: install ours there (`hub \
                 check` there shows it), or use --force",
            ),
            VmAgent::Unknown => Some(
                "does not answer, and nothing shows which one is installed: see `svcprop -p start/exec vm-agent` \
                 there, or use --force",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_agent_calls_it_is_not_known() {
        for (text, want) in [
            ("\"ours\"", VmAgent::Ours),
            ("\"deployed\"", VmAgent::Deployed),
            ("\"unknown\"", VmAgent::Unknown),
            ("\"something\"", VmAgent::Unknown),
        ] {
            assert_eq!(serde_json::from_str::<VmAgent>(text).unwrap(), want, "{text}");
        }
        assert_eq!(VmAgent::default(), VmAgent::Unknown);
    }
}
