// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `testbed shadow HERE THERE`: compares the VMs that two daemons on one node answer, ours at HERE and the
//! deployed one at THERE, and prints each difference that lasts, by field, once; and once more when it is gone.
//!
//! It reads both over HTTP and changes nothing. A daemon that does not answer is a line, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sdc_clients::Error;
use sdc_clients::vminfod::{VmObject, Vminfod, key_of};
use vm_model::diff::{Shown, diff};

use crate::arguments::command;

/// The most differences of one comparison that are printed; the rest are counted.
const PRINTED: usize = 200;

/// What differs of one VM: path and both sides as text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The VM's zonename.
    pub zonename: String,
    /// The field, `(whole object)` where one side has none.
    pub path: String,
    /// The value of this daemon; empty: none.
    pub here: String,
    /// The value of the deployed daemon; empty: none.
    pub there: String,
}

/// Every difference between two answers to `/vms`. Pure.
pub fn differences(here: &[VmObject], there: &[VmObject]) -> BTreeSet<Difference> {
    let (here, there) = (by_key(here), by_key(there));
    let mut all = BTreeSet::new();
    let names: BTreeSet<&str> = here.keys().chain(there.keys()).copied().collect();
    for name in names {
        let mut differ = |path: String, here: String, there: String| {
            all.insert(Difference { zonename: name.to_owned(), path, here, there });
        };
        if let (Some(here), Some(there)) = (here.get(name), there.get(name)) {
            for change in diff(there, here) {
                let text = |value: Option<Shown<'_>>| Some(value?.value()?.to_string());
                let [here, there] = [change.new_value, change.old_value].map(text);
                differ(change.pretty_path, here.unwrap_or_default(), there.unwrap_or_default());
            }
        } else {
            let side = |has: bool| if has { "present" } else { "" }.to_owned();
            let (here, there) = (here.contains_key(name), there.contains_key(name));
            differ("(whole object)".to_owned(), side(here), side(there));
        }
    }
    all
}

fn by_key(vms: &[VmObject]) -> BTreeMap<&str, &VmObject> {
    vms.iter().filter_map(|vm| Some((key_of(vm)?, vm))).collect()
}

/// The differences so far. Only one that lasts from one comparison to the next is reported: the two
/// daemons do not read a change at the same moment.
#[derive(Debug, Default)]
pub struct Ledger {
    seen: BTreeSet<Difference>,
    reported: BTreeSet<Difference>,
}

/// What changed in the ledger.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Differences that lasted and were not reported before.
    pub lasting: Vec<Difference>,
    /// Reported differences that are gone.
    pub gone: Vec<Difference>,
}

impl Ledger {
    /// Adds the differences of a comparison.
    pub fn add(&mut self, now: BTreeSet<Difference>) -> News {
        let lasting: BTreeSet<Difference> = now.intersection(&self.seen).cloned().collect();
        let news = News {
            lasting: lasting.difference(&self.reported).cloned().collect(),
            gone: self.reported.difference(&now).cloned().collect(),
        };
        self.reported.retain(|known| now.contains(known));
        self.reported.extend(lasting);
        self.seen = now;
        news
    }

    /// Returns the number of differences that were seen in two comparisons running and are still there.
    pub fn lasting(&self) -> usize {
        self.reported.len()
    }
}

#[derive(Debug, Parser)]
#[command(name = "testbed shadow", about = "What two daemons on one node answer differently")]
struct Options {
    /// Our daemon
    here: String,
    /// The deployed daemon
    there: String,
    /// Between two comparisons
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = daemon::config::parse_span)]
    every: Duration,
    /// End after so many comparisons: exit 1 if the last two of them differ in the same field
    #[arg(long)]
    times: Option<u64>,
}

/// Runs the command with these arguments.
pub fn run(args: &[OsString]) -> ExitCode {
    command("testbed shadow", args, async |options: Options| {
        let client = |url: &str| Vminfod::new(url, concat!("testbed/", env!("CARGO_PKG_VERSION")));
        let (here, there) = (client(&options.here)?, client(&options.there)?);
        let mut ledger = Ledger::default();
        let mut compared = 0_u64;
        while options.times.is_none_or(|times| compared < times) {
            match compare(&here, &there).await {
                Ok(now) => {
                    let before = (compared > 0).then(|| ledger.lasting());
                    compared += 1;
                    print(&ledger.add(now));
                    if before != Some(ledger.lasting()) {
                        println!("compared: {} differences", ledger.lasting());
                    }
                }
                Err(error) => println!("cannot compare: {error}"),
            }
            tokio::time::sleep(options.every).await;
        }
        Ok(ledger.lasting() == 0)
    })
}

async fn compare(here: &Vminfod, there: &Vminfod) -> Result<BTreeSet<Difference>, Error> {
    let (here, there) = tokio::try_join!(here.vms(false), there.vms(false))?;
    Ok(differences(&here.vms, &there.vms))
}

fn print(news: &News) {
    for one in news.lasting.iter().take(PRINTED) {
        let Difference { zonename, path, here, there } = one;
        println!("differs: {zonename} {path}: here {here}, there {there}");
    }
    for one in news.gone.iter().take(PRINTED) {
        println!("no longer differs: {} {}", one.zonename, one.path);
    }
    let more = news.lasting.len().saturating_sub(PRINTED) + news.gone.len().saturating_sub(PRINTED);
    if more > 0 {
        println!("{more} differences more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn vms(values: Value) -> Vec<VmObject> {
        serde_json::from_value(values).unwrap()
    }

    #[test]
    fn each_kind_of_difference_has_its_line() {
        let here = vms(json!([{"zonename": "a", "quota": 10, "v": 1}, {"zonename": "b"}]));
        let there =
            vms(json!([{"zonename": "a", "quota": 20, "alias": "x", "v": 1}, {"zonename": "c"}]));
        let lines: Vec<String> = differences(&here, &there)
            .into_iter()
            .map(|d| format!("{} {} {:?} {:?}", d.zonename, d.path, d.here, d.there))
            .collect();
        assert_eq!(
            lines,
            [
                r#"a alias "" "\"x\"""#,
                r#"a quota "10" "20""#,
                r#"b (whole object) "present" """#,
                r#"c (whole object) "" "present""#,
            ]
        );
        assert_eq!(differences(&here, &here), BTreeSet::new());
    }

    #[test]
    fn reports_only_lasting_differences_once() {
        let differ = |quota: u64| {
            differences(
                &vms(json!([{"zonename": "a", "quota": 1}])),
                &vms(json!([{"zonename": "a", "quota": quota}])),
            )
        };
        let mut ledger = Ledger::default();
        assert_eq!(ledger.add(differ(2)), News::default(), "seen once: may be under way");
        assert_eq!(ledger.add(differ(3)), News::default(), "another one by now");
        assert_eq!(ledger.add(differ(3)).lasting.len(), 1);
        assert_eq!(ledger.add(differ(3)), News::default(), "reported already");
        assert_eq!(ledger.lasting(), 1);
        assert_eq!(ledger.add(differ(1)).gone.len(), 1);
        assert_eq!((ledger.add(differ(1)), ledger.lasting()), (News::default(), 0));
    }
}
