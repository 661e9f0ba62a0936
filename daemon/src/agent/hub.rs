// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Where vminfod is. Who answers on its TCP port is not proved by answering: any local user may take the port while
//! vminfod is down. A program that acts on what vminfod says reads it through its unix socket, which only root can
//! make.

use crate::config::{Fields, http_url};

/// The socket that vminfod serves on.
pub const SOCKET: &str = "/var/run/vminfod/hub.sock";

/// Reads `vminfod.url`: `unix:/PATH`, or with `vminfod.trust_tcp` also `http://host`.
pub fn url(fields: &mut Fields) -> String {
    let trusts_tcp = fields.flag("vminfod.trust_tcp", false);
    let text = fields.text("vminfod.url", &format!("unix:{SOCKET}"));
    match http_url(&text) {
        _ if text.starts_with("unix:/") => text,
        Ok(url) if trusts_tcp => url,
        Ok(_) => {
            let why = "any local user may take this port while vminfod is down";
            fields.fault(
                "vminfod.url",
                format_args!("{why}: use unix:{SOCKET}, or set vminfod.trust_tcp"),
            );
            String::new()
        }
        Err(reason) => {
            fields.fault("vminfod.url", format_args!("{reason}, or unix:/PATH"));
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tcp_port_is_believed_only_where_an_operator_says_so() {
        let read = |text: &str| {
            let mut fields = Fields::from_json(text).unwrap();
            let url = url(&mut fields);
            fields.finish().map(|_| url).map_err(|error| error.to_string())
        };
        assert_eq!(read("{}").unwrap(), "unix:/var/run/vminfod/hub.sock");
        assert_eq!(read(r#"{"vminfod": {"url": "unix:/tmp/s"}}"#).unwrap(), "unix:/tmp/s");
        let refused = read(r#"{"vminfod": {"url": "http://127.0.0.1:9090"}}"#).unwrap_err();
        assert!(refused.contains("any local user") && refused.contains("trust_tcp"), "{refused}");
        let trusted = r#"{"vminfod": {"url": "http://127.0.0.1:9090/", "trust_tcp": true}}"#;
        assert_eq!(read(trusted).unwrap(), "http://127.0.0.1:9090");
        for bad in ["unix:relative", "hub.sock", "ftp://x"] {
            let text = format!(r#"{{"vminfod": {{"url": "{bad}", "trust_tcp": true}}}}"#);
            assert!(read(&text).unwrap_err().contains("unix:/PATH"), "{bad}");
        }
    }
}
