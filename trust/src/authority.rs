// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who signs: a key of the data centre's own, and the certificates and lists of revoked ones that it makes.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams,
    CertificateSigningRequestParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData as _, RevocationReason,
    RevokedCertParams, SerialNumber,
};
use sdc_clients::identity::Identity;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::certificate::{authority_name, der};
use crate::exchange::Known;
use crate::held::{Held, new_key};
use crate::invalid::Invalid;
use crate::random::{bytes, digest, secret, unhex};

const DAY: i64 = 86_400;
/// How long an authority is valid, and a certificate.
const AUTHORITY: i64 = 3650 * DAY;
const CERTIFICATE: i64 = 90 * DAY;
/// A node whose clock is behind by less than this accepts a new certificate.
const BEHIND: i64 = DAY;

/// An authority: its key, and its certificate, both in PEM. It is never shown.
#[derive(Clone, Serialize, Deserialize)]
pub struct Authority {
    key: String,
    pub certificate: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// A certificate that is not valid any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Its number, as hexadecimal text.
    pub serial: String,
    /// When it was revoked, in seconds since 1970.
    pub at: i64,
}

impl Authority {
    /// Makes a new authority.
    /// Fails with [`Invalid`] where the system's random generator failed.
    pub fn new(now: i64) -> Result<Authority, Invalid> {
        let key = KeyPair::generate().map_err(Invalid::Made)?;
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (at(now - BEHIND)?, at(now + AUTHORITY)?);
        params.distinguished_name = named(&format!("sdc-authority-{}", secret::<8>()?));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(Invalid::Made)?.pem();
        Ok(Authority { key: key.serialize_pem(), certificate })
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Invalid> {
        let key = KeyPair::from_pem(&self.key).map_err(Invalid::Made)?;
        Issuer::from_ca_cert_pem(&self.certificate, key).map_err(Invalid::Made)
    }

    /// Returns its name, which the certificates that it signs have.
    /// Fails with [`Invalid`] where its own certificate cannot be read.
    pub fn name(&self) -> Result<String, Invalid> {
        authority_name(&der(&self.certificate)?)
    }

    /// Returns the fingerprint of its certificate, which join tokens have.
    /// Fails with [`Invalid`] where its own certificate cannot be read.
    pub fn fingerprint(&self) -> Result<String, Invalid> {
        Ok(digest(&der(&self.certificate)?))
    }

    /// Makes a certificate for the key of this signing request. Nothing else of the request counts.
    /// Fails with [`Invalid`] for what is no request, or is not signed with its own key.
    pub fn issue(&self, identity: Identity, request: &str, now: i64) -> Result<String, Invalid> {
        let asked = CertificateSigningRequestParams::from_pem(request).map_err(Invalid::Made)?;
        let mut params = CertificateParams::new([identity.name()]).map_err(Invalid::Made)?;
        (params.not_before, params.not_after) = (at(now - BEHIND)?, at(now + CERTIFICATE)?);
        params.distinguished_name = named(&common_name(identity));
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let made = params.signed_by(&asked.public_key, &self.issuer()?).map_err(Invalid::Made)?;
        Ok(made.pem())
    }

    /// Makes a key and its certificate at once, for a program in the same process as the authority.
    /// Fails with [`Invalid`].
    pub fn equip(&self, identity: Identity, known: Known, now: i64) -> Result<Held, Invalid> {
        let held = new_key()?;
        let certificate = self.issue(identity, &held.request()?, now)?;
        Ok(Held { certificate: Some(certificate), known, ..held })
    }

    /// Makes the list of what it has signed and what is revoked.
    /// Fails with [`Invalid`] for a number that is none.
    pub fn list(&self, revoked: &[Revoked], now: i64) -> Result<String, Invalid> {
        let revoked = revoked.iter().map(|it| {
            Ok(RevokedCertParams {
                serial_number: unhex(&it.serial).ok_or(Invalid::Certificate)?.into(),
                revocation_time: at(it.at)?,
                reason_code: Some(RevocationReason::Unspecified),
                invalidity_date: None,
            })
        });
        let params = CertificateRevocationListParams {
            this_update: at(now)?,
            next_update: at(now + AUTHORITY)?,
            crl_number: SerialNumber::from(now.unsigned_abs()),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, Invalid>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let made = params.signed_by(&self.issuer()?).map_err(Invalid::Made)?;
        made.pem().map_err(Invalid::Made)
    }
}

/// Returns the fingerprint of the key of a signing request, which the key has signed itself.
/// Fails with [`Invalid::Made`].
pub fn key_of(request: &str) -> Result<String, Invalid> {
    let asked = CertificateSigningRequestParams::from_pem(request).map_err(Invalid::Made)?;
    Ok(digest(&asked.public_key.subject_public_key_info()))
}

fn at(seconds: i64) -> Result<OffsetDateTime, Invalid> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| Invalid::Certificate)
}

/// Returns the common name of a program: a name of more than 64 letters is none to others (RFC 5280). Who it is says the
/// DNS name.
fn common_name(identity: Identity) -> String {
    identity.cn().map_or_else(|| identity.name(), |cn| cn.to_string())
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// A number of a certificate: positive, and not to be guessed.
fn serial() -> Result<SerialNumber, Invalid> {
    let mut serial = bytes::<16>()?;
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&serial))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_name_has_at_most_64_letters() {
        let agent = Identity::Agent(uuid::Uuid::max());
        for identity in [Identity::Service, agent, Identity::Volapi, Identity::Operator] {
            assert!(common_name(identity).len() <= 64, "{identity}");
        }
        assert!(Authority::new(0).unwrap().name().unwrap().len() <= 64);
    }
}
