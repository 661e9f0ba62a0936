// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The task that enrols a program with its join token, renews its certificate at two thirds of its life, and keeps what
//! it knows of the authorities and of what is revoked up to date. None of it needs a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use daemon::disk;
use daemon::text::counted;
use http::Method;
use sdc_clients::Http;
use sdc_clients::http::{Call, Transport};
use sdc_clients::identity::Identity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::certificate::date;
use crate::client::{Client, has_answered};
use crate::exchange::{Asks, Join, Joined, Known, State};
use crate::held::{Held, bytes_of, new_key};
use crate::holder::{Holder, knowing_only};
use crate::invalid::Invalid;
use crate::join::{NoToken, Token};

/// Between two rounds, and while there is no certificate.
pub const ROUND: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(1);
/// An answer may take so long.
const ANSWERS: Duration = Duration::from_secs(30);
/// Bytes of a token's file.
const LONGEST: usize = 4096;
/// People are told so long before a certificate ends.
const WARNS: i64 = 14 * 86_400;

/// How a program stands, for its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Until when its certificate is valid, in seconds since 1970; none: it has none.
    pub until: Option<i64>,
    /// Who signed it.
    pub issuer: String,
    /// The fingerprint of its key.
    pub key: String,
    /// Why the last round did not end well.
    pub wrong: Option<String>,
    /// The service was there, and has refused.
    pub is_refused: bool,
}

impl Standing {
    /// Returns what a person has to know, if anything.
    pub fn needs(&self, now: i64) -> Option<String> {
        let wrong = self.wrong.as_deref().unwrap_or("nothing was refused");
        match self.until {
            None => Some(format!("it has no certificate: {wrong}")),
            Some(until) if until <= now => {
                Some(format!("its certificate has expired on {}: {wrong}", date(until)))
            }
            Some(until) if until - now < WARNS => {
                let days = usize::try_from((until - now) / 86_400).unwrap_or_default();
                let days = counted(days, "day", "days");
                Some(format!("its certificate expires in {days} and is not renewed: {wrong}"))
            }
            Some(_) if self.is_refused => Some(format!("migration-service refuses it: {wrong}")),
            Some(_) => None,
        }
    }
}

impl Unkept {
    fn is_refusal(&self) -> bool {
        match self {
            Unkept::Asked(error) => error.status() == Some(403) || has_answered(error),
            _ => false,
        }
    }
}

/// Why a round did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Unkept {
    /// What it holds is of no use, or cannot be read or written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The service was not reached, or has refused.
    #[error("{}", asked(.0))]
    Asked(#[from] sdc_clients::Error),
    /// There is nothing to begin with.
    #[error("there is neither a certificate nor a join token in {}", .0.display())]
    NoToken(PathBuf),
    /// The token cannot be used.
    #[error("{}: {}", .0.display(), .1)]
    BadToken(PathBuf, String),
    /// An operator has to approve this key.
    #[error("waiting for an operator's approval: sdc-migrate trust approve, key {0}")]
    Waits(String),
    /// The thread that read or wrote has ended.
    #[error("reading or writing {} was aborted", .0.display())]
    Aborted(PathBuf),
}

/// A refusal has the service's words.
fn asked(error: &sdc_clients::Error) -> String {
    let text = daemon::log::chain(error);
    match error.peer_text().filter(|_| error.code().is_some()) {
        Some(reason) => format!("{text}: {reason}"),
        None => text,
    }
}

/// Keeps the certificate of one program.
#[derive(Debug)]
pub struct Keeper {
    holder: Arc<Holder>,
    /// Where the service is, by its port for agents.
    service: String,
    /// The node, of an agent.
    identity: Identity,
    user_agent: String,
    dir: PathBuf,
    /// Between two rounds.
    every: Duration,
    standing: ArcSwap<Standing>,
}

impl Keeper {
    /// Keeps the certificate of `identity` in `dir`, and asks the service at `service`.
    pub fn new(
        holder: &Arc<Holder>,
        service: &str,
        (identity, user_agent): (Identity, &str),
        dir: &Path,
    ) -> Keeper {
        Keeper {
            holder: Arc::clone(holder),
            service: service.to_owned(),
            identity,
            user_agent: user_agent.to_owned(),
            dir: dir.to_owned(),
            every: ROUND,
            standing: ArcSwap::default(),
        }
    }

    /// Asks so often what is new.
    #[must_use]
    pub fn every(self, every: Duration) -> Keeper {
        Keeper { every, ..self }
    }

    /// Returns the file of what is held.
    pub fn file(&self) -> PathBuf {
        self.dir.join("identity.json")
    }

    /// Returns the file into which a person puts the join token. It is removed once the token was used.
    pub fn token_file(&self) -> PathBuf {
        self.dir.join("join-token")
    }

    /// Returns how the program stands.
    pub fn standing(&self) -> Arc<Standing> {
        self.standing.load_full()
    }

