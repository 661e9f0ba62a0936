// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What operators do with authorities, tokens and members.

use serde_json::{Value, json};
use store::{Batch, Error, Expect, Query};
use trust::{Authority, Identity, Token, digest};
use uuid::Uuid;

use super::authorities::Authorities;
use super::enrolment::{Enrolment, For, TRIES, TokenRow, broken, busy};
use super::members::{Standing, behind};
use crate::refused::Refused;

impl Enrolment {
    /// Makes the first authority.
    pub async fn init(&self) -> Result<Value, Refused> {
        let before = self.place.read().await.map_err(broken)?;
        if !before.all.is_empty() {
            return Err(Refused::argument(
                "there is an authority already: sdc-migrate trust rotate",
            ));
        }
        let authority = Authority::new(self.holder.now()).map_err(broken)?;
        let after = Authorities { all: vec![authority] };
        self.place.replace(&before, &after).await.map_err(broken)?;
        self.refresh().await?;
        self.list().await
    }

    /// Makes a token that is valid for so many seconds.
    pub async fn token(&self, is_for: For, seconds: i64) -> Result<Value, Refused> {
        self.may_make(is_for).await?;
        let (authority, ..) = self.signing()?;
        let fingerprint = authority.fingerprint().map_err(broken)?;
        let token = Token::new(&fingerprint).map_err(broken)?;
        self.forget_tokens().await?;
        let until = self.holder.now() + seconds;
        let row = TokenRow { is_for, until, used: None };
        self.tokens.put(&digest(token.secret.as_bytes()), Expect::Absent, &row).await?;
        tracing::warn!(target: daemon::log::AUDIT, audit = true, is_for = %is_for, until = trust::date(until), "an operator made a join token");
        Ok(json!({"token": token.text(), "until": trust::date(until)}))
    }

