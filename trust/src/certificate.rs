// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a certificate says. Whether it is true is decided in the handshake.

use daemon::http::Shown;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sdc_clients::identity::Identity;
use x509_parser::extensions::GeneralName;
use x509_parser::{parse_x509_certificate, parse_x509_crl};

use crate::invalid::Invalid;
use crate::random::{digest, hex};

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Whose it is.
    pub identity: Identity,
    /// Its number, as hexadecimal text.
    pub serial: String,
    /// The fingerprint of its key.
    pub key: String,
    /// The name of the authority that signed it.
    pub issuer: String,
    /// From when it is valid, in seconds since 1970.
    pub from: i64,
    /// Until when.
    pub until: i64,
}

impl From<About> for Shown {
    fn from(about: About) -> Shown {
        let About { serial, key, issuer, until, .. } = about;
        Shown { serial, key, issuer, until }
    }
}

impl About {
    /// Reads a certificate in DER.
    /// Fails with [`Invalid::Certificate`] for what is none, or names no program or more than one.
    pub fn read(der: &[u8]) -> Result<About, Invalid> {
        let (_, read) = parse_x509_certificate(der).map_err(|_| Invalid::Certificate)?;
        let names = read.subject_alternative_name().map_err(|_| Invalid::Certificate)?;
        let identity = match names.map(|names| &names.value.general_names[..]) {
            Some([GeneralName::DNSName(name)]) => name.parse().map_err(|_| Invalid::Certificate)?,
            _ => return Err(Invalid::Certificate),
        };
        let issuer = read.issuer().iter_common_name().next().and_then(|name| name.as_str().ok());
        Ok(About {
            identity,
            serial: hex(read.raw_serial()),
            key: digest(read.public_key().raw),
            issuer: issuer.unwrap_or_default().to_owned(),
            from: read.validity().not_before.timestamp(),
            until: read.validity().not_after.timestamp(),
        })
    }

    /// Reads a certificate in PEM.
    pub fn of(pem: &str) -> Result<About, Invalid> {
        About::read(&der(pem)?)
    }

    /// Returns when it is to be renewed: at two thirds of its life.
    pub fn renews(&self) -> i64 {
        self.from + (self.until - self.from) / 3 * 2
    }

    /// Returns true if it is to be renewed: that time has come, or it is of a clock that was ahead.
    pub fn is_due(&self, now: i64) -> bool {
        self.renews() <= now || now < self.from
    }
}

/// Returns a time in seconds since 1970 as people read it.
pub fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or("–".to_owned(), |at| at.to_string())
}

/// Returns the certificates that a list in DER names: of each the authority, and the number.
pub(crate) fn listed(der: &[u8]) -> Result<Vec<(String, String)>, Invalid> {
    let (_, read) = parse_x509_crl(der).map_err(|_| Invalid::Certificate)?;
    let issuer = read.issuer().iter_common_name().next().and_then(|name| name.as_str().ok());
    let issuer = issuer.unwrap_or_default();
    let numbers = read.iter_revoked_certificates().map(|it| hex(it.raw_serial()));
    Ok(numbers.map(|serial| (issuer.to_owned(), serial)).collect())
}

/// Returns the name of an authority, of its certificate in DER.
pub(crate) fn authority_name(der: &[u8]) -> Result<String, Invalid> {
    let (_, read) = parse_x509_certificate(der).map_err(|_| Invalid::Certificate)?;
    let name = read.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    name.map(str::to_owned).ok_or(Invalid::Certificate)
}

/// Returns the DER of a certificate in PEM.
pub(crate) fn der(pem: &str) -> Result<CertificateDer<'static>, Invalid> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| Invalid::Certificate)
}
