// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why two programs do not know each other, in words for people: with the date where a certificate has expired.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::certificate::date;

/// A handshake that was refused. What TLS says of it is in these words already, and has the time of each try in it.
#[derive(Debug, thiserror::Error)]
#[error("{}", why(.0))]
struct Unproved(io::Error);

/// Gives an error of a handshake its words.
pub(crate) fn worded(error: io::Error) -> io::Error {
    let kind = error.kind();
    io::Error::new(kind, Unproved(error))
}

/// Returns what TLS says of an error, if it says anything.
pub(crate) fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        // An I/O error shows the source of what it wraps, and not that itself.
        let wrapped = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = match wrapped {
            Some(wrapped) => wrapped.downcast_ref(),
            None => inner.downcast_ref(),
        };
        if tls.is_some() {
            return tls;
        }
        if let Some(Unproved(refused)) = wrapped.and_then(|wrapped| wrapped.downcast_ref()) {
            return of_tls(refused);
        }
        cause = inner.source();
    }
    None
}

/// Returns why a handshake, or what followed it, has failed.
pub fn why(error: &io::Error) -> String {
    match of_tls(error) {
        Some(tls) => said(tls),
        None => error.to_string(),
    }
}

pub(crate) fn said(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::ExpiredContext { not_after, .. } => {
                let at = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
                format!("its certificate has expired on {}", date(at))
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                let at = i64::try_from(not_before.as_secs()).unwrap_or(i64::MAX);
                format!("its certificate is not valid before {}: look at both clocks", date(at))
            }
            CertificateError::Revoked => "its certificate was revoked".to_owned(),
            CertificateError::UnknownIssuer => {
                "its certificate is of an authority that this program does not know".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate is another program's".to_owned()
            }
            other => format!("its certificate cannot be used: {other}"),
        },
        rustls::Error::NoCertificatesPresented => "it has shown no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            let what = match alert {
                AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
                AlertDescription::CertificateRevoked => "it was revoked",
                AlertDescription::UnknownCA => "it does not know its authority",
                AlertDescription::CertificateRequired => "there is none",
                _ => return format!("the other end refuses the connection: {error}"),
            };
            format!("the other end refuses this program's certificate: {what}")
        }
        other => other.to_string(),
    }
}
