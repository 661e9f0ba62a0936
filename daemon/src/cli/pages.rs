// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Pages of a running agent, read from its loopback port, and how they are shown.

use std::net::SocketAddr;

use sdc_clients::http::Call;
use sdc_clients::{Class, Http};
use serde_json::Value;

use super::screen::{Screen, Tone, visible};
use super::table::{Layout, Table, UnknownColumn};

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum NoPage {
    /// Nothing listens.
    #[error("the daemon is not running: nothing answers on {0}")]
    Absent(SocketAddr),
    /// It does not answer as it should.
    #[error("no answer from the daemon at {0}")]
    Broken(SocketAddr, #[source] sdc_clients::Error),
    /// Something else listens there.
    #[error("another program than {program} answers on {listen}")]
    Another {
        /// Who should.
        program: &'static str,
        /// Where.
        listen: SocketAddr,
    },
}

/// Reads a page, such as `status`, from the loopback port of `program`.
///
/// # Errors
/// If there is none.
pub async fn page(program: &'static str, listen: SocketAddr, name: &str) -> Result<Value, NoPage> {
    let broken = |error| NoPage::Broken(listen, error);
    let base = format!("http://{listen}");
    let http = Http::new(&base, &format!("{program}-cli")).map_err(broken)?.without_retries();
    let answer = http.execute(Call::get(&[name])).await;
    let answer = answer.and_then(|reply| reply.json::<Value>("a JSON page"));
    answer.map_err(|error| match error.class() {
        Class::Connect => NoPage::Absent(listen),
        _ => broken(error),
    })
}

/// Asks `program` whether it is there. Returns what is printed.
///
/// # Errors
/// If it is not.
pub async fn ping(
    program: &'static str,
    listen: SocketAddr,
    json: bool,
    screen: Screen,
) -> Result<String, NoPage> {
    let answer = page(program, listen, "ping").await?;
    if answer["ping"] != "pong" {
        return Err(NoPage::Another { program, listen });
    }
    Ok(match screen.is_terminal && !json {
        true => screen.paint(Tone::Good, "pong") + "\n",
        false => format!("{answer:#}\n"),
    })
}

/// Returns a text of a page with control characters escaped.
pub fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).map_or_else(|| "-".to_owned(), visible)
}

/// Returns one row for each field of an object.
///
/// # Errors
/// If a column that is asked for does not exist.
pub fn fields(object: &Value, layout: &Layout, screen: Screen) -> Result<String, UnknownColumn> {
    let mut table = Table::new(&["field", "value"]);
    for (key, value) in object.as_object().into_iter().flatten() {
        table.row(vec![key.as_str().into(), value.clone().into()]);
    }
    table.print(layout, screen)
}

/// Returns a timestamp without its fraction, and any other text as it is.
pub fn to_the_second(time: &str) -> String {
    time.parse::<jiff::Timestamp>().map_or_else(|_| visible(time), |at| format!("{at:.0}"))
}
