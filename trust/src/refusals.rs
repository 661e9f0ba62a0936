// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Handshakes that were refused, counted by reason.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::CertificateError;

use crate::words::of_tls;

/// Why a handshake of a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// His certificate has expired, or is not valid yet.
    Expired,
    /// His certificate was revoked.
    Revoked,
    /// His certificate is of another authority, or of no use.
    Foreign,
    /// He has shown none.
    Nothing,
    /// He refuses this program's certificate.
    Refuses,
    /// He speaks something else than TLS 1.3.
    NoTls,
    /// He took too long.
    Late,
    /// Others wanted his place.
    Crowded,
    /// The connection broke, or this program has no certificate yet.
    Broken,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 9] = [
        Reason::Expired,
        Reason::Revoked,
        Reason::Foreign,
        Reason::Nothing,
        Reason::Refuses,
        Reason::NoTls,
        Reason::Late,
        Reason::Crowded,
        Reason::Broken,
    ];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
            Reason::Foreign => "foreign",
            Reason::Nothing => "nothing",
            Reason::Refuses => "refuses",
            Reason::NoTls => "no_tls",
            Reason::Late => "late",
            Reason::Crowded => "crowded",
            Reason::Broken => "broken",
        }
    }

    pub(crate) fn of(error: &io::Error) -> Reason {
        match of_tls(error) {
            None => Reason::Broken,
            Some(rustls::Error::InvalidCertificate(why)) => match why {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Reason::Expired,
                CertificateError::Revoked => Reason::Revoked,
                _ => Reason::Foreign,
            },
            Some(rustls::Error::NoCertificatesPresented) => Reason::Nothing,
            Some(rustls::Error::AlertReceived(_)) => Reason::Refuses,
            Some(_) => Reason::NoTls,
        }
    }
}

/// How many there were since the start of the program.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Reason::ALL.len()]);

impl Refusals {
    pub(crate) fn add(&self, reason: Reason) {
        for (counter, of) in self.0.iter().zip(Reason::ALL) {
            if of == reason {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the name of each reason, with how many there were.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let names = Reason::ALL.iter().map(|reason| reason.name());
        names.zip(self.0.iter().map(|counter| counter.load(Ordering::Relaxed)))
    }
}
