// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Values of closed sets: columns, and what a help lists as possible.

use sdc_clients::vminfod::VmFields as _;
use testbed::moving::subject::VM;

use super::common::centre::{Centre, PROGRAMS};
use super::common::program;

/// The words of the commands below this one, of its own help first.
fn below(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help").collect()
}

/// The option of a line of a help, if its values are a closed set.
fn closed(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (names, rest) = line.split_once(" <").filter(|_| line.starts_with('-'))?;
    let is_closed = rest.starts_with("COLUMN") || rest.contains("[possible values: ");
    is_closed.then_some(names.rsplit(", ").next()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_a_closed_set_does_not_have_is_wrong_usage_in_every_program() {
    let mut centre = Centre::start().await;
    centre.lab.start_kvmd().await.unwrap();
    centre.lab.start_console().await.unwrap();
    let sample = centre.lab.pick("running").await;
    let node = centre.other.node().cn_uuid().to_owned();
    // Of PAPI's for storage VMs.
    let storage = "aaaa0010-1111-4111-8111-000000000010";
    let made = format!(
        "sdc-pkgadm volume add --size 10G --storage-instance-pkg {storage} --description test"
    );
    let package = centre.good(&made).await;
    let words = [
        ("<NAME>", sample.uuid().unwrap().to_owned()),
        ("<VM>", VM.to_owned()),
        ("<MAC>", sample.macs()[0].to_string()),
        ("<CN>", node),
        ("<PACKAGE>", package.trim().to_owned()),
        ("<UUID>", sample.uuid().unwrap().to_owned()),
        ("<FIELD>", "quota".to_owned()),
        ("--dry-run", "--dry-run".to_owned()),
    ];
    let mut open = PROGRAMS.map(str::to_owned).to_vec();
    // The feed is not asked: it is not there.
    open.push(format!("{} @sdc-fleet --server nats://127.0.0.1:1", program().display()));
    let (mut tried, mut wrong) = (0, Vec::new());
    while let Some(command) = open.pop() {
        let help = centre.good(&format!("{command} --help")).await;
        open.extend(below(&help).iter().map(|word| format!("{command} {word}")));
        let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
        // A value of an option is none of the command's own.
        let typed: Vec<&str> = usage.split(' ').collect();
        let own = typed.windows(2).filter(|pair| !pair[0].starts_with("--")).map(|pair| pair[1]);
        let given = own.filter_map(|word| words.iter().find(|(name, _)| *name == word));
        let given: Vec<&str> = given.map(|(_, value)| &**value).collect();
        for option in help.lines().filter_map(closed) {
            let line = format!("{command} {} {option} nope", given.join(" "));
            let done = centre.typed(&line).await;
            tried += 1;
            if done.code != Some(2) || !done.stderr.contains("nope") {
                wrong.push(format!("{line}: {:?}: {}{}", done.code, done.stdout, done.stderr));
            }
        }
    }
    assert!(tried > 50, "{tried}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
