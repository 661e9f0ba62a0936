// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a request asks with: the parameters in its path, its query and its body.

use std::time::Duration;

use bytes::Bytes;
use daemon::http::{Body, collect};
use http::{HeaderMap, header};
use sdc_clients::restify;
use serde_json::{Value, json};

use volumes_core::list::TAG;
use volumes_core::requests::Params;

/// The longest body, and the time to send it in. The deployed service has no limit.
const BODY: usize = 8 << 20;
const BODY_TIME: Duration = Duration::from_secs(60);

/// A body that does not become parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadBody {
    /// It is not JSON: why.
    Syntax(String),
    /// It is not the form that its type promises: why.
    Form(String),
    /// Its digest is not the one in the header: both.
    Digest(String, String),
    /// It is too long, or did not come.
    Length,
}

/// Decodes a query or a form. A name that comes twice has a list, as has `name[]`; of `name.key` and
/// `name[key]` only the name counts, unless `tags` and it begins with `tag.`.
pub(super) fn decoded(text: &str, tags: bool) -> Params {
    restify::gathered(text, |name, value| {
        if tags && name.starts_with(TAG) {
            return (name, json!(value));
        }
        let (value, name) = match name.split_once('[') {
            Some((name, "]" | "0]")) => (json!([value]), name),
            Some((name, _)) => (json!({}), name),
            None => (json!(value), name),
        };
        (name.split('.').next().unwrap_or_default(), value)
    })
}

/// Returns the parameters of a body: those of an object, those of a list by its positions. A body of
/// another kind has none, and one of another type is not read.
pub(super) async fn body(headers: &HeaderMap, body: Body) -> Result<Content, BadBody> {
    let Some(bytes) = collect(body, BODY, BODY_TIME).await else { return Err(BadBody::Length) };
    if let Some((sent, found)) = restify::wrong_digest(headers, &bytes) {
        return Err(BadBody::Digest(sent, found));
    }
    let encoded = headers.contains_key(header::CONTENT_ENCODING);
    match restify::media_type(headers).as_str() {
        "application/json" => content(&bytes, encoded),
        "multipart/form-data" => multipart(headers, bytes).await,
        "application/x-www-form-urlencoded" => {
            Ok(Content::Fields(decoded(&String::from_utf8_lossy(&bytes), false)))
        }
        _ => Ok(Content::Fields(Params::new())),
    }
}

/// The content of a body.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    Fields(Params),
    /// A list: its items take the place of all other parameters.
    List(Params),
}

/// Returns the parts of a form that are no files; of parts of one name the last one.
async fn multipart(headers: &HeaderMap, bytes: Bytes) -> Result<Content, BadBody> {
    let bad = |error: multer::Error| BadBody::Form(error.to_string());
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let boundary = multer::parse_boundary(kind.unwrap_or_default()).map_err(bad)?;
    let whole = futures_util::stream::once(async { Ok::<_, std::convert::Infallible>(bytes) });
    let mut form = multer::Multipart::new(whole, boundary);
    let mut params = Params::new();
    while let Some(part) = form.next_field().await.map_err(bad)? {
        let Some(name) = part.name().map(str::to_owned) else { continue };
        if part.file_name().is_none() {
            params.insert(name, part.text().await.map_err(bad)?.into());
        }
    }
    Ok(Content::Fields(params))
}

fn content(bytes: &Bytes, encoded: bool) -> Result<Content, BadBody> {
    if bytes.is_empty() {
        return Ok(Content::Fields(Params::new()));
    }
    if encoded {
        return Err(BadBody::Syntax("the body must not be encoded".to_owned()));
    }
    let text = String::from_utf8_lossy(bytes);
    match restify::parse_json(text.as_bytes(), false).map_err(BadBody::Syntax)? {
        Value::Object(fields) => Ok(Content::Fields(fields)),
        Value::Array(items) => {
            let named = items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item));
            Ok(Content::List(named.collect()))
        }
        _ => Ok(Content::Fields(Params::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V3
    fn names_that_come_twice_have_lists() {
        let text = "a=1&b=2&a=3&tag.r=4&c[]=5&c[]=6&d[k]=7&=8";
        let expected = json!({"a": ["1", "3"], "b": "2", "tag": "4", "c": ["5", "6"], "d": {}});
        assert_eq!(Value::Object(decoded(text, false)), expected);
    }

    #[test] // V117
    fn whatever_is_in_a_tags_name_counts() {
        let params = decoded("tag.a.b=1&tag.c%5Bd%5D=2&tag.a.b=3&x.tag.y=4", true);
        let expected = json!({"tag.a.b": ["1", "3"], "tag.c[d]": "2", "x": "4"});
        assert_eq!(Value::Object(params), expected);
    }

    #[test] // V4
    fn a_body_that_is_no_object_has_no_parameters() {
        let fields = |text: &str| content(&Bytes::copy_from_slice(text.as_bytes()), false).unwrap();
        for text in ["", "null", "\"x\"", "7", "true", "{}"] {
            assert_eq!(fields(text), Content::Fields(Params::new()), "{text}");
        }
        assert!(matches!(fields("[]"), Content::List(items) if items.is_empty()));
        assert!(matches!(fields("[1]"), Content::List(items) if items.contains_key("0")));
        let blank = content(&Bytes::from_static(b" \n"), false).unwrap_err();
        assert_eq!(blank, BadBody::Syntax("Unexpected end of JSON input".to_owned()));
    }

    async fn typed(kind: &str, text: &str) -> Result<Content, BadBody> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
        body(&headers, Body::from(text.to_owned())).await
    }

    #[tokio::test] // V4
    async fn the_type_of_a_body_has_no_case_and_may_be_a_form() {
        let owner = json!({"owner_uuid": "o", "name": "two"});
        let fields = Content::Fields(owner.as_object().cloned().unwrap());
        for (kind, text) in [
            ("Application/JSON; charset=utf-8", r#"{"owner_uuid": "o", "name": "two"}"#),
            ("application/X-WWW-form-urlencoded", "owner_uuid=o&name=two"),
            (
                "Multipart/Form-Data; boundary=xX",
                "--xX\r\nContent-Disposition: form-data; name=\"owner_uuid\"\r\n\r\no\r\n\
                 --xX\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\none\r\n\
                 --xX\r\nContent-Disposition: form-data; name=\"f\"; filename=\"x\"\r\n\r\nbytes\r\n\
                 --xX\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\ntwo\r\n--xX--\r\n",
            ),
        ] {
            assert_eq!(typed(kind, text).await.unwrap(), fields, "{kind}");
        }
        for (kind, text) in [
            ("multipart/form-data", "--xX--"),
            (
                "multipart/form-data; boundary=xX",
                "--xX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb",
            ),
        ] {
            assert!(matches!(typed(kind, text).await, Err(BadBody::Form(_))), "{kind}");
        }
    }
}
