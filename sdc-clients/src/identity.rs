// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a certificate says of its holder: which program of the data centre it is. The certificates themselves are
//! made and checked elsewhere; a [`Transport`](crate::http::Transport) that proves its peer answers for the names here.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// What all names in certificates end with.
const ZONE: &str = "sdc.internal";
const SERVICE: &str = "migration-service";
const AGENT: &str = "migration-agent";
const VOLAPI: &str = "volapi";
const OPERATOR: &str = "operator";

/// A program that has proved who it is, or that is to prove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// migration-service.
    Service,
    /// The migration-agent of this node.
    Agent(Uuid),
    /// The service of shared volumes.
    Volapi,
    /// A person with a key of his own.
    Operator,
}

impl Identity {
    /// Returns the DNS name that its certificate has.
    pub fn name(&self) -> String {
        match self {
            Identity::Service => format!("{SERVICE}.{ZONE}"),
            Identity::Agent(cn) => format!("{cn}.{AGENT}.{ZONE}"),
            Identity::Volapi => format!("{VOLAPI}.{ZONE}"),
            Identity::Operator => format!("{OPERATOR}.{ZONE}"),
        }
    }

    /// Returns the node, of an agent.
    pub fn cn(&self) -> Option<Uuid> {
        match self {
            Identity::Agent(cn) => Some(*cn),
            Identity::Service | Identity::Volapi | Identity::Operator => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Service => f.write_str(SERVICE),
            Identity::Agent(cn) => write!(f, "the {AGENT} of node {cn}"),
            Identity::Volapi => f.write_str(VOLAPI),
            Identity::Operator => write!(f, "an {OPERATOR}"),
        }
    }
}

/// The text is the name of no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it names no program of the data centre")]
pub struct NoIdentity;

impl FromStr for Identity {
    type Err = NoIdentity;

    /// Reads a name of a certificate.
    fn from_str(name: &str) -> Result<Identity, NoIdentity> {
        let rest = name.strip_suffix(ZONE).and_then(|rest| rest.strip_suffix('.'));
        let rest = rest.ok_or(NoIdentity)?;
        let identity = match rest.split_once('.') {
            None if rest == SERVICE => Identity::Service,
            None if rest == VOLAPI => Identity::Volapi,
            None if rest == OPERATOR => Identity::Operator,
            Some((cn, AGENT)) => Identity::Agent(cn.parse().map_err(|_| NoIdentity)?),
            _ => return Err(NoIdentity),
        };
        // One identity, one spelling.
        if identity.name() == name { Ok(identity) } else { Err(NoIdentity) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_program_and_has_one_spelling() {
        let cn = Uuid::from_u128(0xa0);
        for identity in
            [Identity::Service, Identity::Agent(cn), Identity::Volapi, Identity::Operator]
        {
            assert_eq!(identity.name().parse(), Ok(identity));
        }
        let upper = format!("{}.{AGENT}.{ZONE}", Uuid::from_u128(0xa0).to_string().to_uppercase());
        let simple = format!("{}.{AGENT}.{ZONE}", cn.simple());
        for name in [
            "",
            ZONE,
            ".sdc.internal",
            "x.migration-service.sdc.internal",
            "migration-agent.sdc.internal",
            "x.migration-agent.sdc.internal",
            "migration-service.sdc.internal.",
            "migration-servicesdc.internal",
            "migration-service.example",
            &upper,
            &simple,
        ] {
            assert_eq!(name.parse::<Identity>(), Err(NoIdentity), "{name}");
        }
    }
}
