// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a program proves itself with, and judges others by, in use: exchanged as a whole while connections are made
//! with it. TLS 1.3 only; no session is resumed, so that each connection is judged anew.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::sync::watch;

use crate::certificate::{About, der, listed};
use crate::held::Held;
use crate::invalid::Invalid;
use crate::random::digest;
use crate::refusals::Refusals;

/// Who gets through the handshake of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// Peers with a valid certificate.
    Known,
    /// Peers without one, too: to be let in.
    New,
}

/// A certificate in use.
#[derive(Debug)]
pub struct Live {
    /// What it says.
    pub about: About,
    /// What it was made of.
    pub held: Held,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// The certificates that are revoked: of each the authority, and the number.
type Revoked = Arc<BTreeSet<(String, String)>>;

/// Looks whether one certificate is revoked, by the list that is in use then.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    lists: watch::Receiver<Revoked>,
    certificate: (String, String),
}

impl Watched {
    /// Returns true if it is revoked.
    pub(crate) fn is_revoked(&self) -> bool {
        self.lists.borrow().contains(&self.certificate)
    }

    /// Ends as soon as it is revoked.
    pub(crate) async fn revoked(mut self) {
        while !self.lists.borrow_and_update().contains(&self.certificate) {
            if self.lists.changed().await.is_err() {
                return; // the program ends
            }
        }
    }
}

/// A place for the certificate in use.
#[derive(Debug)]
pub struct Holder {
    live: ArcSwapOption<Live>,
    revoked: watch::Sender<Revoked>,
    admits: Admits,
    clock: Arc<dyn TimeProvider>,
    refusals: Refusals,
}

impl Holder {
    /// A program that holds nothing yet.
    pub fn new(admits: Admits) -> Arc<Holder> {
        Holder::with_clock(admits, Arc::new(DefaultTimeProvider))
    }

    /// The same, with a clock of its own.
    pub fn with_clock(admits: Admits, clock: Arc<dyn TimeProvider>) -> Arc<Holder> {
        let (live, refusals) = (ArcSwapOption::empty(), Refusals::default());
        let revoked = watch::Sender::default();
        Arc::new(Holder { live, revoked, admits, clock, refusals })
    }

    /// Returns what is in use.
    pub fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full()
    }

    /// Returns the handshakes that were refused at all doors of this program.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Returns the time in seconds since 1970.
    pub fn now(&self) -> i64 {
        let now = self.clock.current_time().map_or(0, |now| now.as_secs());
        i64::try_from(now).unwrap_or(i64::MAX)
    }

    /// Uses these from now on. Connections that there are stay, but for those with a certificate that is revoked by
    /// the new lists: those end at once.
    /// Fails with [`Invalid`]; what was used before stays in use.
    pub fn hold(&self, held: Held) -> Result<(), Invalid> {
        let lists = held.known.revoked.iter().map(|list| listed(&list_of(list)?));
        let revoked = lists.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let live = self.made(held)?;
        self.live.store(Some(Arc::new(live)));
        self.revoked.send_replace(Arc::new(revoked));
        Ok(())
    }

    /// Watches whether this certificate is revoked.
    pub(crate) fn watched(&self, about: &About) -> Watched {
        let certificate = (about.issuer.clone(), about.serial.clone());
        Watched { lists: self.revoked.subscribe(), certificate }
    }

    pub(crate) fn clock(&self) -> Arc<dyn TimeProvider> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn used(&self) -> io::Result<Arc<Live>> {
        let none = || io::Error::other("this program has no certificate yet");
        self.live().ok_or_else(none)
    }

    fn made(&self, held: Held) -> Result<Live, Invalid> {
        let about = held.about()?;
        let mut roots = RootCertStore::empty();
        let mut chain = vec![der(held.certificate.as_deref().unwrap_or_default())?];
        for root in &held.known.roots {
            let root = der(root)?;
            roots.add(root.clone()).map_err(Invalid::Used)?;
            // A new program has nothing but the fingerprint of an authority.
            chain.push(root);
        }
        let lists = held.known.revoked.iter().map(|list| list_of(list));
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(held.key.as_bytes());
        let key = key.map_err(|_| Invalid::Certificate)?;
        let (provider, roots) = (provider(), Arc::new(roots));

        let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
            .with_crls(lists.clone())
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
        let mut client = ClientConfig::builder_with_details(provider.clone(), self.clock.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Invalid::Used)?
            .with_webpki_verifier(servers.build().map_err(Invalid::Authorities)?)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(Invalid::Used)?;
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;

        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(lists)
            .only_check_end_entity_revocation()
            .allow_unknown_revocation_status();
        let clients = match self.admits {
            Admits::Known => clients,
            Admits::New => clients.allow_unauthenticated(),
        };
        let mut server = ServerConfig::builder_with_details(provider, self.clock.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Invalid::Used)?
            .with_client_cert_verifier(clients.build().map_err(Invalid::Authorities)?)
            .with_single_cert(chain, key)
            .map_err(Invalid::Used)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Live { about, held, client: Arc::new(client), server: Arc::new(server) })
    }
}

/// Returns the DER of a list in PEM.
fn list_of(pem: &str) -> Result<CertificateRevocationListDer<'static>, Invalid> {
    CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).map_err(|_| Invalid::Certificate)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns how to speak to the service with nothing but the fingerprint of its authority.
pub(crate) fn knowing_only(
    fingerprint: &str,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ClientConfig>, Invalid> {
    let pinned = Pinned { fingerprint: fingerprint.to_owned(), provider: provider() };
    let mut client = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&TLS13])
        .map_err(Invalid::Used)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    client.resumption = rustls::client::Resumption::disabled();
    client.enable_sni = false;
    Ok(Arc::new(client))
}

/// Finds the authority of this fingerprint among what a server shows, and judges the server by it as usual.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn usual(
        &self,
        shown: &[CertificateDer<'_>],
    ) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let root = shown.iter().find(|it| digest(it) == self.fingerprint);
        let root =
            root.ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let mut roots = RootCertStore::empty();
        roots.add(root.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usual = self.usual(intermediates)?;
        usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
