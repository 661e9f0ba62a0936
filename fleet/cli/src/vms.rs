// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `vms` lists VMs, `vm` shows one, wherever it is.

use std::collections::BTreeMap;

use daemon::cli::{Cell, Layout, Screen, Table, Tone, UnknownColumn, facts, span};
use sdc_clients::fleet::{Beat, FleetVm, Mirror};
use sdc_clients::vminfod::VmFields as _;
use serde_json::{Value, json};

use crate::filter::Filter;
use crate::names::Names;

/// What the table has; the usual columns first.
pub(crate) const COLUMNS: [&str; 11] =
    ["alias", "node", "brand", "state", "ram", "ip", "age", "uuid", "owner", "node_uuid", "hidden"];
const USUAL: usize = 7;

/// How old what is shown of each node is.
pub(crate) struct Ages<'a>(BTreeMap<&'a str, &'a Beat>);

impl<'a> Ages<'a> {
    pub(crate) fn of(beats: &'a [Beat]) -> Ages<'a> {
        Ages(beats.iter().map(|beat| (beat.node.cn_uuid.as_str(), beat)).collect())
    }

    /// As a cell: none if nothing was heard of the node.
    fn cell(&self, cn: &str) -> Cell {
        let Some(beat) = self.0.get(cn) else { return Value::Null.into() };
        let age = beat.age;
        match beat.is_up() && beat.node.waits.is_none() {
            true => Cell::shown(age.as_secs(), span(age)),
            false => Cell::toned(span(age), Tone::Odd),
        }
    }
}

/// Lists the VMs that fit; copies that are hidden, such as those of a migration, only with `all`.
pub(crate) fn list(
    mirror: &Mirror,
    filter: &Filter,
    all: bool,
    names: &Names,
    ages: &Ages<'_>,
    layout: &Layout,
    screen: Screen,
) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&COLUMNS).usually(USUAL);
    let mut found: Vec<&FleetVm> = mirror
        .vms()
        .map(AsRef::as_ref)
        .filter(|vm| filter.fits(vm) && (all || !vm.is_hidden()))
        .collect();
    found.sort_by_key(|vm| (vm.object.alias(), vm.uuid.as_str()));
    for vm in found {
        let object = &vm.object;
        let text = |text: Option<&str>| Cell::from(text.map(str::to_owned));
        table.row(vec![
            text(object.alias().or(Some(&vm.uuid))),
            names.node(&vm.cn).into(),
            text(object.brand()),
            text(object.state()),
            object.get("max_physical_memory").cloned().unwrap_or_default().into(),
            text(ip(vm)),
            ages.cell(&vm.cn),
            vm.uuid.as_str().into(),
            text(object.owner_uuid()),
            vm.cn.as_str().into(),
            vm.is_hidden().into(),
        ]);
    }
    table.print(layout, screen)
}

fn ip(vm: &FleetVm) -> Option<&str> {
    let mut nics: Vec<_> = vm.object.nics()?.collect();
    nics.sort_by_key(|nic| !nic.is_primary());
    nics.first()?.ip()
}

/// Shows one VM with all its copies; says whether it is well: on one node, or hidden on all others.
pub(crate) fn one(
    mirror: &Mirror,
    uuid: &str,
    names: &Names,
    ages: &Ages<'_>,
    layout: &Layout,
    screen: Screen,
) -> Result<(String, bool), UnknownColumn> {
    let copies = mirror.find(uuid);
    let shown = copies.iter().filter(|vm| !vm.is_hidden()).count();
    if layout.json || !screen.is_terminal && !layout.asks_for_table() {
        let copy = |vm: &&std::sync::Arc<FleetVm>| {
            json!({"node": names.node(&vm.cn), "node_uuid": vm.cn, "hidden": vm.is_hidden(),
                "position": vm.at.to_string(), "vm": vm.object})
        };
        let all: Vec<Value> = copies.iter().map(copy).collect();
        return Ok((screen.harmless(&format!("{:#}\n", Value::Array(all))), shown < 2));
    }
    if layout.asks_for_table() {
        let fields = copies.first().map(|vm| Value::Object(vm.object.clone())).unwrap_or_default();
        return Ok((daemon::cli::pages::fields(&fields, layout, screen)?, shown < 2));
    }
    let mut text = String::new();
    if shown > 1 {
        let said = format!("{shown} nodes show this VM: one of the copies must not run\n\n");
        text += &screen.paint(Tone::Bad, &said);
    }
    for vm in &copies {
        let object = &vm.object;
        let said = |text: Option<&str>| daemon::cli::table::plain(&json!(text));
        let hidden = if vm.is_hidden() { " (hidden: the copy of a migration)" } else { "" };
        text += &facts(&[
            ("VM", format!("{} {}", said(object.alias()), vm.uuid)),
            ("node", format!("{} {}{hidden}", names.node(&vm.cn), vm.cn)),
            ("state", said(object.state())),
            ("brand", said(object.brand())),
            ("owner", said(object.owner_uuid())),
            ("address", said(ip(vm))),
            ("heard", ages.heard(&vm.cn)),
        ]);
        text.push('\n');
    }
    Ok((text, shown < 2))
}

impl Ages<'_> {
    fn heard(&self, cn: &str) -> String {
        match self.0.get(cn) {
            Some(beat) => format!("{} ago", span(beat.age)),
            None => "-".to_owned(),
        }
    }
}