    /// Deletes the tokens that have expired.
    async fn forget_tokens(&self) -> Result<(), Refused> {
        let (now, page) = (self.holder.now(), self.tokens.find(Query::all()).await?);
        for row in page.records.into_iter().filter(|row| row.value.until <= now) {
            match self.tokens.delete(&row.key, Expect::Etag(row.etag)).await {
                Ok(()) | Err(Error::NotFound { .. } | Error::EtagConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the authorities, and the members and candidates.
    pub async fn list(&self) -> Result<Value, Refused> {
        self.refresh().await?;
        let authorities = self.place.read().await.map_err(broken)?.all;
        let signer = self.signing().ok().map(|(_, name, _)| name);
        let shown = authorities.iter().map(|it| {
            let name = it.name().map_err(broken)?;
            let signs = Some(&name) == signer.as_ref();
            let print = it.fingerprint().map_err(broken)?;
            Ok(json!({"name": name, "fingerprint": print, "signs": signs}))
        });
        let shown = shown.collect::<Result<Vec<Value>, Refused>>()?;
        let members = self.all().await?.into_iter().map(|it| {
            json!({
                "name": it.name, "cn_uuid": it.cn_uuid, "key": it.key, "standing": it.standing,
                "until": it.certificates.last().map(|last| trust::date(last.until)),
                "authority": it.certificates.last().map(|last| last.issuer.clone()),
                "seen": trust::date(it.seen),
            })
        });
        let required = self.required().await?.map(trust::date);
        let members: Vec<_> = members.collect();
        Ok(json!({"authorities": shown, "members": members, "required": required}))
    }

    /// Lets in the key that waits, in place of the one that is enrolled.
    /// Refuses with 409 with both fingerprints where `key` is not the whole fingerprint of the one that waits.
    pub async fn approve(&self, identity: Identity, key: Option<&str>) -> Result<Value, Refused> {
        let seat = self.seat(identity).await?;
        let rows = self.rows().await?;
        let of = |standing| {
            let of = rows.iter().filter(|it| it.value.name == identity.name());
            of.filter(move |it| it.value.standing == standing).map(|it| it.value.key.clone())
        };
        let (waits, enrolled): (Vec<_>, Vec<_>) =
            (of(Standing::Waits).collect(), of(Standing::Enrolled).collect());
        if waits.is_empty() {
            return Err(Refused::not_found(&format!("{identity} does not wait to be let in")));
        }
        let Some(key) = key.filter(|key| waits.iter().any(|it| it == key)) else {
            let (waits, enrolled) = (waits.join(", "), enrolled.join(", "));
            let enrolled = if enrolled.is_empty() { "none".to_owned() } else { enrolled };
            let why = format!("waiting key: {waits}; enrolled key: {enrolled}; repeat with --key");
            return Err(Refused::argument(&why));
        };
        // There may be many operators.
        let replaced = if identity == Identity::Operator { Vec::new() } else { enrolled };
        let mut batch = Batch::new();
        for row in rows.iter().filter(|it| it.value.name == identity.name()) {
            let mut member = row.value.clone();
            if member.key == key {
                (member.standing, member.revoked) = (Standing::Enrolled, None);
            } else if replaced.contains(&member.key) {
                (member.standing, member.revoked) = (Standing::Revoked, Some(self.holder.now()));
            } else {
                continue;
            }
            self.members.put_in(&mut batch, &row.key, Expect::Etag(row.etag.clone()), &member)?;
        }
        self.sit_in(&mut batch, identity, key, seat)?;
        self.revokes_in(&mut batch, key)?;
        match self.store.commit(batch).await {
            Err(Error::EtagConflict { .. } | Error::NotFound { .. }) => {
                let why = "the keys of this program changed meanwhile: nothing was written; sdc-migrate trust list";
                return Err(Refused::argument(why));
            }
            done => drop(done?),
        }
        tracing::warn!(target: daemon::log::AUDIT, audit = true, %identity, key, "an operator approved a key");
        self.refresh().await?;
        self.revoked.notify_one();
        Ok(json!({"approved": key, "revoked": replaced}))
    }

    /// Revokes every key of a program, or this one.
    pub async fn revoke(&self, identity: Identity, key: Option<&str>) -> Result<Value, Refused> {
        let rows = self.rows().await?;
        let of = rows.iter().filter(|it| it.value.name == identity.name());
        let of = of.filter(|it| it.value.standing != Standing::Revoked);
        let of = of.filter(|it| key.is_none_or(|key| it.value.key == key));
        let keys: Vec<String> = of.map(|it| it.value.key.clone()).collect();
        if keys.is_empty() {
            return Err(Refused::not_found(&format!("{identity} was not let in")));
        }
        for key in &keys {
            self.shut(identity, key).await?;
        }
        tracing::warn!(target: daemon::log::AUDIT, audit = true, %identity, keys = keys.join(", "), "an operator revoked keys");
        self.refresh().await?;
        self.revoked.notify_one();
        Ok(json!({"revoked": keys}))
    }

    async fn shut(&self, of: Identity, key: &str) -> Result<(), Refused> {
        let row = super::members::Member::row(of, key);
        for _ in 0..TRIES {
            let found = self.members.get(&row).await?;
            let mut member = found.value;
            (member.standing, member.revoked) = (Standing::Revoked, Some(self.holder.now()));
            let mut batch = Batch::new();
            self.members.put_in(&mut batch, &row, Expect::Etag(found.etag), &member)?;
            self.revokes_in(&mut batch, key)?;
            match self.store.commit(batch).await {
                Err(Error::EtagConflict { .. }) => {}
                done => return done.map(drop).map_err(Refused::from),
            }
        }
        Err(busy())
    }

    /// Begins a rotation, or ends the one that is under way. Both authorities are valid meanwhile.
    /// Refuses with 409 and the members that have not renewed yet, unless it is ended `without` them.
    pub async fn rotate(&self, without: bool) -> Result<Value, Refused> {
        let (before, now) = (self.place.read().await.map_err(broken)?, self.holder.now());
        let mut after = before.clone();
        let newest = match &before.all[..] {
            [] => return Err(Refused::argument("there is no authority: sdc-migrate trust init")),
            [_] => {
                after.all.push(Authority::new(now).map_err(broken)?);
                None
            }
            [.., newest] => Some(newest.name().map_err(broken)?),
        };
        if let Some(newest) = newest {
            let members = self.all().await?;
            let left = behind(&members, &newest, now);
            if !left.is_empty() && !without {
                let names: Vec<&str> = left.iter().map(|it| it.name.as_str()).collect();
                let why = format!("not renewed yet: {}", names.join(", "));
                return Err(Refused::coded(409, "NotRenewed", &why));
            }
            after.all.drain(..after.all.len() - 1);
        }
        self.place.replace(&before, &after).await.map_err(broken)?;
        tracing::warn!(target: daemon::log::AUDIT, audit = true, authorities = after.all.len(), without, "an operator rotated the authority");
        self.list().await
    }

    /// Returns the certificates of the authorities, which are no secret.
    pub async fn export(&self) -> Result<Value, Refused> {
        let all = self.place.read().await.map_err(broken)?.all;
        let all: Vec<String> = all.into_iter().map(|it| it.certificate).collect();
        Ok(json!({"certificates": all.concat()}))
    }
}

/// Reads the name of a member: a node's uuid, or volapi.
pub fn identity(text: &str) -> Result<Identity, Refused> {
    match text {
        "volapi" => return Ok(Identity::Volapi),
        "operator" => return Ok(Identity::Operator),
        _ => {}
    }
    let cn: Result<Uuid, _> = text.parse();
    cn.map(Identity::Agent)
        .map_err(|_| Refused::parameter("who", "expected a node's uuid, volapi or operator"))
}
