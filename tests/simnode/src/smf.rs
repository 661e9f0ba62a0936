// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's `svcs` and `svcadm`, as far as our scripts and programs use them. The instances and their states
//! are in the node's directory; no process is started or ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::NodeError;
use crate::files;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;

/// A service's instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Such as `online`.
    pub state: String,
    /// How often `svcadm` restarted it.
    pub restarts: u32,
}

/// The instances by their FMRI.
pub type Instances = BTreeMap<String, Instance>;

impl Node {
    /// The instances that SMF knows.
    pub fn instances(&self) -> Result<Instances, NodeError> {
        let path = self.state_dir().join("smf.json");
        if path.exists() { files::read_json(&path) } else { Ok(Instances::new()) }
    }

    /// Makes an instance, or gives it another state.
    pub fn set_instance(&self, fmri: &str, state: &str) -> Result<(), NodeError> {
        let mut all = self.instances()?;
        state.clone_into(&mut all.entry(fmri.to_owned()).or_default().state);
        self.save_instances(&all)
    }

    fn save_instances(&self, all: &Instances) -> Result<(), NodeError> {
        files::write_json(&self.state_dir().join("smf.json"), &json!(all))
    }
}

fn unknown(command: &str, fmri: &str) -> Failed {
    Failed(1, format!("{command}: Pattern '{fmri}' doesn't match any instances"))
}

/// `svcs -H -o state FMRI`.
pub(crate) fn svcs(node: &Node, args: &[String]) -> Ended {
    let usage = |what: &str| {
        Failed(2, format!("svcs: {what}\nUsage: svcs [-aHpv] [-o col[,col ... ]] [<service> ...]"))
    };
    let parsed = Parsed::read(args, "H", "o").map_err(|what| usage(&what))?;
    let (true, Some("state"), [fmri]) =
        (parsed.has('H'), parsed.value('o'), parsed.operands.as_slice())
    else {
        return Err(usage("this node knows svcs -H -o state FMRI"));
    };
    match node.instances()?.get(fmri) {
        Some(instance) => Ok(format!("{}\n", instance.state)),
        None => Err(unknown("svcs", fmri)),
    }
}

/// `svcadm restart|enable|disable [-st] FMRI`.
pub(crate) fn svcadm(node: &Node, args: &[String]) -> Ended {
    let usage = || Failed(2, "Usage: svcadm [-v] [-Z | -z zone ] [cmd [args ... ]]".to_owned());
    let (verb, rest) = args.split_first().ok_or_else(usage)?;
    let parsed = Parsed::read(rest, "st", "").map_err(|_| usage())?;
    let [fmri] = parsed.operands.as_slice() else { return Err(usage()) };
    let mut all = node.instances()?;
    let instance = all.get_mut(fmri).ok_or_else(|| unknown("svcadm", fmri))?;
    match verb.as_str() {
        // A service that does not run is not started by it.
        "restart" if instance.state == "online" => instance.restarts += 1,
        "restart" => {}
        "enable" if instance.state == "disabled" => "online".clone_into(&mut instance.state),
        "enable" => {}
        "disable" => "disabled".clone_into(&mut instance.state),
        _ => return Err(usage()),
    }
    node.save_instances(&all)?;
    Ok(String::new())
}
