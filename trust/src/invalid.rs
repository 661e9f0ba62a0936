// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why a key, a certificate or a list is of no use.

use std::io;
use std::path::PathBuf;

/// Why a key, a certificate or a list is of no use.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// The system has no random numbers.
    #[error("the system's random generator failed")]
    NoChance,
    /// It is no certificate, or none of a program of the data centre.
    #[error("not a certificate of a program of the data centre")]
    Certificate,
    /// It cannot be made, or made of it.
    #[error("the key or the request cannot be used: {0}")]
    Made(#[source] rcgen::Error),
    /// It cannot be used for connections.
    #[error("the certificates cannot be used: {0}")]
    Used(#[source] rustls::Error),
    /// The authorities' certificates or lists cannot be used.
    #[error("the authorities' certificates cannot be used: {0}")]
    Authorities(#[source] rustls::server::VerifierBuilderError),
    #[error("{}: {source}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
}
