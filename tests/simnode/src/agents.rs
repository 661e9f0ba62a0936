// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What installs the agents of a node and counts them: apm, cn-agent's list, config-agent, and the small programs of the
//! platform that the scripts of packages run. Packages and scripts are real; they run with the node's root in `HUB_ROOT`.

pub mod apm; // installs, replaces and removes a package

pub(crate) mod small; // `uuid`, `json`, `bootparams`, `logadm`

pub mod config_agent; // writes the configuration that SAPI has for an agent

pub mod listed; // the list of agents that CNAPI gets

mod script; // runs a script of a package

pub use script::AGENTS;

use crate::error::NodeError;
use crate::files;
use crate::node::Node;

impl Node {
    /// Lays what a node of Triton has before an agent is installed: apm, and the address of SAPI.
    pub fn lay_agents(&self, sapi_domain: &str) -> Result<(), NodeError> {
        let config = format!("load_sdc_config() {{ CONFIG_sapi_domain='{sapi_domain}'; }}\n");
        let apm = format!("#!/bin/sh\nexec '{}' \"$@\"\n", self.platform("apm").display());
        let smf = "SMF_EXIT_OK=0\nSMF_EXIT_ERR_FATAL=95\nSMF_EXIT_ERR_CONFIG=96\n";
        for (place, text) in [
            ("/lib/sdc/config.sh".to_owned(), config),
            ("/lib/svc/share/smf_include.sh".to_owned(), smf.to_owned()),
            ("/etc/logadm.conf".to_owned(), "smf_logs -C 8 -s 1m /var/svc/log/*.log\n".to_owned()),
            (format!("{AGENTS}/bin/apm"), apm),
        ] {
            let path = self.path(&place);
            path.parent().map_or(Ok(()), files::make_dir)?;
            files::replace(&path, text.as_bytes())?;
        }
        script::make_executable(&self.path(&format!("{AGENTS}/bin/apm")))
    }
}
