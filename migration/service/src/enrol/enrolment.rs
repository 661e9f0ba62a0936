// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is asked by programs: to be let in, and what is new.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::http::Shown;
use sdc_clients::cnapi::Cnapi;
use serde::{Deserialize, Serialize};
use store::{Bucket, Error, Expect, Query, Schema, Store, Versioned};
use trust::exchange::{Asks, Join, Joined, Known, State};
use trust::{About, Authority, Holder, Identity, digest, key_of};
use uuid::Uuid;

use super::authorities::Place;
use super::members::{Member, Required, Standing, revoked, signer};
use crate::refused::Refused;

const MEMBERS: Schema = Schema { bucket: "trust_members", version: 1, fields: &[], lists: &[] };
const REQUIRED: Schema = Schema { bucket: "trust_required", version: 1, fields: &[], lists: &[] };
const TOKENS: Schema = Schema { bucket: "trust_tokens", version: 1, fields: &[], lists: &[] };
/// Between two readings of what other instances, or people, have changed.
const PAUSE: Duration = Duration::from_secs(10);
/// A member's row is written at most so often only for its last contact.
const SEEN: i64 = 600;
/// Keys of one program that wait at once.
const WAITING: usize = 4;

/// Whom a token lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum For {
    /// The agent of this node, once.
    Cn(Uuid),
    /// The agent of any node, with a person's approval.
    AnyCn,
    Volapi,
    /// An operator, once, with another's approval.
    Operator,
}

impl fmt::Display for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            For::Cn(cn) => write!(f, "node {cn}"),
            For::AnyCn => f.write_str("any node"),
            For::Volapi => f.write_str("volapi"),
            For::Operator => f.write_str("an operator"),
        }
    }
}

/// A token, under the digest of its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TokenRow {
    #[serde(rename = "for")]
    pub is_for: For,
    /// In seconds since 1970.
    pub until: i64,
    /// The key that it has let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
}

/// The authorities and the members, as they were read last.
#[derive(Debug, Default)]
struct Membership {
    authorities: Vec<Authority>,
    names: Vec<String>,
    /// Which of them signs.
    signer: Option<usize>,
    known: Known,
    /// What `known` was made of: of each authority the numbers that were revoked.
    lists: Vec<Vec<String>>,
}

/// Lets programs in; cheap to clone.
#[derive(Clone, Debug)]
pub struct Enrolment {
    pub(super) place: Place,
    pub(super) members: Bucket<Member>,
    pub(super) tokens: Bucket<TokenRow>,
    pub(super) required: Bucket<Required>,
    cnapi: Cnapi,
    /// The service's own identity.
    pub(super) holder: Arc<Holder>,
    seen: Arc<Mutex<Membership>>,
}

fn refused(code: &str, why: &str) -> Refused {
    Refused::coded(403, code, why)
}

pub(super) fn broken(why: impl std::fmt::Display) -> Refused {
    Refused::internal(&why.to_string())
}

impl Enrolment {
    /// Opens the buckets, and reads them.
    pub async fn open(
        store: &Store,
        place: Place,
        cnapi: Cnapi,
        holder: Arc<Holder>,
    ) -> Result<Enrolment, Error> {
        let (members, tokens) =
            (Bucket::open(store, MEMBERS).await?, Bucket::open(store, TOKENS).await?);
        let required = Bucket::open(store, REQUIRED).await?;
        let seen = Arc::default();
        Ok(Enrolment { place, members, tokens, required, cnapi, holder, seen })
    }

