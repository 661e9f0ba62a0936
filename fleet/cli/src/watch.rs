// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `watch`: what happens, a line each, until it is interrupted.

use std::io;

use daemon::cli::screen::{self, visible};
use sdc_clients::fleet::{FleetEvent, FleetVm, Follower};
use sdc_clients::vminfod::VmFields as _;
use serde_json::json;

use crate::filter::Filter;
use crate::names::Names;

/// Prints what happens to the VMs that fit, for ever.
pub(crate) async fn watch(
    follower: &mut Follower,
    filter: &Filter,
    names: &Names,
    as_json: bool,
) -> io::Result<()> {
    loop {
        let event = follower.next().await;
        if let Some(line) = line(&event, filter, names, as_json) {
            screen::write(&format!("{line}\n"))?;
        }
    }
}

/// Returns the line of an event; none for a VM that does not fit.
fn line(event: &FleetEvent, filter: &Filter, names: &Names, as_json: bool) -> Option<String> {
    let (vm, what, changed) = match event {
        FleetEvent::Changed { vm, is_new: true, .. } => (Some(vm), "new".to_owned(), Vec::new()),
        FleetEvent::Changed { vm, changes, .. } => {
            let mut paths: Vec<String> = changes.iter().map(|it| it.pretty_path.clone()).collect();
            paths.dedup();
            let what = if paths.is_empty() { "differs" } else { "changed" };
            (Some(vm), what.to_owned(), paths)
        }
        FleetEvent::Gone { vm, .. } => (Some(vm), "gone".to_owned(), Vec::new()),
        FleetEvent::Resync { cn } => (
            None,
            format!("{}: what happened before is not completely known", names.node(cn)),
            Vec::new(),
        ),
        FleetEvent::Hole | FleetEvent::Again => {
            (None, "what happened before is not completely known".to_owned(), Vec::new())
        }
        FleetEvent::Odd { subject } => {
            (None, format!("{subject}: a message that no agent wrote"), Vec::new())
        }
        FleetEvent::Lost(error) => (None, format!("waiting: {error}"), Vec::new()),
        FleetEvent::Synced => (None, "complete".to_owned(), Vec::new()),
    };
    if vm.is_some_and(|vm| !filter.fits(vm)) {
        return None;
    }
    let name = |vm: &FleetVm| vm.object.alias().unwrap_or(&vm.uuid).to_owned();
    Some(match as_json {
        true => {
            let node = vm.map(|vm| names.node(&vm.cn));
            json!({"what": what, "node": node, "node_uuid": vm.map(|vm| &vm.cn),
                "vm": vm.map(|vm| &vm.uuid), "alias": vm.map(|vm| name(vm)),
                "state": vm.and_then(|vm| vm.object.state()), "changed": changed})
            .to_string()
        }
        false => match vm {
            Some(vm) => {
                let state = vm.object.state().unwrap_or("-");
                let text = format!(
                    "{} {} {what} {state} {}",
                    names.node(&vm.cn),
                    name(vm),
                    changed.join(", ")
                );
                visible(text.trim_end())
            }
            None if matches!(event, FleetEvent::Synced) => {
                "what happens from now on follows".into()
            }
            None => visible(&what),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sdc_clients::fleet::Position;

    use super::*;

    #[test]
    fn a_line_has_names_first_and_no_control_characters() {
        let object = json!({"alias": "web\u{1b}[2J", "state": "running"});
        let vm = Arc::new(FleetVm {
            cn: "c1".into(),
            uuid: "u1".into(),
            object: object.as_object().unwrap().clone(),
            at: Position { epoch: "e".into(), seq: 1 },
            seq: 1,
        });
        let event = FleetEvent::Gone { at: vm.at.clone(), vm, compared: false };
        let said = line(&event, &Filter::default(), &Names::default(), false).unwrap();
        assert_eq!(said, "c1 web\\u001b[2J gone running");
        let json: serde_json::Value = serde_json::from_str(
            &line(&event, &Filter::default(), &Names::default(), true).unwrap(),
        )
        .unwrap();
        assert_eq!((&json["what"], &json["vm"]), (&json!("gone"), &json!("u1")));
        let words = ["state=stopped".to_owned()];
        let other = Filter::of(&words, &Names::default()).unwrap();
        assert_eq!(line(&event, &other, &Names::default(), false), None);
    }
}