    /// Returns how many handshakes were refused at this program's doors, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.holder.refusals().counts().collect()
    }

    /// Returns what a person has to know, if anything.
    pub fn needs(&self) -> Option<String> {
        self.standing().needs(self.holder.now())
    }

    /// Uses what the file has, if it has anything.
    /// Fails with [`Invalid`].
    pub async fn load(&self) -> Result<(), Invalid> {
        let path = self.file();
        let read = disk::blocking(move || Held::read(&path)).await;
        let held = read.unwrap_or(Ok(None))?.filter(|held| held.certificate.is_some());
        if let Some(held) = held
            && self.holder.live().is_none_or(|live| live.held != held)
        {
            self.holder.hold(held)?;
        }
        if self.standing().until.is_none() {
            self.stand(None, false);
        }
        Ok(())
    }

    /// Runs for ever, and asks at once what is new when it is told. Dropping it at any await is safe: the file is
    /// replaced as a whole.
    pub async fn run(&self, news: &Notify) {
        let mut told = None;
        loop {
            let wrong = self.once().await.err().map(|why| why.to_string());
            if wrong != told
                && let Some(wrong) = &wrong
            {
                tracing::warn!(reason = wrong, "cannot store the certificate; trying again");
            }
            told = wrong;
            let is_held = self.standing().until.is_some_and(|until| until > self.holder.now());
            // Both arms are cancel-safe: a notice that is not taken stays.
            tokio::select! {
                () = tokio::time::sleep(if is_held { self.every } else { SOON }) => {}
                () = news.notified() => {}
            }
        }
    }

    /// One round, for a program that does not run for long: renews its certificate where that is due, and asks to be
    /// let in where a token is there.
    /// Fails with [`Unkept`]; what it held before stays in use.
    pub async fn once(&self) -> Result<(), Unkept> {
        let done = self.round().await;
        let is_refused = done.as_ref().is_err_and(Unkept::is_refusal);
        self.stand(done.as_ref().err().map(ToString::to_string), is_refused);
        done
    }

    fn stand(&self, wrong: Option<String>, is_refused: bool) {
        let live = self.holder.live();
        let about = live.as_ref().map(|live| &live.about);
        self.standing.store(Arc::new(Standing {
            until: about.map(|about| about.until),
            issuer: about.map(|about| about.issuer.clone()).unwrap_or_default(),
            key: about.map(|about| about.key.clone()).unwrap_or_default(),
            wrong,
            is_refused,
        }));
    }

    async fn round(&self) -> Result<(), Unkept> {
        self.load().await?;
        if let Some(token) = self.token().await? {
            return self.join(token).await;
        }
        let live = self.holder.live();
        let Some(live) = live else { return Err(Unkept::NoToken(self.token_file())) };
        let is_due = live.about.is_due(self.holder.now());
        let mut state = self.ask(&live.held, is_due).await?;
        if state.renew && !is_due {
            // First, so that this program judges the others by the same authorities.
            self.keep(Held { known: state.known.clone(), ..live.held.clone() }).await?;
            state = self.ask(&live.held, true).await?;
        }
        let State { known, certificate, .. } = state;
        let certificate = certificate.or(live.held.certificate.clone());
        self.keep(Held { certificate, known, ..live.held.clone() }).await
    }

    async fn ask(&self, held: &Held, renew: bool) -> Result<State, Unkept> {
        let request = if renew { Some(held.request()?) } else { None };
        let asks = Asks { key: held.about()?.key, knows: held.knows(), request };
        let client = Arc::new(Client::new(&self.holder));
        self.post(client, "state", &asks, "the state of the authorities").await
    }

    /// Reads the token that a person has put there.
    async fn token(&self) -> Result<Option<Token>, Unkept> {
        let path = self.token_file();
        let bad = |why: String| Unkept::BadToken(path.clone(), why);
        let at = path.clone();
        let read = disk::blocking(move || bytes_of(&at, LONGEST)).await;
        match read.ok_or_else(|| Unkept::Aborted(path.clone()))? {
            Ok(Some(text)) => {
                let token = String::from_utf8_lossy(&text).parse();
                token.map(Some).map_err(|error: NoToken| bad(error.to_string()))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    /// Asks to be let in, with the same key each time.
    async fn join(&self, token: Token) -> Result<(), Unkept> {
        let path = self.file();
        let held = disk::blocking(move || match Held::read(&path)? {
            Some(held) => Ok(held),
            None => {
                let held = new_key()?;
                held.write(&path)?;
                Ok::<_, Invalid>(held)
            }
        });
        let held = held.await.ok_or_else(|| Unkept::Aborted(self.file()))??;
        let (secret, request) = (token.secret, held.request()?);
        let join = Join { secret, cn: self.identity.cn(), request };
        let config = knowing_only(&token.authority, self.holder.clock())?;
        let client = Arc::new(Client::with(config));
        match self.post(client, "join", &join, "a certificate").await? {
            Joined::Waits { key } => Err(Unkept::Waits(key)),
            Joined::Issued { certificate, known } => {
                self.keep(Held { certificate: Some(certificate), known, ..held }).await?;
                tracing::info!(identity = %self.identity, "migration-service issued a certificate");
                let path = self.token_file();
                let removed = disk::blocking(move || std::fs::remove_file(&path)).await;
                if let Some(Err(error)) = removed {
                    let path = self.token_file();
                    tracing::warn!(path = %path.display(), %error, "cannot remove the used join token; remove its file");
                }
                Ok(())
            }
        }
    }

    /// Uses what is new, and writes it down: a certificate that is of no use is not written.
    async fn keep(&self, held: Held) -> Result<(), Unkept> {
        let is_same = self.holder.live().is_some_and(|live| live.held == held);
        if is_same || held.known == Known::default() {
            return Ok(());
        }
        if held.about()?.identity != self.identity {
            return Err(Invalid::Certificate.into());
        }
        self.holder.hold(held.clone())?;
        let path = self.file();
        let written = disk::blocking(move || held.write(&path)).await;
        Ok(written.ok_or_else(|| Unkept::Aborted(self.file()))??)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        client: Arc<dyn Transport>,
        route: &str,
        body: &impl Serialize,
        expected: &str,
    ) -> Result<T, Unkept> {
        let http = Http::with_transport(&self.service, &self.user_agent, client)?;
        let http = http.without_retries().to_peer(Identity::Service);
        let call = Call::new(Method::POST, &["trust", route]).json(body).timeout(ANSWERS);
        Ok(http.execute(call).await?.json(expected)?)
    }
}
