// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The sheet's scenario table (docs/contract/kvmd.md §6), row by row, and what follows from its rules.

use proptest::prelude::*;

use super::*;
use crate::session::Session;
use crate::verdict::word;

/// `MS NAME [guest|host] [reason] [action=…|status=…]`, one event a piece; `?WORD` is an answer.
fn session(script: &str) -> (Session, Duration) {
    let mut session = Session::default();
    let mut at = Duration::ZERO;
    let mut feed = |at, text: &str| {
        session.line(at, &Ok(text.to_owned().into())).unwrap();
    };
    feed(at, r#"{"QMP":{"version":{"qemu":{"major":7,"minor":2,"micro":0}}}}"#);
    feed(at, r#"{"return":{}}"#);
    for piece in script.split(';').map(str::trim).filter(|piece| !piece.is_empty()) {
        let mut words = piece.split_whitespace();
        at = Duration::from_millis(words.next().unwrap().parse().unwrap());
        let name = words.next().unwrap();
        if let Some(status) = name.strip_prefix('?') {
            feed(at, &format!(r#"{{"return":{{"status":"{status}"}}}}"#));
            continue;
        }
        let mut data = serde_json::Map::new();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => drop(data.insert(key.into(), value.into())),
                None if word == "guest" => drop(data.insert("guest".into(), true.into())),
                None if word == "host" => drop(data.insert("guest".into(), false.into())),
                None => drop(data.insert("reason".into(), word.into())),
            }
        }
        feed(at, &serde_json::json!({"event": name, "data": data}).to_string());
    }
    (session, at)
}

fn said(script: &str) -> String {
    let (session, at) = session(script);
    let verdict = session.verdict(at + Duration::from_millis(3), ADMIN_WINDOW);
    format!("{}/{}", word(&verdict.initiator), word(&verdict.kind))
}

// C1–C9
/// What a script says by our rule, and whether the shipped rule says "user".
const TABLE: &[(&str, &str, bool)] = &[
    ("9 SHUTDOWN guest guest-shutdown", "guest/poweroff", true),
    ("9 SUSPEND_DISK; 9 SHUTDOWN guest guest-shutdown", "guest/hibernate", true),
    ("9 SUSPEND", "unknown/abrupt", false),
    ("9 RESET guest guest-reset; 40 RESET guest guest-reset", "unknown/abrupt", false),
    ("9 SHUTDOWN guest guest-reset", "guest/reset", true),
    ("9 RESET guest guest-reset; 400 SHUTDOWN guest guest-shutdown", "guest/poweroff", true),
    ("9 POWERDOWN; 20 SHUTDOWN guest guest-shutdown", "host/powerdown", false),
    ("9 POWERDOWN; 900 SHUTDOWN host host-qmp-quit", "host/quit", false),
    ("9 POWERDOWN; 900 SHUTDOWN host host-signal", "host/signal", false),
    ("9 POWERDOWN", "host/kill-after-powerdown", false),
    (
        "9 POWERDOWN; 400 RESET guest guest-reset; 440 RESET guest guest-reset; 900 SHUTDOWN guest guest-shutdown",
        "guest/poweroff",
        false,
    ),
    ("9 SHUTDOWN host host-qmp-quit", "host/quit", true),
    ("9 SHUTDOWN host host-signal", "host/signal", true),
    ("9 SHUTDOWN host host-ui", "host/quit", true),
    ("9 SHUTDOWN host host-error", "host/abrupt", true),
    ("", "unknown/abrupt", false),
    ("9 RESET host host-qmp-system-reset; 50 RESET guest guest-reset", "unknown/abrupt", false),
    ("9 SHUTDOWN host host-qmp-system-reset", "host/reset", true),
    ("9 STOP; 90 SHUTDOWN host host-qmp-quit", "host/quit", false),
    ("9 STOP; 90 SHUTDOWN host host-signal", "host/signal", false),
    ("9 STOP; 90 RESUME; 900 SHUTDOWN guest guest-shutdown", "guest/poweroff", false),
    ("9 STOP; 90 POWERDOWN; 95 RESUME; 99 SHUTDOWN guest guest-shutdown", "host/powerdown", false),
    ("9 STOP; 90 SHUTDOWN host host-qmp-quit", "host/quit", false),
    (
        "9 MIGRATION status=active; 9 STOP; 20 MIGRATION status=completed; 90 SHUTDOWN host host-qmp-quit",
        "host/migrated",
        false,
    ),
    ("9 STOP; 20 MIGRATION status=completed; 90 SHUTDOWN host host-signal", "host/migrated", false),
    ("9 STOP; 20 ?postmigrate; 90 SHUTDOWN host host-qmp-quit", "host/migrated", false),
    ("9 GUEST_PANICKED action=poweroff; 9 SHUTDOWN guest guest-panic", "guest/panic", true),
    ("9 GUEST_PANICKED action=pause; 9 STOP", "guest/panic", false),
    ("9 GUEST_PANICKED action=pause; 9 STOP; 90 SHUTDOWN host host-qmp-quit", "guest/panic", false),
    ("9 GUEST_CRASHLOADED action=run", "unknown/abrupt", false),
    (
        "9 WATCHDOG action=shutdown; 9 POWERDOWN; 20 SHUTDOWN guest guest-shutdown",
        "watchdog/watchdog",
        false,
    ),
    ("9 WATCHDOG action=shutdown; 9 POWERDOWN", "watchdog/watchdog", false),
    ("9 WATCHDOG action=poweroff", "watchdog/watchdog", false),
    ("9 WATCHDOG action=pause; 9 STOP", "watchdog/watchdog", false),
    (
        "9 WATCHDOG action=reset; 9 RESET guest guest-reset; 30 RESET guest guest-reset",
        "unknown/abrupt",
        false,
    ),
    ("9 SHUTDOWN guest guest-shutdown; 9 STOP", "guest/poweroff", false),
    (
        "9 SHUTDOWN guest guest-shutdown; 9 STOP; 900 SHUTDOWN host host-qmp-quit",
        "guest/poweroff",
        false,
    ),
    ("9 ?prelaunch; 90 SHUTDOWN host host-qmp-quit", "host/quit", true),
    ("9 ?shutdown; 90 SHUTDOWN host host-qmp-quit", "unknown/poweroff", true),
    // Consequences of the rules that no row has.
    ("9 POWERDOWN; 250000 SHUTDOWN guest guest-shutdown", "guest/poweroff", false),
    (
        "9 POWERDOWN; 9 WATCHDOG action=shutdown; 9 POWERDOWN; 20 SHUTDOWN guest guest-shutdown",
        "host/powerdown",
        false,
    ),
    (
        "9 WATCHDOG action=shutdown; 9 POWERDOWN; 5000 POWERDOWN; 5010 SHUTDOWN guest guest-shutdown",
        "host/powerdown",
        false,
    ),
    (
        "9 WATCHDOG action=shutdown; 9 POWERDOWN; 900 SHUTDOWN host host-signal",
        "host/signal",
        false,
    ),
    (
        "9 RESET host host-qmp-system-reset; 20 POWERDOWN; 50 RESET guest guest-reset; 90 SHUTDOWN guest guest-shutdown",
        "host/powerdown",
        false,
    ),
    (
        "9 POWERDOWN; 20 WAKEUP; 50 RESET guest guest-reset; 90 SHUTDOWN guest guest-shutdown",
        "host/powerdown",
        false,
    ),
    (
        "9 SHUTDOWN guest guest-shutdown; 9 STOP; 90 RESET host host-qmp-system-reset; 95 RESUME; 900 SHUTDOWN host host-signal",
        "host/signal",
        false,
    ),
    (
        "9 GUEST_PANICKED action=pause; 9 STOP; 90 RESET host host-qmp-system-reset; 95 RESUME; 900 SHUTDOWN guest guest-shutdown",
        "guest/poweroff",
        false,
    ),
    ("9 WATCHDOG action=pause; 9 STOP; 90 RESUME", "unknown/abrupt", false),
    ("9 RESUME; 20 MIGRATION status=completed; 90 SHUTDOWN host host-signal", "host/signal", true),
    (
        "9 STOP; 20 MIGRATION status=completed; 30 RESUME; 90 SHUTDOWN host host-signal",
        "host/signal",
        false,
    ),
    ("9 STOP; 20 MIGRATION status=completed", "host/migrated", false),
    ("9 SHUTDOWN guest snapshot-load", "guest/poweroff", true),
    ("9 SHUTDOWN host some-new-reason", "host/quit", true),
    // QEMU 2.10 to 3.1: `guest` and no reason.
    ("9 SHUTDOWN guest", "guest/poweroff", true),
    ("9 SHUTDOWN host", "host/quit", true),
    ("9 POWERDOWN; 20 SHUTDOWN guest", "host/powerdown", false),
    // Before, and on SmartOS: no data at all.
    ("9 SHUTDOWN", "guest/poweroff", true),
    ("9 POWERDOWN; 20 SHUTDOWN", "host/powerdown", false),
    ("9 STOP; 20 SHUTDOWN", "host/quit", false),
    ("9 STOP; 20 RESUME; 30 SHUTDOWN", "guest/poweroff", false),
];

#[test]
fn every_row_of_the_scenario_table() {
    let wrong: Vec<String> = TABLE
        .iter()
        .filter_map(|(script, ours, shipped)| {
            let got = (said(script), session(script).0.user_by_shipped_rule());
            let fine = got.0 == *ours && got.1 == *shipped;
            (!fine).then(|| format!("{script}: {got:?}, not {ours}, {shipped}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn how_sure_it_is_depends_on_what_qemu_tells() {
    let sure = |script| {
        let (session, at) = session(script);
        session.verdict(at, ADMIN_WINDOW).confidence
    };
    assert_eq!(sure("9 SHUTDOWN guest guest-shutdown"), High);
    assert_eq!(sure("9 SHUTDOWN guest"), Medium);
    assert_eq!(sure("9 SHUTDOWN"), Low);
    assert_eq!(sure("9 POWERDOWN; 10 SHUTDOWN"), Medium);
    assert_eq!(sure(""), Low);
}

#[test]
fn an_interruption_makes_a_poweroff_unsure() {
    let sure = |minutes: u64| {
        let mut session = Session::default();
        session.line(Duration::ZERO, &Ok(br#"{"return":{}}"#.as_slice().into())).unwrap();
        session.history.hole(Duration::ZERO);
        let at = Duration::from_secs(minutes * 60);
        let off = br#"{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}"#;
        session.line(at, &Ok(off.to_vec().into())).unwrap();
        session.verdict(at, ADMIN_WINDOW).confidence
    };
    assert_eq!((sure(1), sure(10)), (Low, High));
}

// C10
#[test]
fn nothing_is_said_of_what_was_never_negotiated() {
    let mut session = Session::default();
    let verdict = session.verdict(Duration::ZERO, ADMIN_WINDOW);
    assert_eq!((verdict.initiator, verdict.kind), (Unknown, Kind::Unwatched));
    session.line(Duration::ZERO, &Ok(br#"{"QMP":{}}"#.as_slice().into())).unwrap();
    assert_eq!(session.verdict(Duration::ZERO, ADMIN_WINDOW).kind, Kind::Unwatched);
}

#[test]
fn a_guests_strings_fool_only_the_shipped_rule() {
    let mut session = Session::default();
    for line in [
        r#"{"return":{}}"#,
        r#"{"event":"VNC_INITIALIZED","data":{"client":{"name":"SHUTDOWN","sasl":"POWERDOWN"}}}"#,
    ] {
        session.line(Duration::ZERO, &Ok(line.as_bytes().to_vec().into())).unwrap();
    }
    assert_eq!(session.history.shutdown, None);
    assert_eq!(session.history.pending, None);
    assert!(session.history.words.shutdown && session.history.words.powerdown);
}

#[test]
fn a_history_survives_being_written_down() {
    let (session, _) =
        session("9 WATCHDOG action=shutdown; 9 POWERDOWN; 20 RESET guest x; 30 STOP");
    let text = serde_json::to_string(&session.history).unwrap();
    assert_eq!(serde_json::from_str::<History>(&text).unwrap(), session.history);
}

/// Pieces of scripts for [`session`], without their times.
const PIECES: [&str; 20] = [
    "SHUTDOWN guest guest-shutdown",
    "SHUTDOWN host host-signal",
    "SHUTDOWN host host-qmp-quit",
    "SHUTDOWN guest guest-panic",
    "SHUTDOWN guest guest-reset",
    "SHUTDOWN guest",
    "SHUTDOWN",
    "POWERDOWN",
    "RESET guest guest-reset",
    "RESET host host-qmp-system-reset",
    "STOP",
    "RESUME",
    "SUSPEND_DISK",
    "WAKEUP",
    "GUEST_PANICKED action=pause",
    "WATCHDOG action=shutdown",
    "WATCHDOG action=poweroff",
    "MIGRATION status=completed",
    "?postmigrate",
    "?shutdown",
];

proptest! {
    /// Whatever comes in whatever order: the user's wish needs a SHUTDOWN that the guest asked
    /// for, nobody's request to power off just before it, and the reason's word is never bent.
    #[test]
    fn the_users_wish_is_never_made_up(
        steps in prop::collection::vec((0..PIECES.len(), 1u64..5000), 0..12),
    ) {
        let mut at = 0;
        let mut script = String::new();
        for (piece, pause) in &steps {
            at += pause;
            script.push_str(&format!("{at} {};", PIECES[*piece]));
        }
        let (session, at) = session(&script);
        let verdict = session.verdict(at, ADMIN_WINDOW);
        let cause = session.history.shutdown.clone();
        prop_assert!(!verdict.evidence.is_empty());
        if verdict.is_users_wish() {
            let cause = cause.clone().expect("a SHUTDOWN");
            prop_assert!(cause.guest != Some(false), "{}", script);
            prop_assert!(cause.reason.is_none_or(|reason| reason == "guest-shutdown"));
            prop_assert!(session.history.pending.is_none() && !session.history.panicked);
        }
        let by_host = cause.and_then(|cause| cause.reason).is_some_and(|it| it.starts_with("host-"));
        prop_assert!(!by_host || !verdict.is_users_wish());
        if session.user_by_shipped_rule() {
            prop_assert!(!script.contains("POWERDOWN") && !script.contains("STOP;"));
        }
    }
}