    /// Refreshes again and again, for ever. Dropping it at any await is safe.
    pub async fn run(&self) {
        let mut last = None;
        loop {
            let wrong = self.refresh().await.err().map(|refused| refused.message().to_owned());
            if wrong != last
                && let Some(wrong) = &wrong
            {
                tracing::error!(
                    reason = wrong,
                    "cannot read the certificate authorities; trying again"
                );
            }
            last = wrong;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns all rows of members.
    pub(super) async fn rows(&self) -> Result<Vec<Versioned<Member>>, Refused> {
        let (mut rows, mut query) = (Vec::new(), Query::all());
        loop {
            let page = self.members.find(query).await?;
            rows.extend(page.records);
            match page.next {
                Some(next) => query = Query::all().after(next),
                None => return Ok(rows),
            }
        }
    }

    pub(super) async fn all(&self) -> Result<Vec<Member>, Refused> {
        Ok(self.rows().await?.into_iter().map(|row| row.value).collect())
    }

    /// Reads the buckets, and applies them: revocations, the signing authority, the service's own certificate.
    pub async fn refresh(&self) -> Result<(), Refused> {
        let now = self.holder.now();
        let authorities = self.place.read().await.map_err(broken)?.all;
        let members = self.all().await?;
        let names = authorities.iter().map(Authority::name).collect::<Result<Vec<_>, _>>();
        let names = names.map_err(broken)?;
        let signer = signer(&names, &members, now);
        let all: Vec<_> = names.iter().map(|name| revoked(&members, name)).collect();
        let lists: Vec<Vec<String>> =
            all.iter().map(|of| of.iter().map(|it| it.serial.clone()).collect()).collect();
        let is_same = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (&seen.names, &seen.lists, seen.signer) == (&names, &lists, signer)
        };
        let is_due = self.holder.live().is_none_or(|live| live.about.is_due(now));
        if is_same && !is_due {
            return Ok(());
        }
        let made = authorities.iter().zip(&all).map(|(it, revoked)| it.list(revoked, now));
        let known = Known {
            roots: authorities.iter().map(|it| it.certificate.clone()).collect(),
            revoked: made.collect::<Result<_, _>>().map_err(broken)?,
        };
        if let Some(own) = signer.and_then(|at| authorities.get(at)) {
            let held = own.equip(Identity::Service, known.clone(), now).map_err(broken)?;
            self.holder.hold(held).map_err(broken)?;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Membership { authorities, names, signer, known, lists };
        Ok(())
    }

    /// Returns the names of the authorities that there are.
    fn names(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).names.clone()
    }

    /// Returns the signing authority, and what all members have to know.
    pub(super) fn signing(&self) -> Result<(Authority, String, Known), Refused> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seen.signer.ok_or_else(|| {
            let why = "there is no authority yet: sdc-migrate trust init";
            Refused::coded(503, "ServiceUnavailableError", why)
        })?;
        Ok((seen.authorities[at].clone(), seen.names[at].clone(), seen.known.clone()))
    }

    /// Enrols a client with a token, or records it as a candidate that waits for a person.
    pub async fn join(&self, join: &Join) -> Result<Joined, Refused> {
        let (now, key) = (self.holder.now(), key_of(&join.request));
        let key = key.map_err(|why| Refused::parameter("request", &why.to_string()))?;
        let digest = digest(join.secret.as_bytes());
        let none =
            || refused("InvalidToken", "the join token is not known, has expired or was used");
        let token = match self.tokens.get(&digest).await {
            Ok(token) if token.value.until > now => token,
            Ok(_) | Err(Error::NotFound { .. }) => return Err(none()),
            Err(error) => return Err(error.into()),
        };
        let identity = match (token.value.is_for, join.cn) {
            (For::Cn(cn), Some(asks)) if cn == asks => Identity::Agent(cn),
            (For::AnyCn, Some(cn)) => Identity::Agent(cn),
            (For::Volapi, None) => Identity::Volapi,
            (For::Operator, None) => Identity::Operator,
            _ => return Err(refused("InvalidToken", "the join token is for another program")),
        };
        let rows = self.rows().await?;
        let of = |it: &&Versioned<Member>| it.value.name == identity.name();
        let row = rows.iter().filter(of).find(|it| it.value.key == key);
        match row.map(|row| row.value.standing) {
            Some(Standing::Revoked) => {
                let why = "this key was revoked; remove identity.json, and join with a new token";
                return Err(refused("Revoked", why));
            }
            // The answer before was lost, or a person has approved it.
            Some(Standing::Enrolled) => return self.issue(row, identity, join, now).await,
            Some(Standing::Waits) | None => {}
        }
        if let Some(cn) = identity.cn() {
            self.exists(cn).await?;
        }
        let is_taken = token.value.used.as_ref().is_some_and(|used| *used != key);
        if is_taken && token.value.is_for != For::AnyCn {
            return Err(none());
        }
        self.has_room(&rows, identity, &key)?;
        let has_other = rows.iter().filter(of).any(|it| it.value.standing == Standing::Enrolled);
        let needs_nobody = match token.value.is_for {
            For::Cn(_) => !has_other,
            For::AnyCn | For::Operator => false,
            For::Volapi => true,
        };
        let mut member = Member::new(identity, &key, &digest, now);
        if needs_nobody {
            member.standing = Standing::Enrolled;
        }
        let expect = row.map_or(Expect::Absent, |row| Expect::Etag(row.etag.clone()));
        if row.is_none_or(|row| row.value.standing != member.standing) {
            self.members.put(&Member::row(identity, &key), expect, &member).await?;
        }
        if token.value.is_for != For::AnyCn && token.value.used.is_none() {
            let used = TokenRow { used: Some(key.clone()), ..token.value };
            self.tokens.put(&digest, Expect::Etag(token.etag), &used).await?;
        }
        if !needs_nobody {
            tracing::warn!(%identity, key, "a program asks for its first certificate; approve it with `sdc-migrate trust approve`");
            return Ok(Joined::Waits { key });
        }
        let row = self.members.get(&Member::row(identity, &key)).await?;
        self.issue(Some(&row), identity, join, now).await
    }

