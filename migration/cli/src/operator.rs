// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How an operator reaches what only operators may ask: the service's unix socket, where the service runs, or its port
//! for clients with certificates, with one of its own.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use daemon::cli::Usage;
use daemon::http::private_dir;
use sdc_clients::Http;
use sdc_clients::http::user_agent;
use sdc_clients::identity::Identity;
use trust::{Admits, Holder, Keeper, Token};

use super::args::NAME;

/// Where the service is for operators.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Its port for clients with certificates; none: its socket.
    pub url: Option<String>,
    /// Where the operator's key and certificate are.
    pub dir: PathBuf,
    pub socket: PathBuf,
}

impl Way {
    /// Returns where the service is, for messages.
    pub(super) fn place(&self) -> String {
        self.url.clone().unwrap_or_else(|| self.socket.display().to_string())
    }

    fn keeper(&self, holder: &Arc<Holder>) -> Result<Keeper, Usage> {
        let none = || {
            Usage(
                "where is the service? Give --trust-url, or trust_url in the configuration"
                    .to_owned(),
            )
        };
        let url = self.url.as_deref().ok_or_else(none)?;
        Ok(Keeper::new(holder, url, (Identity::Operator, &agent()), &self.dir))
    }

    /// Returns the client. A certificate that is to be renewed is renewed first, and a key that was approved gets one.
    pub(super) async fn client(&self) -> anyhow::Result<Http> {
        let Some(url) = &self.url else {
            let http = Http::new(&format!("unix:{}", self.socket.display()), &agent())?;
            return Ok(http.without_retries());
        };
        let holder = Holder::new(Admits::Known);
        let kept = self.keeper(&holder)?.once().await;
        if let Err(why) = kept {
            if holder.live().is_none() {
                return Err(why).context("the operator's certificate");
            }
            eprintln!("{NAME}: warning: the certificate is not renewed: {why}");
        }
        let http = Http::with_transport(url, &agent(), Arc::new(trust::Client::new(&holder)))?;
        Ok(http.without_retries().to_peer(Identity::Service))
    }

    /// Asks to be let in as an operator with this token. Returns until when the certificate is valid.
    /// Fails, too, until the key was approved: the next command asks again.
    pub(super) async fn join(&self, token: &str) -> anyhow::Result<String> {
        let token: Token = token.parse()?;
        let holder = Holder::new(Admits::Known);
        let keeper = self.keeper(&holder)?;
        let file = keeper.token_file();
        put(&self.dir, &file, &token.text()).with_context(|| file.display().to_string())?;
        keeper.once().await?;
        let until = keeper.standing().until;
        Ok(until.map(trust::date).unwrap_or_default())
    }
}

/// Writes a file that only its owner may read.
fn put(dir: &Path, file: &Path, text: &str) -> std::io::Result<()> {
    private_dir(dir)?;
    let _old = std::fs::remove_file(file);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(file)?.write_all(text.as_bytes())
}

fn agent() -> String {
    user_agent(NAME, env!("CARGO_PKG_VERSION"), None)
}
