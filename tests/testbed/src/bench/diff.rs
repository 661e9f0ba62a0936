// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Comparing two objects.

use anyhow::Context;
use serde_json::{Value, json};
use vm_model::diff::diff;

use super::limits::{hashing, repeated};
use super::served::Served;
use super::setting::Bench;
use super::table::{Row, Samples, Unit};

const TIMES: u32 = 2000;
const LONG: usize = 5000;

pub(super) async fn run(bench: &mut Bench) -> anyhow::Result<Vec<Row>> {
    let cn = bench.node(12).await?;
    let served = Served::start(cn, json!({ "sweep": "1h" })).await?;
    let vms = served.json("/vms").await?;
    served.stop().await?;
    // The largest of them, so that nothing is left out.
    let vms = vms.as_array().context("no list")?;
    let vm = vms.iter().max_by_key(|vm| vm.to_string().len()).context("no VM")?;
    let text = vm_model::js::to_ascii(vm);
    let old = vm.as_object().context("no object")?.clone();
    let same = old.clone();
    let mut new = old.clone();
    new.insert("alias".into(), "another".into());
    new.insert("zfs_io_priority".into(), 77.into());

    let mut columns = [const { Vec::new() }; 5];
    for _ in 0..bench.rounds {
        let equal = repeated(TIMES, || diff(&old, &same));
        let two = repeated(TIMES, || diff(&old, &new));
        let hash = hashing(text.as_bytes(), TIMES);
        let parse = repeated(TIMES, || serde_json::from_str::<Value>(&text));
        let growth = array(LONG) / array(LONG / 2);
        for (column, value) in columns.iter_mut().zip([equal, two, hash, parse, growth]) {
            column.push(value);
        }
    }
    let [equal, two, hash, parse, growth] = columns.map(Samples::of);
    Ok(vec![
        Row::new("diff, equal", Unit::Time, &equal).against("hashing", hash.median(), 2.0),
        Row::new("diff, two changes", Unit::Time, &two).against("parsing", parse.median(), 0.3),
        Row::new("diff, 5,000 elements to 2,500", Unit::Count, &growth)
            .against("times as long", 1.0, 2.5)
            .note("linear is 2"),
    ])
}

/// How long two arrays of so many nics take of which every one has changed.
fn array(len: usize) -> f64 {
    let nics = |more: usize| -> Value {
        (0..len).map(|n| json!({ "mac": format!("02:08:20:{n:06x}"), "ip": n + more })).collect()
    };
    let vm = |nics: Value| json!({ "nics": nics }).as_object().cloned().unwrap_or_default();
    let (old, new) = (vm(nics(0)), vm(nics(1)));
    repeated(5, || diff(&old, &new))
}
