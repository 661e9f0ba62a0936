// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

#![allow(clippy::unwrap_used)]

use migration_core::time::Time;

use super::*;

#[test] // M125
fn where_a_migration_is_follows_from_what_the_nodes_show() {
    let word = Confirmation { by: Uuid::nil(), at: Time::from_millis(0) };
    let node = |text: &str| match text {
        "silent" => CopyState::Silent,
        "revoked" => CopyState::Revoked,
        "waits" => CopyState::Waits,
        "none" => CopyState::Node(Node::default()),
        _ => {
            let copy = Copy {
                hidden: text.starts_with("hidden"),
                running: text.ends_with("up"),
                ..Copy::default()
            };
            CopyState::Node(Node { copy: Some(copy), ..Node::default() })
        }
    };
    let (source, target) = (Some(End::Source), Some(End::Target));
    for (from, to, vmapi, want) in [
        ("up", "hidden", source, Ok("sync paused")),
        ("shown", "none", source, Ok("begin failed")),
        ("up", "silent", source, Ok("sync paused, target replaced")),
        ("hidden", "up", target, Ok("switch successful, target in use")),
        ("none", "up", target, Ok("switch successful, target in use")),
        ("silent", "up", target, Ok("switch successful, target in use, source replaced")),
        ("hidden", "up", source, Ok("switch failed, target in use")),
        ("hidden", "shown", source, Ok("switch failed, target shown, to be started")),
        ("hidden", "hidden", target, Ok("switch failed, target shown, to be started")),
        (
            "silent",
            "hidden",
            target,
            Ok("switch failed, target shown, to be started, source replaced"),
        ),
        ("hidden", "hidden", source, Ok("switch failed, to be started")),
        ("silent", "hidden", source, Ok("sync paused")),
        ("hidden", "silent", target, Ok("switch successful, target in use")),
        ("waits", "none", source, Ok("begin failed")),
        ("waits", "hidden", source, Ok("sync paused")),
        ("waits", "up", target, Ok("switch successful, target in use, source replaced")),
        ("waits", "up", source, Ok("switch failed, target in use, source replaced")),
        ("hidden", "waits", target, Ok("switch successful, target in use")),
        ("waits", "waits", target, Ok("switch successful, target in use, source replaced")),
        ("waits", "waits", source, Err(Unclear::Waits(End::Target))),
        ("up", "up", target, Err(Unclear::BothShown)),
        // What a revoked node has is not known: it is not dead.
        ("up", "revoked", source, Ok("sync paused")),
        ("waits", "revoked", source, Ok("sync paused")),
        ("revoked", "up", target, Ok("switch successful, target in use")),
        ("hidden", "revoked", target, Ok("switch successful, target in use")),
        ("up", "hidden", target, Err(Unclear::Elsewhere(End::Target))),
        ("up", "hidden up", source, Err(Unclear::Runs(End::Target))),
        ("hidden up", "up", target, Err(Unclear::Runs(End::Source))),
        ("hidden", "hidden", None, Err(Unclear::Vmapi)),
    ] {
        let judged =
            judge(&node(from), &node(to), (vmapi, false), [None; 2], (&word, None)).map(|it| {
                let intent = &it.intent;
                let mut text = format!("{} {}", it.phase.name(), it.state.name());
                match (intent.target_shown, intent.target_booted) {
                    (true, true) => text += ", target in use",
                    (true, false) => text += ", target shown",
                    _ => {}
                }
                if intent.power.is_some_and(|power| power.running) {
                    text += ", to be started";
                }
                for end in [End::Source, End::Target] {
                    if intent.is_replaced(end) {
                        text += &format!(", {end} replaced");
                    }
                }
                text
            });
        assert_eq!(judged, want.map(str::to_owned), "{from}, {to}, {vmapi:?}");
    }
}

#[test] // M125
fn a_target_that_is_shown_and_stopped_was_switched_to_only_where_no_address_is_reserved() {
    let word = Confirmation { by: Uuid::nil(), at: Time::from_millis(0) };
    let node = |hidden| {
        CopyState::Node(Node { copy: Some(Copy { hidden, ..Copy::default() }), ..Node::default() })
    };
    for (is_reserved, want) in [(false, State::Successful), (true, State::Failed)] {
        let facts = (Some(End::Target), is_reserved);
        let adopted = judge(&node(true), &node(false), facts, [None; 2], (&word, None)).unwrap();
        assert_eq!((adopted.phase, adopted.state), (Phase::Switch, want));
        assert_eq!(adopted.intent.power.is_some(), is_reserved, "{:?}", adopted.intent);
    }
}

#[test] // M125
fn what_an_agent_took_from_a_copy_comes_back() {
    let word = Confirmation { by: Uuid::nil(), at: Time::from_millis(0) };
    let node = |hidden, running| {
        let copy = Copy { hidden, running, ..Copy::default() };
        CopyState::Node(Node { copy: Some(copy), ..Node::default() })
    };
    let had = Some(Power { running: true, autoboot: true });
    let (source, target) = (Some(End::Source), Some(End::Target));
    // A switch had stopped the source; a rollback had taken autoboot from the target, and stopped it.
    for (from, to, vmapi, power, booted) in [
        (node(false, false), node(true, false), source, [had, None], false),
        (node(false, true), node(true, false), source, [had, None], false),
        (node(true, false), node(false, true), target, [had, had], true),
        (node(true, false), node(false, false), target, [had, had], true),
    ] {
        let adopted = judge(&from, &to, (vmapi, false), power, (&word, None)).unwrap();
        assert_eq!((adopted.phase, adopted.state), (Phase::Switch, State::Failed), "{from:?}");
        let intent = &adopted.intent;
        assert_eq!((intent.power, intent.target_booted), (had, booted), "{from:?} {to:?}");
    }
    let stopped = Some(Power { running: false, autoboot: false });
    let judged = judge(
        &node(false, false),
        &node(true, false),
        (source, false),
        [stopped, None],
        (&word, None),
    );
    assert_eq!(judged.unwrap().phase, Phase::Sync, "it was stopped before");
}
