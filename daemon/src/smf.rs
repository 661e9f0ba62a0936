// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whose program an SMF service starts: a node has one net-agent and one vm-agent, ours or the deployed one, under the
//! same name.

use std::time::Duration;

use crate::command::{Call, CommandError, Commands, Program};

/// How long `svcprop` may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Whose program a service starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Ours.
    Ours,
    /// The deployed one, which node.js runs.
    Deployed,
    /// Neither.
    Another,
}

/// Returns whose agent of this name a start method is, as `svcprop -p start/exec` prints it: a space has a backslash
/// before it.
pub fn whose(name: &str, start: &str) -> Whose {
    let start = start.replace("\\ ", " ");
    let mut words = start.split_whitespace();
    let method = format!("lib/node_modules/{name}/smf/{name}");
    match words.next() {
        Some(first) if first.ends_with(&method) => Whose::Ours,
        Some(first) if first.ends_with("/node") || words.any(|word| word.ends_with("/node")) => {
            Whose::Deployed
        }
        _ => Whose::Another,
    }
}

/// Returns whose agent of this name SMF starts; none if it knows no such service.
pub async fn whose_service(
    commands: &dyn Commands,
    name: &str,
) -> Result<Option<Whose>, CommandError> {
    let args = ["-p", "start/exec", name].map(str::to_owned).to_vec();
    let output = commands.run(Call::new(Program::Svcprop, args, DEADLINE)).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok((output.status == 0).then(|| whose(name, &text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_method_says_whose_agent_it_is() {
        let agents = "/opt/smartdc/agents/lib/node_modules";
        for (start, want) in [
            (format!("{agents}/vm-agent/smf/vm-agent\\ start\n"), Whose::Ours),
            (format!("{agents}/vm-agent/smf/vm-agent start"), Whose::Ours),
            (
                format!(
                    "{agents}/vm-agent/node/bin/node\\ {agents}/vm-agent/bin/vm-agent.js\\ &\n"
                ),
                Whose::Deployed,
            ),
            (format!("exec\\ {agents}/vm-agent/node/bin/node\\ bin/vm-agent.js"), Whose::Deployed),
            (format!("{agents}/net-agent/smf/net-agent start"), Whose::Another),
            ("/usr/bin/true".to_owned(), Whose::Another),
            (String::new(), Whose::Another),
        ] {
            assert_eq!(whose("vm-agent", &start), want, "{start}");
        }
    }
}
