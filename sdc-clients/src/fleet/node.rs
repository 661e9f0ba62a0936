// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a node says about itself with each heartbeat: who publishes it, its programs, what needs a person. Pure.

use serde::{Deserialize, Serialize};

use super::message::Position;

/// A program that publishes a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// This start of it.
    pub instance: String,
    /// The state directory that it runs on: another one is another machine.
    pub machine: String,
    /// The name of the machine.
    pub hostname: Option<String>,
    /// Its version.
    pub version: String,
}

/// The entry of a node in the bucket `NODES`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The node.
    pub cn_uuid: String,
    /// Who publishes it.
    pub claim: Claim,
    /// Another program that also says to be this node, and publishes nothing.
    #[serde(default)]
    pub rival: Option<Claim>,
    /// The time between heartbeats, in seconds.
    pub every_s: u64,
    /// The last event that is published; none while the node is being compared.
    pub position: Option<Position>,
    /// How many VMs the node has, as far as it is published.
    pub vms: u64,
    /// What the agent waits for, in words; none: nothing.
    pub waits: Option<String>,
    /// Its programs.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// What needs a person.
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// A program of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its version; none while it does not answer.
    pub version: Option<String>,
    /// The holds in force.
    #[serde(default)]
    pub holds: u64,
}

/// What is typed on a node that is not heard.
pub const NOT_HEARD: &str = "svcs -xv fleet-agent";

/// Something that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The program that says so.
    pub program: String,
    /// What it is.
    pub what: What,
    /// In words.
    pub text: String,
}

/// What needs a person.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Two programs say to be this node.
    Claimed,
    /// A brake blocks what a program would do.
    Brake,
    /// A program does not answer.
    Down,
    /// It cannot keep what must outlive it.
    Memory,
    /// It writes nothing, though it is on.
    Mute,
    /// vminfod cannot read all of the node.
    Incomplete,
    /// One that this version does not know.
    #[serde(untagged)]
    Other(String),
}

impl What {
    /// Returns its name.
    pub fn name(&self) -> &str {
        match self {
            What::Claimed => "claimed",
            What::Brake => "brake",
            What::Down => "down",
            What::Memory => "memory",
            What::Mute => "mute",
            What::Incomplete => "incomplete",
            What::Other(name) => name,
        }
    }
}

impl Need {
    /// Returns the command that helps, to be typed on the node.
    pub fn command(&self) -> String {
        let program = &self.program;
        match self.what {
            What::Claimed => "sysinfo | json UUID".to_owned(),
            What::Brake => format!("{program} plan"),
            What::Down => format!("svcs -xv {program}"),
            What::Memory => format!("svcs -L {program}"),
            What::Incomplete => format!("{program} status --full"),
            What::Mute | What::Other(_) => format!("{program} status"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_of_a_later_version_keeps_its_name() {
        let need: Need =
            serde_json::from_str(r#"{"program": "x", "what": "flooded", "text": "t"}"#).unwrap();
        assert_eq!((need.what.name(), need.command().as_str()), ("flooded", "x status"));
        let known: What = serde_json::from_str("\"brake\"").unwrap();
        assert_eq!(known, What::Brake);
        assert_eq!(serde_json::to_string(&What::Claimed).unwrap(), "\"claimed\"");
    }
}
