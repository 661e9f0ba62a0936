// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Why the feed did not do what was asked.

/// A failure of the feed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// No answer came. Whether a publish was stored is not known.
    #[error("the feed does not answer: {0}")]
    Away(String),
    /// Nothing takes this subject: its stream does not exist, or has no leader now.
    #[error(
        "nothing takes {0}: its stream has no leader now, or does not exist (sdc-fleet setup makes it)"
    )]
    NoStream(String),
    /// The last message of the subject is another one than expected.
    #[error("the last message of {0} is another one than expected")]
    WrongLast(String),
    /// JetStream says that it has a message, and does not give it.
    #[error(
        "the feed says that it has the last message of {0}, and does not have it: it is published again"
    )]
    Missing(String),
    /// JetStream has no room.
    #[error("the feed has no room: {0}")]
    Full(String),
    /// The server takes no message as large as this.
    #[error("{bytes} bytes are more than the server takes ({most})")]
    TooLarge {
        /// The size of the message.
        bytes: usize,
        /// What it takes.
        most: usize,
    },
    /// JetStream refuses.
    #[error("the feed refuses: {text} ({code})")]
    Refused {
        /// JetStream's number of the error.
        code: u64,
        /// Its text.
        text: String,
    },
    /// No connection comes about: the certificate of a server is not what it has to be.
    #[error("the certificate of {server} is not trusted, and nothing is sent there: {reason}")]
    Untrusted {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection comes about.
    #[error("cannot connect to {server}: {reason}")]
    Unreachable {
        /// The server that was tried last.
        server: String,
        /// Why.
        reason: String,
    },
    /// The server let this key in, and does not allow what was asked.
    #[error(
        "the key may not do this: {0} (nats.api and nats.inbox, or the servers' accounts, are of another kind of key)"
    )]
    Forbidden(String),
    /// The server is in no cluster.
    #[error(
        "the server is alone, in no cluster: no stream can be on several servers (streams.replicas is more than 1)"
    )]
    Alone,
    /// A file of keys or certificates cannot be used.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl FleetError {
    /// Returns true if waiting helps: servers that start have no leader yet, or do not see each other yet.
    pub fn may_pass(&self) -> bool {
        match self {
            FleetError::Away(_) | FleetError::NoStream(_) | FleetError::Unreachable { .. } => true,
            FleetError::Forbidden(_) => false,
            // The cluster has no leader, or too few servers.
            FleetError::Refused { code, .. } => matches!(code, 10004..=10006 | 10009),
            _ => false,
        }
    }

    /// No answer, for this reason.
    pub(super) fn away(why: impl std::fmt::Display) -> FleetError {
        FleetError::Away(why.to_string())
    }

    /// What JetStream's error number means.
    pub(super) fn of_code(code: u64, text: &str, about: &str) -> FleetError {
        match code {
            10059 => FleetError::NoStream(about.to_owned()),
            10074 => FleetError::Alone,
            10071 | 10164 => FleetError::WrongLast(about.to_owned()),
            // Resources of server or account, the stream's own limits.
            10023 | 10028 | 10047 | 10077 => FleetError::Full(text.to_owned()),
            10008 => FleetError::away(text),
            _ => FleetError::Refused { code, text: text.to_owned() },
        }
    }
}
