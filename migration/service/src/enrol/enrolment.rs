// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is asked by programs: to be let in, and what is new.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::http::Shown;
use sdc_clients::cnapi::Cnapi;
use serde::{Deserialize, Serialize};
use store::{Batch, Bucket, Error, Etag, Expect, Query, Schema, Store, Versioned};
use tokio::sync::Notify;
use tokio::time::Instant;
use trust::exchange::{Asks, Known, State};
use trust::{About, Authority, Holder, Identity, key_of};
use uuid::Uuid;

use super::authorities::Place;
use super::members::{Member, Required, Seat, Standing, revoked, shut_out, signer};
use crate::refused::Refused;

const MEMBERS: Schema = Schema { bucket: "trust_members", version: 1, fields: &[], lists: &[] };
const REQUIRED: Schema = Schema { bucket: "trust_required", version: 1, fields: &[], lists: &[] };
const SEATS: Schema = Schema { bucket: "trust_seats", version: 1, fields: &[], lists: &[] };
const TOKENS: Schema = Schema { bucket: "trust_tokens", version: 1, fields: &[], lists: &[] };
/// Between two readings of all that other instances, or people, have changed, and two looks whether they have revoked
/// something.
const PAUSE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(500);
/// The row that changes with each revocation.
const REVOCATIONS: &str = "revocations";
/// A member's row is written at most so often only for its last contact.
const SEEN: i64 = 600;
/// How often a write is tried that meets a concurrent one.
pub(super) const TRIES: usize = 8;

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
    /// The nodes of which no key is let in any more.
    shut_out: BTreeSet<Uuid>,
}

/// Lets programs in; cheap to clone.
#[derive(Clone, Debug)]
pub struct Enrolment {
    pub(super) store: Store,
    pub(super) place: Place,
    pub(super) members: Bucket<Member>,
    pub(super) tokens: Bucket<TokenRow>,
    pub(super) seats: Bucket<Seat>,
    pub(super) required: Bucket<Required>,
    pub(super) cnapi: Cnapi,
    /// The service's own identity.
    pub(super) holder: Arc<Holder>,
    seen: Arc<Mutex<Membership>>,
    /// Woken when this instance has revoked something.
    pub(super) revoked: Arc<Notify>,
}

pub(super) fn refused(code: &str, why: &str) -> Refused {
    Refused::coded(403, code, why)
}

pub(super) fn busy() -> Refused {
    let why = "other requests change the same rows all the time: nothing was written, ask again";
    Refused::coded(503, "ServiceUnavailableError", why)
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
        let (required, seats) =
            (Bucket::open(store, REQUIRED).await?, Bucket::open(store, SEATS).await?);
        let (store, seen, revoked) = (store.clone(), Arc::default(), Arc::default());
        Ok(Enrolment {
            store,
            place,
            members,
            tokens,
            seats,
            required,
            cnapi,
            holder,
            seen,
            revoked,
        })
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
            let (before, until) = (self.revocations().await, Instant::now() + PAUSE);
            while Instant::now() < until && self.revocations().await == before {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Returns the version of the row that changes with each revocation, as far as it can be read.
    async fn revocations(&self) -> Option<Etag> {
        self.seats.get(REVOCATIONS).await.ok().map(|found| found.etag)
    }

    /// Adds to a batch that something was revoked: other instances find out by it.
    pub(super) fn revokes_in(&self, batch: &mut Batch, key: &str) -> Result<(), Refused> {
        let row = Seat { key: key.to_owned() };
        Ok(self.seats.put_in(batch, REVOCATIONS, Expect::Anything, &row)?)
    }

    /// Waits until this instance has revoked something. Returns the nodes whose agents have to hear of it.
    pub async fn revoked_now(&self) -> Vec<Uuid> {
        self.revoked.notified().await;
        let members = self.all().await.unwrap_or_default().into_iter();
        let is_in = members.filter(|it| it.standing == Standing::Enrolled);
        is_in.filter_map(|it| it.cn_uuid).collect()
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
        let shut_out = shut_out(&members);
        let is_same = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.shut_out.clone_from(&shut_out);
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
        *seen = Membership { authorities, names, signer, known, lists, shut_out };
        Ok(())
    }

    /// Returns true if the key of a node's agent was revoked, and no other was let in since.
    pub fn is_revoked(&self, cn: Uuid) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).shut_out.contains(&cn)
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

    /// Makes a certificate, and notes it first: what was issued can be revoked. One that is new is given again. Returns
    /// none where another request has changed the row meanwhile.
    pub(super) async fn certify(
        &self,
        row: &Versioned<Member>,
        identity: Identity,
        request: &str,
        now: i64,
    ) -> Result<Option<(String, Known)>, Refused> {
        let (authority, name, known) = self.signing()?;
        if let Some(pem) = row.value.has(&name, now) {
            return Ok(Some((pem.to_owned(), known)));
        }
        let made = authority.issue(identity, request, now).map_err(broken)?;
        let about = About::of(&made).map_err(broken)?;
        let mut member = row.value.clone();
        member.issued(&about, &made, &self.names());
        member.seen = now;
        match self.members.put(&row.key, Expect::Etag(row.etag.clone()), &member).await {
            Err(Error::EtagConflict { .. }) => Ok(None),
            done => done.map(|_| Some((made, known))).map_err(Refused::from),
        }
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
        let certified = self.certify(&row, identity, request, now).await?;
        let (certificate, known) = certified.ok_or_else(busy)?;
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
