// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The dashboard at `/ui`: one page with its parts, embedded, and what the agents of this node
//! say of themselves, passed on.
//!
//! Read only. Must never load anything from elsewhere, pass on to an address that is not of this
//! node, or hand out an agent's answer as anything but JSON.

use std::sync::{Arc, OnceLock};

use daemon::http::{Body, refuse, reply};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Method, Response, StatusCode};
use sdc_clients::Http;
use sdc_clients::http::Call;
use serde_json::Value;

use crate::config::Agents;
use crate::json::to_ascii;

/// Nothing but the page's own parts: no inline script, no foreign origin, no frame, no form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Longest answer of an agent that is passed on.
const LONGEST: usize = 16 << 20;

/// The parts: name below `/ui/`, content type, bytes. The first one is the page.
const PARTS: [(&str, &str, &[u8]); 12] = [
    ("index.html", "text/html; charset=utf-8", include_bytes!("ui/index.html")),
    ("style.css", "text/css; charset=utf-8", include_bytes!("ui/style.css")),
    ("main.js", SCRIPT, include_bytes!("ui/main.js")),
    ("dom.js", SCRIPT, include_bytes!("ui/dom.js")),
    ("stream.js", SCRIPT, include_bytes!("ui/stream.js")),
    ("vms.js", SCRIPT, include_bytes!("ui/vms.js")),
    ("events.js", SCRIPT, include_bytes!("ui/events.js")),
    ("health.js", SCRIPT, include_bytes!("ui/health.js")),
    ("detail.js", SCRIPT, include_bytes!("ui/detail.js")),
    ("agents.js", SCRIPT, include_bytes!("ui/agents.js")),
    ("net-agent.js", SCRIPT, include_bytes!("ui/net-agent.js")),
    ("kvmd.js", SCRIPT, include_bytes!("ui/kvmd.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The dashboard.
#[derive(Clone, Debug, Default)]
pub struct Ui(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    agents: Agents,
    /// Made when somebody looks: it takes milliseconds, which a start has not to give away.
    clients: OnceLock<Vec<(String, Http)>>,
}

impl Ui {
    /// A dashboard that shows these agents.
    pub fn new(agents: Agents) -> Self {
        Self(Arc::new(Known { agents, clients: OnceLock::new() }))
    }

    /// The agents; one whose client cannot be made is left out with a warning.
    fn clients(&self) -> &[(String, Http)] {
        self.0.clients.get_or_init(|| {
            let clients = self.0.agents.iter().filter_map(|(name, address)| {
                match Http::new(
                    &format!("http://{address}"),
                    concat!("vminfod/", env!("CARGO_PKG_VERSION")),
                ) {
                    Ok(http) => Some((name.clone(), http.without_retries())),
                    Err(error) => {
                        tracing::warn!(name, %address, %error, "agent left out of the dashboard");
                        None
                    }
                }
            });
            clients.collect()
        })
    }

    /// Answers a GET of `/ui` and what is below it; `below` are the path's parts after `ui`.
    pub async fn answer(&self, below: &[&str]) -> Response<Body> {
        match below {
            [] => part(&PARTS[0]),
            ["agents"] => {
                let names =
                    self.clients().iter().map(|(name, _)| Value::from(name.as_str())).collect();
                secured(reply(StatusCode::OK, to_ascii(&Value::Array(names))))
            }
            ["agents", name, page @ ..] if !page.is_empty() => self.agent(name, page).await,
            [name] => match PARTS.iter().find(|part| part.0 == *name) {
                Some(found) => part(found),
                None => nothing(),
            },
            _ => nothing(),
        }
    }

    /// Passes an agent's page on.
    async fn agent(&self, name: &str, page: &[&str]) -> Response<Body> {
        let Some((_, http)) = self.clients().iter().find(|(known, _)| known == name) else {
            return nothing();
        };
        let answer = http.execute(Call::new(Method::GET, page).body_cap(LONGEST)).await;
        let passed = answer.and_then(|answer| answer.json::<Value>("an agent's page"));
        secured(match passed {
            Ok(value) => reply(StatusCode::OK, to_ascii(&value)),
            Err(error) => refuse(StatusCode::BAD_GATEWAY, "BadGateway", &error.to_string()),
        })
    }
}

fn part((_, kind, bytes): &(&str, &'static str, &'static [u8])) -> Response<Body> {
    let mut response = reply(StatusCode::OK, *bytes);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    secured(response)
}

fn nothing() -> Response<Body> {
    secured(refuse(StatusCode::NOT_FOUND, "ResourceNotFound", "the dashboard has no such part"))
}

fn secured(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_only_parts_that_are_here_and_nothing_elsewhere() {
        let known: Vec<&str> = PARTS.iter().map(|part| part.0).collect();
        for (name, _, bytes) in PARTS.iter() {
            let text = std::str::from_utf8(bytes).unwrap();
            for (_, rest) in
                text.match_indices("/ui/").map(|(at, found)| (at, &text[at + found.len()..]))
            {
                let asked: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
                assert!(
                    asked == "agents" || known.contains(&asked.as_str()),
                    "{name} asks for {asked:?}"
                );
            }
            for (at, _) in text.match_indices("from './") {
                let asked: String = text[at + 8..].chars().take_while(|c| *c != '\'').collect();
                assert!(known.contains(&asked.as_str()), "{name} imports {asked:?}");
            }
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{name} uses {word}");
            }
            let mut links = text.match_indices("https://").map(|(at, _)| &text[at..]);
            assert!(links.all(|link| link.starts_with("https://mozilla.org/MPL/2.0/")), "{name}");
        }
    }
}
