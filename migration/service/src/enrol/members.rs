// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Members, candidates, and which authority signs for them. Pure.

use std::collections::BTreeSet;

use daemon::http::Shown;
use serde::{Deserialize, Serialize};
use trust::{About, Identity, Revoked};
use uuid::Uuid;

/// The state of a member or candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A person has to approve the key.
    Waits,
    Enrolled,
    /// Its certificates are not valid any more, and it gets no other.
    Revoked,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub serial: String,
    /// The authority that has signed it.
    pub issuer: String,
    /// In seconds since 1970.
    pub until: i64,
    /// The certificate itself, of the newest alone: a member that lost the answer gets it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pem: Option<String>,
}

/// One key of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name that its certificates have.
    pub name: String,
    /// The node, of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cn_uuid: Option<Uuid>,
    /// The fingerprint of the key.
    pub key: String,
    pub standing: Standing,
    /// The digest of the token that it came with.
    pub token: String,
    /// Its certificates of the authorities that there are, the newest last. One that has expired by this clock may be
    /// valid by a right one.
    #[serde(default)]
    pub certificates: Vec<Issued>,
    /// The authorities that it knows, as it reported last.
    #[serde(default)]
    pub knows: Vec<String>,
    /// Its first request, last contact and revocation, in seconds since 1970.
    pub since: i64,
    pub seen: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<i64>,
}

impl Member {
    /// Returns a candidate that asks for the first time.
    pub fn new(identity: Identity, key: &str, token: &str, now: i64) -> Member {
        Member {
            name: identity.name(),
            cn_uuid: identity.cn(),
            key: key.to_owned(),
            standing: Standing::Waits,
            token: token.to_owned(),
            certificates: Vec::new(),
            knows: Vec::new(),
            since: now,
            seen: now,
            revoked: None,
        }
    }

    /// Returns the key of its row.
    pub fn row(identity: Identity, key: &str) -> String {
        format!("{}-{}", identity.name(), key.get(..16).unwrap_or(key))
    }

    /// Notes a new certificate, and forgets those of authorities that have gone.
    pub fn issued(&mut self, about: &About, pem: &str, authorities: &[String]) {
        self.certificates.retain(|it| authorities.contains(&it.issuer));
        self.certificates.iter_mut().for_each(|it| it.pem = None);
        let (serial, issuer, pem) =
            (about.serial.clone(), about.issuer.clone(), Some(pem.to_owned()));
        self.certificates.push(Issued { serial, issuer, until: about.until, pem });
    }

    /// Notes a certificate that it has shown. Returns true if it was not known: the store is older, or was lost.
    pub fn has_shown(&mut self, shown: &Shown, authorities: &[String]) -> bool {
        let is_known = self.certificates.iter().any(|it| it.serial == shown.serial);
        if is_known || shown.key != self.key || !authorities.contains(&shown.issuer) {
            return false;
        }
        let at = self.certificates.iter().position(|it| it.until > shown.until);
        let Shown { serial, issuer, until, .. } = shown.clone();
        let at = at.unwrap_or(self.certificates.len());
        self.certificates.insert(at, Issued { serial, issuer, until, pem: None });
        true
    }

    /// Returns its certificate of this authority, unless it is to be renewed: however often it is asked for, what is
    /// kept of a program does not grow.
    pub fn has(&self, issuer: &str, now: i64) -> Option<&str> {
        let last = self.certificates.last().filter(|last| last.issuer == issuer)?;
        let pem = last.pem.as_deref()?;
        About::of(pem).is_ok_and(|about| !about.is_due(now)).then_some(pem)
    }

    /// Returns true if it is a person's.
    pub fn is_operator(&self) -> bool {
        self.name == Identity::Operator.name()
    }

    /// Returns whom it is of, as people type it.
    pub fn whom(&self) -> String {
        let other = if self.is_operator() { "operator" } else { "volapi" };
        self.cn_uuid.map_or(other.to_owned(), |cn| cn.to_string())
    }

    /// Returns true if it may prove itself now.
    pub fn is_in(&self, now: i64) -> bool {
        self.standing == Standing::Enrolled
            && self.certificates.last().is_some_and(|it| it.until > now)
    }
}

/// The key of a program that was let in last: one row for each program, so that of two that come at once one is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat {
    pub key: String,
}

/// Since when every agent has to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Required {
    /// In seconds since 1970.
    pub since: i64,
}