    /// Checks that not too many keys of a program wait already.
    fn has_room(
        &self,
        rows: &[Versioned<Member>],
        identity: Identity,
        key: &str,
    ) -> Result<(), Refused> {
        let of = rows.iter().filter(|it| it.value.name == identity.name() && it.value.key != key);
        match of.filter(|it| it.value.standing == Standing::Waits).count() < WAITING {
            true => Ok(()),
            false => Err(refused("TooManyKeys", "other keys of this program wait: trust revoke")),
        }
    }

    /// Checks that CNAPI knows the node.
    async fn exists(&self, cn: Uuid) -> Result<(), Refused> {
        match self.cnapi.get_server(&cn.to_string()).await {
            Ok(_) => Ok(()),
            Err(error) if error.status() == Some(404) => {
                Err(refused("NoSuchNode", "CNAPI knows no such node"))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn issue(
        &self,
        row: Option<&Versioned<Member>>,
        identity: Identity,
        join: &Join,
        now: i64,
    ) -> Result<Joined, Refused> {
        let row = row.ok_or_else(|| broken("the row of a member is gone"))?;
        let (certificate, known) = self.certify(row, identity, &join.request, now).await?;
        tracing::info!(%identity, key = row.value.key, "approved a program");
        Ok(Joined::Issued { certificate, known })
    }

    /// Makes a certificate, and notes it first: what was issued can be revoked. One that is new is given again.
    async fn certify(
        &self,
        row: &Versioned<Member>,
        identity: Identity,
        request: &str,
        now: i64,
    ) -> Result<(String, Known), Refused> {
        let (authority, name, known) = self.signing()?;
        if let Some(pem) = row.value.has(&name, now) {
            return Ok((pem.to_owned(), known));
        }
        let made = authority.issue(identity, request, now).map_err(broken)?;
        let about = About::of(&made).map_err(broken)?;
        let mut member = row.value.clone();
        member.issued(&about, &made, &self.names());
        member.seen = now;
        self.members.put(&row.key, Expect::Etag(row.etag.clone()), &member).await?;
        Ok((made, known))
    }

    /// Returns what is new to a member, and renews its certificate.
    pub async fn state(
        &self,
        identity: Identity,
        shown: Option<&Shown>,
        asks: &Asks,
    ) -> Result<State, Refused> {
        if identity == Identity::Service {
            return Err(refused("NotAuthorized", "a service renews its own certificate itself"));
        }
        let now = self.holder.now();
        let mut row = match self.members.get(&Member::row(identity, &asks.key)).await {
            Ok(row) if row.value.key == asks.key => row,
            Ok(_) | Err(Error::NotFound { .. }) => {
                return self.unknown(identity, (shown, asks), now).await;
            }
            Err(error) => return Err(error.into()),
        };
        // Also of a key that was revoked: what it still has is to be on the list.
        if shown.is_some_and(|shown| row.value.has_shown(shown, &self.names())) {
            row.etag = self.members.put(&row.key, Expect::Etag(row.etag), &row.value).await?;
        }
        match row.value.standing {
            Standing::Enrolled => {}
            Standing::Waits => {
                let why = "this key waits: sdc-migrate trust approve";
                return Err(refused("NoSuchKey", why));
            }
            Standing::Revoked => return Err(refused("Revoked", "this key was revoked")),
        }
        if row.value.knows != asks.knows || now - row.value.seen >= SEEN {
            (row.value.knows, row.value.seen) = (asks.knows.clone(), now);
            row.etag = self.members.put(&row.key, Expect::Etag(row.etag), &row.value).await?;
        }
        let (_, newest, known) = self.signing()?;
        let Some(request) = &asks.request else {
            let last = row.value.certificates.last();
            let renew = last.is_some_and(|last| last.issuer != newest);
            return Ok(State { known, certificate: None, renew });
        };
        if key_of(request).ok().as_deref() != Some(&asks.key) {
            return Err(refused("InvalidRequest", "the request is of another key"));
        }
        let (certificate, known) = self.certify(&row, identity, request, now).await?;
        Ok(State { known, certificate: Some(certificate), renew: false })
    }

    /// A program has a certificate, and the store does not know it: the store was lost, or is older. A person decides.
    async fn unknown(
        &self,
        identity: Identity,
        (shown, asks): (Option<&Shown>, &Asks),
        now: i64,
    ) -> Result<State, Refused> {
        if asks.key.len() == 64 && asks.key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            self.has_room(&self.rows().await?, identity, &asks.key)?;
            let mut member = Member::new(identity, &asks.key, "", now);
            if let Some(shown) = shown {
                member.has_shown(shown, &self.names());
            }
            let row = Member::row(identity, &asks.key);
            match self.members.put(&row, Expect::Absent, &member).await {
                Err(Error::EtagConflict { .. }) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let why = "the service's store does not know this key: sdc-migrate trust approve";
        Err(refused("NoSuchKey", why))
    }
}
