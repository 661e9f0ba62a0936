// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The kinds of failure, and which answer is of which kind. Only a table: what
//! follows from a kind is decided one level up.

use ::http::{Method, StatusCode};

/// The step of a request in which its time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No connection was made: nothing has been sent.
    Connect,
    /// The request was sent, no status line and headers came.
    Answer,
    /// The body stalled: nothing of it came for too long.
    Body,
    /// The body kept coming until the deadline of the whole request.
    Total,
}

impl Phase {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Phase::Connect => "connecting",
            Phase::Answer => "waiting for the answer",
            Phase::Body => "the body stalled",
            Phase::Total => "the body was still coming",
        }
    }
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Refused, unreachable, or the name is unknown: the request was never sent.
    Connect,
    /// The deadline passed; for a write only in [`Phase::Connect`].
    Timeout(Phase),
    /// A read was cut off after it had been sent.
    Interrupted,
    /// A write was sent and its answer was lost: it may or may not have happened.
    UnknownOutcome,
    /// 429, 502, 503 or 504: the service asks for patience.
    Unavailable,
    /// Any other 5xx, with or without a `code`.
    Server,
    /// 404: the route is there, the thing is not.
    NotFoundResource,
    /// 404: this server has no such route.
    NotFoundRoute,
    /// 410: the resume position is out of the server's history.
    Gone,
    /// 412: the thing changed since it was read.
    Precondition,
    /// 304: the cached copy is current.
    NotModified,
    /// The server refused what was sent (422, 409 `ValidationFailed`, 500 `InvalidParameters`, other 4xx).
    Invalid,
    /// In use, duplicate, or full (422 `InUse`, 409, 507).
    Conflict,
    /// The server does not speak the wanted version (400 `InvalidVersion`, 406).
    Version,
    /// A success whose body is not what the call promises, or an unexpected status.
    Protocol,
    /// The request could not be built; nothing was sent.
    Request,
    /// No address of the peer is known; nothing was sent.
    NoAddress,
}

impl Class {
    /// A short name for logs and counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Connect => "connect",
            Class::Timeout(Phase::Connect) => "connect_timeout",
            Class::Timeout(_) => "timeout",
            Class::Interrupted => "interrupted",
            Class::UnknownOutcome => "unknown_outcome",
            Class::Unavailable => "unavailable",
            Class::Server => "server",
            Class::NotFoundResource => "not_found",
            Class::NotFoundRoute => "no_route",
            Class::Gone => "gone",
            Class::Precondition => "precondition",
            Class::NotModified => "not_modified",
            Class::Invalid => "invalid",
            Class::Conflict => "conflict",
            Class::Version => "version",
            Class::Protocol => "protocol",
            Class::Request => "request",
            Class::NoAddress => "no_address",
        }
    }
}

/// Whether the method changes nothing on the server.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// What kind of failure a status is.
pub(super) fn classify(status: StatusCode, code: Option<&str>, message: &str) -> Class {
    match status.as_u16() {
        304 => Class::NotModified,
        404 if is_about_the_path(message) => Class::NotFoundRoute,
        404 => Class::NotFoundResource,
        410 => Class::Gone,
        412 => Class::Precondition,
        400 if code == Some("InvalidVersion") => Class::Version,
        406 => Class::Version,
        409 if code == Some("ValidationFailed") => Class::Invalid,
        422 if code == Some("InUse") => Class::Conflict,
        409 | 507 => Class::Conflict,
        // CNAPI's way to refuse parameters: the same again is refused again.
        500 if code == Some("InvalidParameters") => Class::Invalid,
        429 | 502..=504 => Class::Unavailable,
        400..=499 => Class::Invalid,
        500..=599 => Class::Server,
        _ => Class::Protocol,
    }
}

/// Of a record PAPI says `Package … does not exist`, of a path all say `/… does not exist`.
fn is_about_the_path(message: &str) -> bool {
    (message.starts_with('/') && message.ends_with("does not exist"))
        || message == "Unsupported URL Path"
}