/// Returns the certificates of an authority that were revoked: as long as it is there, since a clock that runs ahead
/// must not make a program forget one.
pub fn revoked(members: &[Member], issuer: &str) -> Vec<Revoked> {
    let all = members.iter().filter_map(|member| Some((member, member.revoked?)));
    let all = all.flat_map(|(member, at)| {
        let of = member.certificates.iter().filter(|it| it.issuer == issuer);
        of.map(move |it| Revoked { serial: it.serial.clone(), at })
    });
    all.collect()
}

/// Returns the nodes whose agent's key was revoked, and for which no other was let in since.
pub fn shut_out(members: &[Member]) -> BTreeSet<Uuid> {
    let of = |standing| {
        members.iter().filter(move |it| it.standing == standing).filter_map(|it| it.cn_uuid)
    };
    let is_in: BTreeSet<Uuid> = of(Standing::Enrolled).collect();
    of(Standing::Revoked).filter(|cn| !is_in.contains(cn)).collect()
}

/// Returns which of these authorities signs, the oldest first: the newest that every member knows. Another one
/// would make certificates that a member refuses.
pub fn signer(authorities: &[String], members: &[Member], now: i64) -> Option<usize> {
    let known = |name: &String| programs(members, now).all(|member| member.knows.contains(name));
    let newest = authorities.iter().rposition(known);
    newest.or(if authorities.is_empty() { None } else { Some(0) })
}

/// Returns those whose certificate is not of the newest authority: without them a rotation is not at its end.
pub fn behind<'a>(members: &'a [Member], newest: &str, now: i64) -> Vec<&'a Member> {
    programs(members, now)
        .filter(|it| it.certificates.last().is_none_or(|last| last.issuer != newest))
        .collect()
}

/// The programs that are in: they ask every minute. A person asks when he likes, and a rotation does not wait for him.
fn programs(members: &[Member], now: i64) -> impl Iterator<Item = &Member> {
    members.iter().filter(move |it| it.is_in(now) && !it.is_operator())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(n: u128, standing: Standing, issuer: &str, knows: &[&str]) -> Member {
        let identity = Identity::Agent(Uuid::from_u128(n));
        let mut member = Member::new(identity, &format!("{n:064x}"), "token", 0);
        member.standing = standing;
        member.knows = knows.iter().map(|it| (*it).to_owned()).collect();
        let (serial, issuer) = (format!("{n:02x}"), issuer.to_owned());
        member.certificates.push(Issued { serial, issuer, until: 100, pem: None });
        member.revoked = (standing == Standing::Revoked).then_some(7);
        member
    }

    #[test]
    fn a_new_authority_signs_once_every_member_knows_it() {
        let names = ["old".to_owned(), "new".to_owned()];
        let is_in = |knows| member(1, Standing::Enrolled, "old", knows);
        assert_eq!(signer(&[], &[], 1), None);
        assert_eq!(signer(&names, &[], 1), Some(1));
        assert_eq!(signer(&names, &[is_in(&["old"])], 1), Some(0));
        assert_eq!(signer(&names, &[is_in(&["old", "new"]), is_in(&["old"])], 1), Some(0));
        assert_eq!(signer(&names, &[is_in(&["old", "new"])], 1), Some(1));
        // A member that reported neither yet keeps the old one; one that is revoked or expired keeps none.
        assert_eq!(signer(&names, &[is_in(&[])], 1), Some(0));
        for out in [Standing::Waits, Standing::Revoked] {
            assert_eq!(signer(&names, &[member(1, out, "old", &["old"])], 1), Some(1));
        }
        assert_eq!(signer(&names, &[is_in(&["old"])], 100), Some(1));
    }

    #[test]
    fn a_rotation_ends_when_every_member_has_renewed() {
        let of = |n, standing, issuer| member(n, standing, issuer, &[]);
        let all = [
            of(1, Standing::Enrolled, "old"),
            of(2, Standing::Enrolled, "new"),
            of(3, Standing::Revoked, "old"),
            of(4, Standing::Waits, "old"),
        ];
        let names =
            |now| behind(&all, "new", now).iter().map(|it| it.key.clone()).collect::<Vec<_>>();
        assert_eq!(names(1), [format!("{:064x}", 1)]);
        assert!(names(100).is_empty());
    }

    #[test]
    fn a_certificate_is_on_its_own_authoritys_list() {
        let all = [
            member(0xa1, Standing::Revoked, "old", &[]),
            member(2, Standing::Enrolled, "old", &[]),
        ];
        assert_eq!(revoked(&all, "old"), [Revoked { serial: "a1".into(), at: 7 }]);
        assert!(revoked(&all, "new").is_empty());
    }
}
