// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `sdc-volapi PATH`: one request, and its answer with its headers, as the shipped `sdc-*` commands print it.

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use daemon::cli::{self, Screen, Shell, Usage};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use sdc_clients::http::{
    BODY_CAP, HttpTransport, LIST_TIMEOUT, Request, Response, Transport as _, user_agent,
};
use sdc_clients::quoted;
use url::Url;

use super::args::Reach;
use super::services::Services;

const NAME: &str = "sdc-volapi";

const ABOUT: &str = "\
Examples:
  sdc-volapi /ping
  sdc-volapi '/volumes?state=failed' | json -Ha uuid name
  sdc-volapi /volumes/UUID -X POST -d '{\"name\": \"logs\"}'
  sdc-volapi '/volumes/UUID?owner_uuid=UUID' -X DELETE

The address is --url, else $VOLAPI_URL, else volapi_url in the configuration of sdc-voladm. As curl does, it ends
with 0 whatever the status is, unless -f is given.

Exit status: 0 there was an answer, 1 there was none, 2 wrong usage or configuration, 22 with -f a status of 400
or above.";

/// Sends one request to volapi.
#[derive(Parser, Debug)]
#[command(name = NAME, version = cli::version(), after_help = ABOUT)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Cli {
    /// The path, with its query.
    #[arg(required_unless_present_any = ["completions", "man"])]
    path: Option<String>,
    /// The method; GET, or POST where there is a body.
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    method: Option<String>,
    /// The body; @FILE is that file, @- stdin.
    #[arg(short = 'd', long = "data", value_name = "DATA")]
    data: Option<String>,
    /// Another header.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// End with 22 for a status of 400 or above.
    #[arg(short = 'f', long)]
    fail: bool,
    /// The answer's body alone, without its headers.
    #[arg(long)]
    bare: bool,
    /// Taken for scripts that give curl's flags: it prints headers, and nothing but the answer, anyway.
    #[arg(short = 'i', long = "include", hide = true)]
    include: bool,
    #[arg(short = 's', long = "silent", hide = true)]
    silent: bool,
    #[arg(short = 'S', long = "show-error", hide = true)]
    show_error: bool,
    /// Print completions for a shell.
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
    /// Print the manual page.
    #[arg(long)]
    man: bool,
    /// volapi.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Configuration file (default: /opt/smartdc/agents/etc/sdc-voladm.config.json).
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
}

/// Runs the program; `args` begin with its name.
pub fn run(args: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let cli: Cli = match cli::parse(args) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Some(shell) = cli.completions {
        return cli::print(NAME, &cli::completions::<Cli>(shell));
    }
    if cli.man {
        return cli::finish(NAME, cli::man::<Cli>(None).context("the manual page"));
    }
    cli::run(NAME, async {
        match send(&cli).await {
            Ok(answer) => {
                let is_bad = answer.status.as_u16() >= StatusCode::BAD_REQUEST.as_u16();
                let code =
                    cli::print(NAME, &Screen::of_stdout().harmless(&shown(&answer, cli.bare)));
                if cli.fail && is_bad { ExitCode::from(CURLS) } else { code }
            }
            Err(error) => cli::finish(NAME, Err(error)),
        }
    })
}

/// What curl ends with for a bad status.
const CURLS: u8 = 22;

async fn send(cli: &Cli) -> anyhow::Result<Response> {
    let reach = Reach { url: cli.url.clone(), config: cli.config.clone(), ..Reach::default() };
    let services = Services::find(&reach)?;
    let body = cli.data.as_deref().map(body).transpose()?;
    let method = match (&cli.method, &body) {
        (Some(method), _) => {
            method.parse().map_err(|_| Usage(format!("{} is not a method", quoted(method))))?
        }
        (None, Some(_)) => Method::POST,
        (None, None) => Method::GET,
    };
    let request = Request {
        method,
        url: address(services.volapi_url()?, cli.path.as_deref().unwrap_or_default())?,
        headers: headers(&cli.headers)?,
        body: body.map(Into::into),
        timeout: LIST_TIMEOUT,
        body_cap: BODY_CAP,
        peer: None,
    };
    Ok(HttpTransport::new()?.send(request).await?)
}

/// Returns the address of a path.
fn address(base: &str, path: &str) -> Result<Url, Usage> {
    if !path.starts_with('/') {
        return Err(Usage(format!("a path begins with a slash: {}", quoted(path))));
    }
    let whole = format!("{}{path}", base.trim_end_matches('/'));
    let url = Url::parse(&whole).map_err(|error| Usage(format!("{}: {error}", quoted(&whole))))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Usage(format!("{} does not begin with http:", quoted(&whole))));
    }
    Ok(url)
}

fn body(data: &str) -> anyhow::Result<Vec<u8>> {
    match data.strip_prefix('@') {
        None => Ok(data.as_bytes().to_vec()),
        Some("-") => {
            let mut all = Vec::new();
            std::io::stdin().read_to_end(&mut all)?;
            Ok(all)
        }
        Some(file) => std::fs::read(file).with_context(|| file.to_owned()),
    }
}

/// The shipped commands always say that they send and take JSON.
fn headers(given: &[String]) -> Result<HeaderMap, Usage> {
    let json = HeaderValue::from_static("application/json");
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, json.clone());
    headers.insert(CONTENT_TYPE, json);
    let agent = user_agent(NAME, env!("CARGO_PKG_VERSION"), None);
    if let Ok(agent) = HeaderValue::from_str(&agent) {
        headers.insert(USER_AGENT, agent);
    }
    for one in given {
        let bad = || Usage(format!("{} is not NAME: VALUE", quoted(one)));
        let (name, value) = one.split_once(':').ok_or_else(bad)?;
        let name: HeaderName = name.trim().parse().map_err(|_| bad())?;
        headers.insert(name, HeaderValue::from_str(value.trim()).map_err(|_| bad())?);
    }
    Ok(headers)
}

/// Returns the answer as text: the line of its status, its headers, an empty line, its body.
fn shown(answer: &Response, bare: bool) -> String {
    let mut text = String::new();
    if !bare {
        text += &format!("HTTP/1.1 {}\r\n", answer.status);
        for (name, value) in &answer.headers {
            text += &format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes()));
        }
        text += "\r\n";
    }
    text += &String::from_utf8_lossy(&answer.body);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_joined_to_the_address_as_it_is() {
        let of = |path: &str| address("http://volapi.dc/", path).map(String::from);
        assert_eq!(of("/volumes?name=a%2Ab").unwrap(), "http://volapi.dc/volumes?name=a%2Ab");
        assert!(of("volumes").is_err() && address("ftp://x", "/a").is_err());
    }

    #[test]
    fn headers_may_be_replaced_and_bad_ones_are_named() {
        let headers = headers(&["Accept: text/plain".to_owned(), "x-a:b".to_owned()]).unwrap();
        assert_eq!(
            (&headers[ACCEPT], &headers["x-a"]),
            (&"text/plain".parse().unwrap(), &"b".parse().unwrap())
        );
        assert!(super::headers(&["nonsense".to_owned()]).is_err());
    }
}
