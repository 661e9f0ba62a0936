// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The scores of the nodes that are left. Pure.

use serde_json::{Value, json};

use super::left::{Choice, Left};
use super::node::object;
use super::refusal::{Params, Refusal, word};

/// Scores the nodes; the highest is chosen.
pub(super) fn score(choice: &mut Choice<'_>, package: Option<&Params>) -> Result<(), Refusal> {
    let spread = package.and_then(|package| package.get("alloc_server_spread")?.as_str());
    const RAM: &str = "Score servers based on unreserved RAM";
    const DISK: &str = "Score servers based on unreserved disk";
    const OWNER: &str = "Score servers based on number of zones belonging to owner";
    const PLATFORM: &str = "Score servers running newer platforms more highly";
    const REBOOT: &str = "Score servers that will not be rebooted soon more highly";
    const RANDOM: &str = "Increase server scores randomly";
    let only = spread.map(|spread| format!("pkg or default set to spread with: {spread}"));
    let is_other = |of: &[&str]| spread.is_some_and(|spread| !of.contains(&spread));
    let skip = only.unwrap_or_default();
    let ram = |left: &Left<'_>| left.room.map_or(0.0, |room| room.ram);
    let disk = |left: &Left<'_>| left.room.map_or(0.0, |room| room.disk);
    match is_other(&["min-ram", "max-ram"]) {
        true => choice.skip(RAM, &skip)?,
        false if spread == Some("max-ram") => grade(choice, RAM, 2.0, |left| -ram(left))?,
        false => grade(choice, RAM, 2.0, ram)?,
    }
    match spread {
        Some(_) => choice.skip(DISK, &skip)?,
        None => grade(choice, DISK, 1.0, disk)?,
    }
    match spread {
        Some(_) => choice.skip(OWNER, &skip)?,
        None => choice.skip(OWNER, "Resolved score weight to 0.00; no changes")?,
    }
    share(choice, PLATFORM, 1.0, |left| json!(word(&left.node.fields, "current_platform")))?;
    share(choice, REBOOT, 0.5, |left| match word(&left.node.fields, "next_reboot") {
        "" => json!("never"),
        at => json!(at),
    })?;
    match is_other(&["random"]) {
        true => choice.skip(RANDOM, &skip),
        false => {
            // In the order of the uuids.
            let order: Vec<String> = choice.left.iter().map(|it| it.uuid().to_owned()).collect();
            let place = |left: &Left<'_>| order.iter().position(|it| it == left.uuid());
            grade(choice, RANDOM, 0.5, |left| {
                place(left).and_then(|at| u32::try_from(at).ok()).map_or(0.0, f64::from)
            })
        }
    }
}

/// The node with the least gets the whole weight, the one with the most nothing.
fn grade(
    choice: &mut Choice<'_>,
    step: &str,
    weight: f64,
    of: impl Fn(&Left<'_>) -> f64,
) -> Result<(), Refusal> {
    let mut order: Vec<usize> = (0..choice.left.len()).collect();
    order.sort_by(|a, b| of(&choice.left[*a]).total_cmp(&of(&choice.left[*b])));
    let last = order.len().saturating_sub(1).max(1);
    let count = |at: usize| u32::try_from(at).map_or(0.0, f64::from);
    let grades: Vec<(usize, f64)> = order
        .into_iter()
        .enumerate()
        .map(|(place, node)| (node, weight * (1.0 - count(place) / count(last))))
        .collect();
    add(choice, step, &grades)
}

/// Those with the highest value get the whole weight, the others none.
fn share(
    choice: &mut Choice<'_>,
    step: &str,
    weight: f64,
    of: impl Fn(&Left<'_>) -> Value,
) -> Result<(), Refusal> {
    if choice.left.len() < 2 {
        return choice.skip(step, "One or fewer servers");
    }
    let values: Vec<String> = choice.left.iter().map(|left| of(left).to_string()).collect();
    let most = values.iter().max();
    let grade = |value: &String| if Some(value) == most { weight } else { 0.0 };
    let grades: Vec<(usize, f64)> =
        values.iter().enumerate().map(|(at, value)| (at, grade(value))).collect();
    add(choice, step, &grades)
}

fn add(choice: &mut Choice<'_>, step: &str, grades: &[(usize, f64)]) -> Result<(), Refusal> {
    let mut reasons = Params::new();
    for (at, grade) in grades {
        let Some(left) = choice.left.get_mut(*at) else { continue };
        left.score += grade;
        let why = format!("increased score by {grade:.2} to {:.2}", left.score);
        reasons.insert(left.uuid().to_owned(), json!(why));
    }
    choice.enter(step, object(&json!(reasons)))
}
