// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A table for operators: what each fault means in each phase, from runs with that fault in the middle of the
//! phase.

use std::time::Duration;

use anyhow::Context as _;
use migration_core::intent::End;

use super::cases::is_step;
use super::points::{Fault, Moment, Party, Planned};
use super::runs::{Case, Ran, run};
use super::world::Shape;
use crate::moving::operator::Story;
use crate::parallel::in_parallel;

/// A phase, the story that has it, and the labels between which it is: of the command's points, the first with the one
/// to the first with the other.
struct Phase {
    name: &'static str,
    story: Story,
    /// Which of the story's commands.
    command: usize,
    from: &'static str,
    to: &'static str,
}

const fn phase(
    name: &'static str,
    story: Story,
    command: usize,
    (from, to): (&'static str, &'static str),
) -> Phase {
    Phase { name, story, command, from, to }
}

const STOPS: &str = "source agent: vmadm stop";
const SHOWS: &str = "agent-target/orders show";

const PHASES: [Phase; 8] = [
    phase("begin", Story::Finalize, 0, ("", "")),
    phase("sync", Story::Finalize, 1, ("", "")),
    phase("switch, before the stop", Story::Finalize, 2, ("", STOPS)),
    phase("switch, stopped", Story::Finalize, 2, (STOPS, SHOWS)),
    phase("switch, shown on the target", Story::Finalize, 2, (SHOWS, "")),
    phase("finalize", Story::Finalize, 3, ("", "")),
    phase("rollback", Story::Rollback, 3, ("", "")),
    phase("abort", Story::Abort, 2, ("", "")),
];

/// The faults of the table, and what they are called there.
const FAULTS: [(Fault, &str); 13] = [
    (Fault::Dies(Party::Service(1)), "the service dies"),
    (Fault::Stops(Party::Service(1)), "the service hangs for 5 min"),
    (Fault::Dies(Party::Agent(End::Source)), "the source's agent dies"),
    (Fault::Dies(Party::Agent(End::Target)), "the target's agent dies"),
    (Fault::Stops(Party::Vminfod(End::Source)), "the source's vminfod hangs for 5 min"),
    (Fault::Stops(Party::Vminfod(End::Target)), "the target's vminfod hangs for 5 min"),
    (Fault::Reboots(End::Source), "the source's node reboots"),
    (Fault::Reboots(End::Target), "the target's node reboots"),
    (Fault::Cut(End::Source), "the source's node is cut off for 5 min"),
    (Fault::Cut(End::Target), "the target's node is cut off for 5 min"),
    (Fault::Loses, "a request is lost"),
    (Fault::Fails, "a step fails again and again"),
    (Fault::Hand, "the hidden copy is booted by hand"),
];

/// A cell: is the VM running, what is said, what ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell([String; 3]);

impl Phase {
    /// Returns the point in its middle, and the next one at which something is changed.
    fn middle(&self, ran: &Ran) -> anyhow::Result<(usize, usize)> {
        let mark = |at: usize| ran.marks.get(at).copied().context("no such command");
        let (begin, end) = (mark(self.command)?, mark(self.command + 1)?);
        let find = |text: &str| {
            let at = ran.labels[begin..end].iter().position(|label| label.contains(text));
            at.map(|at| begin + at).with_context(|| format!("{}: no {text}", self.name))
        };
        let from = if self.from.is_empty() { begin } else { find(self.from)? + 1 };
        let to = if self.to.is_empty() { end } else { find(self.to)? };
        let middle = from + (to - from) / 2;
        let step = (middle..to).find(|at| is_step(&ran.labels[*at]));
        Ok((middle, step.unwrap_or(middle)))
    }
}

/// Returns what a run shows, compared with that of the same story without faults.
fn cell(ran: &Ran, plain: &Ran, fault: Fault) -> Cell {
    let down = ran.longest.as_secs();
    let both = ran.told.iter().any(|it| it.starts_with("both copies run"));
    let running = match down {
        _ if both => "both copies".to_owned(),
        _ if ran.longest <= plain.longest + Duration::from_secs(1) => "yes".to_owned(),
        0..30 => "down for less than 30 s".to_owned(),
        30..60 => "down for less than 1 min".to_owned(),
        60..180 => "down for less than 3 min".to_owned(),
        _ => "down until it is over".to_owned(),
    };
    let running = match fault {
        Fault::Reboots(_) if running != "yes" => {
            "boots with its node, or on the other one".to_owned()
        }
        _ => running,
    };
    let told: Vec<&String> = ran.told.iter().filter(|it| !plain.told.contains(it)).collect();
    let said = told.first().map_or("–".to_owned(), |said| said.replace('|', "\\|"));
    let mut more = ran.typed.clone();
    for verb in &plain.typed {
        if let Some(at) = more.iter().position(|it| it == verb) {
            more.remove(at);
        }
    }
    more.dedup();
    let ends = match &more[..] {
        [] => "itself".to_owned(),
        verbs => verbs.iter().map(|verb| format!("`{verb}`")).collect::<Vec<_>>().join(", "),
    };
    Cell([running, said, ends])
}

/// Returns the table, made of these undisturbed runs and of one for each row.
pub fn table(plain: &[(Story, Ran)]) -> anyhow::Result<String> {
    let of = |story: Story| {
        let found = plain.iter().find(|(it, _)| *it == story);
        found.map(|(_, ran)| ran).with_context(|| format!("{story:?} was not run"))
    };
    let mut cases = Vec::new();
    for phase in &PHASES {
        let (middle, step) = phase.middle(of(phase.story)?)?;
        let planned = |fault| {
            let at = if fault == Fault::Fails { step } else { middle };
            vec![Planned { at, moment: Moment::Before, fault }]
        };
        let case =
            |fault| Case { story: phase.story, planned: planned(fault), shape: Shape::default() };
        cases.extend(FAULTS.iter().map(|(fault, _)| case(*fault)));
    }
    let runs = in_parallel(&cases, &run);
    let mut text = "| phase | what happens | does the VM run? | what is said | what ends it |\n\
                    | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for ((phase, runs), cases) in
        PHASES.iter().zip(runs.chunks(FAULTS.len())).zip(cases.chunks(FAULTS.len()))
    {
        let mut rows: Vec<(Vec<&str>, Cell)> = Vec::new();
        for ((ran, case), (fault, name)) in runs.iter().zip(cases).zip(FAULTS) {
            let ran = ran.as_ref().map_err(|error| anyhow::anyhow!("{case:?}: {error:#}"))?;
            anyhow::ensure!(ran.faults.is_empty(), "{case:?}: {:?}", ran.faults);
            let cell = cell(ran, of(phase.story)?, fault);
            match rows.iter_mut().find(|(_, it)| *it == cell) {
                Some((names, _)) => names.push(name),
                None => rows.push((vec![name], cell)),
            }
        }
        for (names, Cell([running, said, ends])) in rows {
            let (name, names) = (phase.name, names.join("; "));
            text += &format!("| {name} | {names} | {running} | {said} | {ends} |\n");
        }
    }
    Ok(text)
}
