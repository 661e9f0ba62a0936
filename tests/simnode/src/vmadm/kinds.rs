// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The values that a property takes. No kind limits the length or the characters of a text.

use std::net::IpAddr;

use sdc_clients::restify::is_uuid;
use serde_json::Value;

/// The kind of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `false`, both as text, 1 and `"1"`.
    Boolean,
    /// A whole number from the first to the second one, or its text; null and blank unset it.
    Integer(i64, i64),
    /// A text, null, or what prints as blank.
    Text,
    /// A UUID in lower case.
    Uuid,
    /// Texts or numbers without commas, or one text split at commas.
    List(Items),
    /// An object of texts, numbers and booleans, or null.
    Flat,
    /// A pool of the node.
    Pool,
    /// A list of objects. Where `strict`, what is no list ends vmadm.
    Objects {
        /// Anything but a list is fatal.
        strict: bool,
    },
    /// `4096` or `512/4096`.
    GuestBlockSize,
    /// Whatever is given.
    Any,
}

/// The members of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Items {
    Any,
    Address,
    /// Names of metadata namespaces.
    Namespace,
    /// DHCP client ids.
    ClientId,
}

impl Kind {
    /// Returns true if a value is of this kind.
    pub fn takes(self, value: &Value, pools: &[String]) -> bool {
        match self {
            Kind::Any => true,
            Kind::Boolean => match value {
                Value::Bool(_) => true,
                Value::Number(n) => n.as_i64() == Some(1),
                Value::String(text) => matches!(text.as_str(), "true" | "false" | "1"),
                _ => false,
            },
            Kind::Integer(least, most) => {
                let within = |n: i64| (least..=most).contains(&n);
                match value {
                    Value::Number(n) => whole(n.as_f64()).is_some_and(within),
                    other => printed(other).is_some_and(|text| {
                        text.trim().is_empty() || text.trim().parse().is_ok_and(within)
                    }),
                }
            }
            Kind::Text => value.is_string() || printed(value).is_some_and(|text| text.is_empty()),
            Kind::Uuid => value.as_str().is_some_and(is_uuid),
            Kind::List(items) => match value {
                Value::String(text) => {
                    text.split(',').all(|part| part.is_empty() || items.take(part))
                }
                Value::Array(all) => all.iter().all(|item| match item {
                    Value::String(text) => !text.contains(',') && items.take(text),
                    Value::Number(n) => items.take(&n.to_string()),
                    _ => false,
                }),
                _ => false,
            },
            Kind::Flat => {
                let is_flat = |member: &Value| {
                    member.is_string() || member.is_number() || member.is_boolean()
                };
                match value {
                    Value::Null => true,
                    Value::Object(members) => members.values().all(is_flat),
                    Value::Array(members) => members.iter().all(is_flat),
                    _ => false,
                }
            }
            Kind::Pool => value.as_str().is_some_and(|name| pools.iter().any(|pool| pool == name)),
            Kind::Objects { .. } => {
                value.as_array().is_some_and(|all| all.iter().all(Value::is_object))
            }
            Kind::GuestBlockSize => value.as_str().is_some_and(|text| {
                text.split('/').count() <= 2
                    && text.split('/').all(|part| part.parse().is_ok_and(is_block_size))
            }),
        }
    }
}

impl Items {
    fn take(self, text: &str) -> bool {
        match self {
            Items::Any => true,
            Items::Address => text.parse::<IpAddr>().is_ok(),
            Items::Namespace => {
                !text.is_empty()
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
            }
            Items::ClientId => text.strip_prefix("0x").is_some_and(|digits| {
                digits.len() % 2 == 0
                    && text.len() <= 512
                    && digits.chars().all(|c| c.is_ascii_hexdigit())
            }),
        }
    }
}

/// A number without a fraction.
#[allow(clippy::cast_possible_truncation)] // it was compared with what it is cut to
pub(crate) fn whole(number: Option<f64>) -> Option<i64> {
    number.filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64)
}

/// How a value prints, where that is a text at all.
fn printed(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Array(all) => {
            let parts: Option<Vec<String>> = all.iter().map(printed).collect();
            Some(parts?.join(","))
        }
        Value::Bool(_) | Value::Object(_) => None,
    }
}

/// Returns true for a power of two from 512 to 131072.
pub(crate) fn is_block_size(size: u64) -> bool {
    size.is_power_of_two() && (512..=131_072).contains(&size)
}
