// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `trust`: which agents, and whether volapi, are let in. It asks the service as operators do.

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use daemon::cli::hosts::Hosts;
use daemon::cli::screen::visible;
use daemon::cli::{self, Screen, Usage};
use http::Method;
use sdc_clients::http::Call;
use sdc_clients::quoted;
use serde_json::{Value, json};

use super::args::{NAME, TrustVerb};
use super::ask::{Stake, confirm};
use super::operator::Way;

/// A token is short.
const LONGEST: u64 = 4096;

/// Asks the service.
pub(super) async fn run(
    verb: TrustVerb,
    way: &Way,
    hosts: &Hosts,
    screen: Screen,
) -> anyhow::Result<ExitCode> {
    if !goes_on(&verb)? {
        return Ok(ExitCode::SUCCESS);
    }
    let post = |route: &str, body: Value| Call::new(Method::POST, &["trust", route]).json(&body);
    let call = match &verb {
        TrustVerb::Init => post("init", json!({})),
        TrustVerb::List { .. } => Call::get(&["trust"]),
        TrustVerb::Export => Call::get(&["trust", "export"]),
        TrustVerb::Token { whom, valid } => {
            let seconds = daemon::config::parse_span(valid).map_err(Usage)?.as_secs();
            post("tokens", json!({"for": is_for(whom)?, "seconds": seconds}))
        }
        TrustVerb::Approve { who, key } => post("approve", json!({"who": who, "key": key})),
        TrustVerb::Revoke { who, key, .. } => post("revoke", json!({"who": who, "key": key})),
        TrustVerb::Require { off, without_them } => {
            post("require", json!({"off": off, "without": without_them}))
        }
        TrustVerb::Join => {
            let mut token = String::new();
            std::io::stdin().take(LONGEST).read_to_string(&mut token).context("the token")?;
            let until = way.join(&token).await?;
            return Ok(cli::print(
                NAME,
                &format!("Let in: the certificate is valid until {until}\n"),
            ));
        }
        TrustVerb::Rotate { without_them, .. } => post("rotate", json!({"without": without_them})),
    };
    let answer = way.client().await?.execute(call).await;
    let answer = answer.with_context(|| format!("migration-service at {}", way.place()))?;
    let answer: Value = answer.json("an answer of the service")?;
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    Ok(match verb {
        TrustVerb::Token { .. } => {
            eprintln!("{NAME}: valid until {}", text("until"));
            cli::print(NAME, &format!("{}\n", text("token")))
        }
        TrustVerb::Export => cli::print(NAME, &text("certificates")),
        TrustVerb::Init
        | TrustVerb::List { json: false }
        | TrustVerb::Rotate { .. }
        | TrustVerb::Require { .. } => {
            cli::print(NAME, &screen.harmless(&hosts.in_text(&listed(&answer))))
        }
        _ => cli::print(NAME, &format!("{answer:#}\n")),
    })
}

/// Asks before a program loses its certificate. Returns false where the answer is no.
fn goes_on(verb: &TrustVerb) -> anyhow::Result<bool> {
    let (text, consent) = match verb {
        TrustVerb::Revoke { who, key: None, consent } => {
            let what = "No VM migrates to or from a node that is revoked, until its agent has joined again.";
            (format!("This makes every certificate of {} invalid.\n{what}", visible(who)), consent)
        }
        TrustVerb::Revoke { who, key: Some(key), consent } => {
            let text = format!(
                "This makes the certificates of the key {} invalid, of {}.",
                visible(key),
                visible(who)
            );
            (text, consent)
        }
        TrustVerb::Rotate { without_them: true, consent } => {
            let what = "This ends the rotation: programs that have not renewed have to join again.";
            (what.to_owned(), consent)
        }
        TrustVerb::Rotate { consent, .. } => {
            ("This makes a new authority, or removes the old one.".to_owned(), consent)
        }
        _ => return Ok(true),
    };
    confirm(&text, Stake::Undoable, *consent)
}

/// Returns the node that is named by anything but its uuid.
pub(super) fn node_of(verb: &mut TrustVerb) -> Option<&mut String> {
    let (TrustVerb::Token { whom: who, .. }
    | TrustVerb::Approve { who, .. }
    | TrustVerb::Revoke { who, .. }) = verb
    else {
        return None;
    };
    let is_named = !["any", "volapi", "operator"].contains(&who.as_str())
        && who.parse::<uuid::Uuid>().is_err();
    is_named.then_some(who)
}

/// Reads whom a token lets in.
fn is_for(whom: &str) -> Result<Value, Usage> {
    match whom {
        "any" => Ok(json!("any_cn")),
        "volapi" => Ok(json!("volapi")),
        "operator" => Ok(json!("operator")),
        cn => match cn.parse::<uuid::Uuid>() {
            Ok(cn) => Ok(json!({"cn": cn})),
            Err(_) => Err(Usage(format!(
                "{} is no node's uuid, nor any, volapi or operator",
                quoted(whom)
            ))),
        },
    }
}

/// Returns the authorities and the members, a line each.
fn listed(answer: &Value) -> String {
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or("–").to_owned();
    let rows = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let authorities = rows("authorities").into_iter().map(|it| {
        let signs = if it["signs"] == true { "signs" } else { "is valid" };
        format!(
            "authority {} {signs}, fingerprint {}\n",
            text(&it, "name"),
            text(&it, "fingerprint")
        )
    });
    let members = rows("members").into_iter().map(|it| {
        format!(
            "{} {}, certificate until {}, key {}\n",
            text(&it, "name"),
            text(&it, "standing"),
            text(&it, "until"),
            text(&it, "key"),
        )
    });
    let required = answer["required"].as_str();
    let required = required.map(|since| format!("required of every node since {since}\n"));
    authorities.chain(required).chain(members).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_token_is_for_a_node_any_node_or_volapi() {
        let cn = "564d0b8e-6099-4c50-a1b1-0f0b30000001";
        assert_eq!(is_for(cn).unwrap(), json!({ "cn": cn }));
        assert_eq!(is_for("any").unwrap(), json!("any_cn"));
        assert_eq!(is_for("volapi").unwrap(), json!("volapi"));
        assert_eq!(is_for("operator").unwrap(), json!("operator"));
        assert!(is_for("headnode").is_err());
    }
}
