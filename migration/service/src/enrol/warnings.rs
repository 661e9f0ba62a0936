// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The warnings about enrolment that people read.

use std::collections::BTreeMap;

use super::enrolment::Enrolment;
use super::members::Standing;
use crate::refused::Refused;

/// A certificate that was not renewed raises a warning so long before it ends.
const WARNS: i64 = 14 * 86_400;

impl Enrolment {
    /// Returns the programs that were revoked, and of which no other key was let in since: an operator wanted that.
    pub async fn revoked(&self) -> Result<Vec<String>, Refused> {
        let members = self.all().await?;
        let is_in = |name: &str| {
            members.iter().any(|it| it.name == name && it.standing == Standing::Enrolled)
        };
        let mut revoked = BTreeMap::new();
        for it in members.iter().filter(|it| !it.is_operator() && !is_in(&it.name)) {
            if let Some(at) = it.revoked {
                let (who, at, whom) = (&it.name, trust::date(at), it.whom());
                let text = format!("{who} on {at}; a new key: sdc-migrate trust token {whom}");
                revoked.insert(who, text);
            }
        }
        Ok(revoked.into_values().collect())
    }

    /// Returns how many handshakes were refused at the port of agents, by reason.
    pub fn refused(&self) -> Vec<(&'static str, u64)> {
        self.holder.refusals().counts().collect()
    }

    /// Returns what a person has to know.
    pub async fn needs(&self) -> Result<Vec<String>, Refused> {
        let (now, members) = (self.holder.now(), self.all().await?);
        let mut needs = Vec::new();
        if self.signing().is_err() {
            needs.push(
                "no agent can get a certificate: there is no authority: sdc-migrate trust init"
                    .into(),
            );
        }
        for it in &members {
            let who = &it.name;
            let last = it.certificates.last().map(|last| last.until);
            match (it.standing, last) {
                (Standing::Waits, _) => {
                    let whom = it.whom();
                    needs.push(format!("{who} waits: sdc-migrate trust approve {whom}"));
                }
                // A person's is renewed when he asks something.
                (Standing::Enrolled, _) if it.is_operator() => {}
                (Standing::Enrolled, Some(until)) if until - now < WARNS => {
                    let (at, ends) =
                        (trust::date(until), if until <= now { "has ended" } else { "ends" });
                    needs.push(format!("the certificate of {who} {ends} on {at}: look at its log"));
                }
                _ => {}
            }
        }
        Ok(needs)
    }
}
