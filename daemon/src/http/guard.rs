// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which requests are answered: those of programs on this node. A `Host` that a DNS server elsewhere could
//! point here is refused, and every request that a browser marks as another page's. Pure.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::Request;
use http::header::{HOST, HeaderName, ORIGIN};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The rule.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    also: Option<IpAddr>,
    /// Names of this node that the operator has configured.
    names: Arc<[String]>,
    any_name: bool,
}

impl Guard {
    /// Returns the rule for a port at this address: `localhost`, loopback, and the address itself.
    pub fn at(address: SocketAddr) -> Self {
        let also = (!address.ip().is_unspecified()).then_some(address.ip());
        Self { also, ..Self::default() }
    }

    /// Admits every name: for a port whose pages any program of the network may read.
    pub fn under_any_name(self, any_name: bool) -> Self {
        Self { any_name, ..self }
    }

    /// Admits these names as well.
    pub fn with_names(self, names: Arc<[String]>) -> Self {
        Self { names, ..self }
    }

    /// Returns false for a request that gets a 403.
    pub fn admits<B>(&self, request: &Request<B>) -> bool {
        let mut hosts = request.headers().get_all(HOST).iter();
        let host = match hosts.next() {
            None => None,
            Some(value) => match value.to_str() {
                Ok(text) => Some(text),
                Err(_) => return false,
            },
        };
        // The request line may name a host, too: with a scheme. `GET ping` is a path that lacks its slash.
        let uri = request.uri();
        let authority = uri.authority().filter(|_| uri.scheme().is_some());
        let named = authority.is_none_or(|named| self.is_local(named.as_str()));
        named
            && hosts.next().is_none()
            && host.is_none_or(|host| self.is_local(host))
            && same_origin(request, host)
    }

    fn is_local(&self, host: &str) -> bool {
        let Some(name) = name_of(host) else { return false };
        if self.any_name {
            return true;
        }
        if let Ok(ip) = name.parse::<IpAddr>() {
            let bracketed = host.starts_with('[') == ip.is_ipv6();
            let loopback = name == "127.0.0.1" || name == "::1";
            return bracketed && (loopback || self.also == Some(ip));
        }
        // Any other name may be one that a stranger's DNS server answers for, also one without a
        // dot: a search domain is added to it. HTTP/1.0 clients send an empty one.
        let mut names = ["", "localhost"].into_iter().chain(self.names.iter().map(String::as_str));
        !host.starts_with('[') && names.any(|known| name.eq_ignore_ascii_case(known))
    }
}

/// Returns the name in `NAME`, `NAME:PORT`, `[NAME]` or `[NAME]:PORT`.
fn name_of(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = rest.strip_prefix(':').or(rest.is_empty().then_some(""))?;
    port.bytes().all(|b| b.is_ascii_digit()).then_some(name)
}

fn same_origin<B>(request: &Request<B>, host: Option<&str>) -> bool {
    let site = request.headers().get(SEC_FETCH_SITE).map(|value| value.as_bytes());
    if !matches!(site, None | Some(b"none" | b"same-origin")) {
        return false;
    }
    let mut origins = request.headers().get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let origin = origin.to_str().ok().and_then(|text| text.strip_prefix("http://"));
    let equal = match (origin, host) {
        // A browser omits the scheme's default port.
        (Some(origin), Some(host)) => {
            let short = |text: &str| text.strip_suffix(":80").unwrap_or(text).to_ascii_lowercase();
            !host.is_empty() && short(origin) == short(host)
        }
        _ => false,
    };
    equal && origins.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(guard: &Guard, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::get("/vms");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.admits(&request.body(()).unwrap())
    }

    #[test]
    fn hosts() {
        let guard = Guard::default();
        assert!(admits(&guard, &[]));
        for host in
            ["", "localhost", "LocalHost:9090", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:9090"]
        {
            assert!(admits(&guard, &[("Host", host)]), "{host}");
        }
        for host in [
            "rebound.example",
            "headnode",
            "cn_1-a:9090",
            "localhost_",
            "localhost.",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "127.0.0.2:9090",
            "::1",
            "[::2]",
            "[::1]x",
            "[localhost]",
            "a b",
            "localhost:x",
            "user@localhost",
            "[127.0.0.1]",
            "\u{fc}",
        ] {
            assert!(!admits(&guard, &[("Host", host)]), "{host}");
        }
        assert!(!admits(&guard, &[("Host", "localhost"), ("Host", "evil.example")]));
        let named = Guard::default().with_names(Arc::new(["headnode".to_owned()]));
        assert!(admits(&named, &[("Host", "HeadNode:9090")]));
        assert!(!admits(&named, &[("Host", "headnode.example")]));
        let open = Guard::default().under_any_name(true);
        assert!(admits(&open, &[("Host", "cn1.dc.example:9390")]));
        assert!(!admits(&open, &[("Host", "cn1.dc.example"), ("Sec-Fetch-Site", "cross-site")]));
        let forced = Guard::at("10.0.0.1:9090".parse().unwrap());
        assert!(
            admits(&forced, &[("Host", "10.0.0.1:9090")])
                && admits(&forced, &[("Host", "localhost")])
        );
        assert!(!admits(&forced, &[("Host", "10.0.0.2:9090")]));
    }

    #[test]
    fn the_request_line_may_not_name_another_host() {
        let of = |uri: &str| {
            let request = http::Request::get(uri).header("Host", "localhost").body(()).unwrap();
            Guard::default().admits(&request)
        };
        assert!(of("http://localhost:9090/vms") && of("/vms"));
        assert!(!of("http://evil.example/vms"));
    }

    #[test]
    fn origins() {
        let of = |host: &str, origin: &str| {
            admits(&Guard::default(), &[("Host", host), ("Origin", origin)])
        };
        assert!(of("localhost:9090", "http://localhost:9090"));
        assert!(of("LOCALHOST", "http://localhost:80"));
        for (host, origin) in [
            ("localhost:9090", "http://localhost"),
            ("localhost:9090", "http://evil.example"),
            ("localhost:9090", "https://localhost:9090"),
            ("localhost:9090", "null"),
            ("localhost", ""),
            ("", "http://"),
        ] {
            assert!(!of(host, origin), "{host} {origin}");
        }
        assert!(!admits(&Guard::default(), &[("Origin", "http://localhost")]));
        for (site, may) in
            [("none", true), ("same-origin", true), ("same-site", false), ("cross-site", false)]
        {
            assert_eq!(
                admits(&Guard::default(), &[("Host", "localhost"), ("Sec-Fetch-Site", site)]),
                may,
                "{site}"
            );
        }
    }
}
