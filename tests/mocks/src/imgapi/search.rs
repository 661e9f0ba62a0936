// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The parameters of `GET /images`, the page that they ask for, and the errors of IMGAPI. Pure.

use serde_json::{Value, json};

use crate::records::Record;
use crate::restify::{self, Params};
use crate::router::Answer;

const STATES: [&str; 6] = ["active", "unactivated", "disabled", "creating", "failed", "all"];

/// What a list is to have.
pub(super) struct Wanted<'a> {
    query: &'a Params,
    limit: usize,
    descending: bool,
    /// Where the files are is shown, too.
    pub(super) for_admins: bool,
}

/// An error with a status of its own.
pub(super) fn refused(status: u16, code: &str, message: String) -> Answer {
    Answer::error(status, code, message)
}

/// 422 for parameters that are wrong together.
pub(super) fn failed(message: &str, errors: Value) -> Answer {
    let body = json!({ "code": "ValidationFailed", "message": message, "errors": errors });
    Answer { status: 422, ..Answer::ok(body) }
}

/// 422 for one parameter.
pub(super) fn invalid(field: &str, message: String) -> Answer {
    let errors = json!([{ "field": field, "code": "Invalid" }]);
    let body = json!({ "code": "InvalidParameter", "message": message, "errors": errors });
    Answer { status: 422, ..Answer::ok(body) }
}

/// Reads the parameters; nothing if the process dies of them. What it does not know is ignored.
pub(super) fn wanted(query: &Params) -> Option<Result<Wanted<'_>, Answer>> {
    let text = |name: &str| query.get(name).and_then(Value::as_str);
    let dies = text("public").is_some_and(|it| !matches!(it, "true" | "false"));
    if dies || query.contains_key("billing_tag") {
        return None;
    }
    Some(checked(query))
}

fn checked(query: &Params) -> Result<Wanted<'_>, Answer> {
    let text = |name: &str| query.get(name).and_then(Value::as_str);
    if let Some(state) = text("state").filter(|it| !it.is_empty() && !STATES.contains(it)) {
        return Err(invalid("state", format!("invalid state: \"{state}\"")));
    }
    let limit = match text("limit") {
        None => 1000,
        Some(limit) => match limit.parse::<i64>() {
            Ok(0) => 1000,
            Ok(limit) => usize::try_from(limit)
                .map_err(|_| refused(500, "InternalError", "error searching images".to_owned()))?,
            Err(_) => return Err(invalid("state", format!("invalid limit: \"{limit}\""))),
        },
    };
    if let Some(marker) = text("marker")
        && !restify::is_uuid(marker)
        && marker.parse::<jiff::Timestamp>().is_err()
    {
        let message = format!(
            "invalid value for \"marker\" param: \"{marker}\" is not a UUID or date string"
        );
        return Err(invalid("marker", message));
    }
    let (sort, descending) = match text("sort") {
        Some(sort) => (sort.split('.').next().unwrap_or_default(), sort.ends_with(".desc")),
        None => ("published_at", false),
    };
    if sort != "published_at" {
        let message = format!("invalid 'sort': not a valid sorting attribute: '{sort}'");
        return Err(invalid("sort", message));
    }
    let for_admins = text("inclAdminFields") == Some("true");
    Ok(Wanted { query, limit, descending, for_admins })
}

impl<'a> Wanted<'a> {
    /// The image, or the time, from which on the list is to begin.
    pub(super) fn marker(&self) -> Option<&'a str> {
        self.query.get("marker").and_then(Value::as_str)
    }

    /// The page of these images.
    pub(super) fn page(&self, mut images: Vec<Record>, since: Option<&str>) -> Vec<Record> {
        images.retain(|image| self.fits(image));
        let key = |image: &Record| published(image).map(str::to_owned);
        // What is not published comes first.
        images.sort_by_key(key);
        if let Some(since) = since {
            images.retain(|image| published(image).is_some_and(|own| own >= since));
        }
        if self.descending {
            images.reverse();
        }
        images.truncate(self.limit);
        images
    }

    fn fits(&self, image: &Record) -> bool {
        let text = |name: &str| image.get(name).and_then(Value::as_str).unwrap_or_default();
        let asked = |name: &str| self.query.get(name).and_then(Value::as_str);
        let state = asked("state").filter(|it| !it.is_empty()).unwrap_or("active");
        let named = asked("name").is_none_or(|name| match name.strip_prefix('~') {
            Some(part) => text("name").contains(part),
            None => text("name") == name,
        });
        let typed = asked("type").is_none_or(|kind| match kind.strip_prefix('!') {
            Some(other) => text("type") != other,
            None => text("type") == kind,
        });
        let tags =
            self.query.iter().filter_map(|(name, value)| Some((name.strip_prefix("tag.")?, value)));
        let tagged = tags.into_iter().all(|(name, wanted)| {
            let is = image.get("tags").and_then(|tags| tags.get(name));
            is.is_some_and(|is| match is {
                Value::String(is) => wanted == is,
                is => wanted == &is.to_string(),
            })
        });
        let is_public = image.get("public").is_some_and(|it| it == true);
        (state == "all" || text("state") == state)
            && named
            && typed
            && tagged
            && ["version", "owner", "os"]
                .into_iter()
                .all(|name| asked(name).is_none_or(|wanted| text(name) == wanted))
            && asked("public").is_none_or(|wanted| (wanted == "true") == is_public)
            && asked("account").is_none_or(|account| may_see(image, account))
    }
}

fn published(image: &Record) -> Option<&str> {
    image.get("published_at").and_then(Value::as_str)
}

/// Returns true if the image is for this account: its own, shared with it, or published for all.
pub(super) fn may_see(image: &Record, account: &str) -> bool {
    let acl = image.get("acl").and_then(Value::as_array).into_iter().flatten();
    let is_public = image.get("public").is_some_and(|it| it == true);
    image.get("owner").is_some_and(|owner| owner == account)
        || acl.into_iter().any(|it| it == account)
        || (is_public && published(image).is_some())
}
