// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! How a program is let in: with a token, once.

use store::{Batch, Error, Expect, Versioned};
use trust::exchange::{Join, Joined};
use trust::{Identity, digest, key_of};
use uuid::Uuid;

use super::enrolment::{Enrolment, For, TRIES, TokenRow, broken, busy, refused};
use super::members::{Member, Seat, Standing};
use crate::refused::Refused;

/// Keys of one program that wait at once.
const WAITING: usize = 4;

impl Enrolment {
    /// Enrols a client with a token, or records it as a candidate that waits for a person. Of keys that come at once
    /// with one token one is let in.
    pub async fn join(&self, join: &Join) -> Result<Joined, Refused> {
        for _ in 0..TRIES {
            if let Some(joined) = self.try_join(join).await? {
                return Ok(joined);
            }
        }
        Err(busy())
    }

    /// The same once; none where another request has changed one of the rows meanwhile.
    async fn try_join(&self, join: &Join) -> Result<Option<Joined>, Refused> {
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
        // Before the rows of the members: one that changes after that changes the seat, too.
        let seat = self.seat(identity).await?;
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
        let is_once = token.value.is_for != For::AnyCn;
        if is_once && token.value.used.as_ref().is_some_and(|used| *used != key) {
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
        // All or nothing, the token first: of those that come with one at once the others find it used.
        let mut batch = Batch::new();
        if is_once && token.value.used.is_none() {
            let used = TokenRow { used: Some(key.clone()), ..token.value };
            self.tokens.put_in(&mut batch, &digest, Expect::Etag(token.etag), &used)?;
        }
        if needs_nobody {
            member.standing = Standing::Enrolled;
            self.sit_in(&mut batch, identity, &key, seat)?;
        }
        let expect = row.map_or(Expect::Absent, |row| Expect::Etag(row.etag.clone()));
        if row.is_none_or(|row| row.value.standing != member.standing) {
            self.members.put_in(&mut batch, &Member::row(identity, &key), expect, &member)?;
        }
        match self.store.commit(batch).await {
            Err(Error::EtagConflict { .. } | Error::NotFound { .. }) => return Ok(None),
            done => drop(done?),
        }
        if !needs_nobody {
            tracing::warn!(%identity, key, "a program asks for its first certificate; approve it with `sdc-migrate trust approve`");
            return Ok(Some(Joined::Waits { key }));
        }
        self.refresh().await?;
        let row = self.members.get(&Member::row(identity, &key)).await?;
        self.issue(Some(&row), identity, join, now).await
    }

    /// Returns the version of the row that says which key of a program was let in last; none of operators, who are
    /// many.
    pub(super) async fn seat(&self, identity: Identity) -> Result<Option<Expect>, Refused> {
        if identity == Identity::Operator {
            return Ok(None);
        }
        match self.seats.get(&identity.name()).await {
            Ok(found) => Ok(Some(Expect::Etag(found.etag))),
            Err(Error::NotFound { .. }) => Ok(Some(Expect::Absent)),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds to a batch that this key is the one that is enrolled, unless the row was changed since.
    pub(super) fn sit_in(
        &self,
        batch: &mut Batch,
        identity: Identity,
        key: &str,
        seat: Option<Expect>,
    ) -> Result<(), Refused> {
        let Some(seat) = seat else { return Ok(()) };
        let row = Seat { key: key.to_owned() };
        Ok(self.seats.put_in(batch, &identity.name(), seat, &row)?)
    }

    /// Checks that not too many keys of a program wait already.
    pub(super) fn has_room(
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
    ) -> Result<Option<Joined>, Refused> {
        let row = row.ok_or_else(|| broken("the row of a member is gone"))?;
        let certified = self.certify(row, identity, &join.request, now).await?;
        let Some((certificate, known)) = certified else { return Ok(None) };
        tracing::info!(%identity, key = row.value.key, "approved a program");
        Ok(Some(Joined::Issued { certificate, known }))
    }
}
