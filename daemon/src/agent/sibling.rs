// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The URL of a service from that of another one: in a Triton data centre they differ in the first label alone.

use crate::config::{Fields, http_url};

/// `http://napi.dc.example` → `http://vmapi.dc.example`; none where the first label is not the service's name.
pub fn sibling(url: &str, service: &str, other: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let tail = rest.strip_prefix(service)?;
    let is_label = tail.is_empty() || tail.starts_with(['.', ':', '/']);
    is_label.then(|| format!("{scheme}://{other}{tail}"))
}

/// Reads `OTHER.url`; without it the sibling of this service. None where an operator says `none`, or there is no
/// sibling.
pub fn optional(fields: &mut Fields, url: &str, service: &str, other: &str) -> Option<String> {
    let key = format!("{other}.url");
    match fields.optional_text(&key) {
        Some(text) if text == "none" => None,
        Some(text) => match http_url(&text) {
            Ok(url) => Some(url),
            Err(reason) => {
                fields.fault(&key, reason);
                None
            }
        },
        None => sibling(url, service, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sibling_differs_in_the_first_label() {
        let read = |text: &str| {
            let mut fields = Fields::from_json(text).unwrap();
            let url = optional(&mut fields, "http://vmapi.dc.example:80", "vmapi", "cnapi");
            fields.finish().map(|_| url).map_err(|error| error.to_string())
        };
        assert_eq!(read("{}").unwrap().as_deref(), Some("http://cnapi.dc.example:80"));
        assert_eq!(read(r#"{"cnapi": {"url": "none"}}"#).unwrap(), None);
        assert_eq!(read(r#"{"cnapi": {"url": "http://x"}}"#).unwrap().as_deref(), Some("http://x"));
        assert!(read(r#"{"cnapi": {"url": "x"}}"#).unwrap_err().contains("cnapi.url"));
        assert_eq!(sibling("http://127.0.0.1", "vmapi", "cnapi"), None);
        assert_eq!(sibling("http://vmapis.dc", "vmapi", "cnapi"), None);
    }
}
