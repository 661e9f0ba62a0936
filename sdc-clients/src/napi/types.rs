// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI's records. Nothing a server sends is lost: unknown words stay in the
//! open enums, unknown fields in `other`, and both are written back as they came.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::http::Call;
use crate::mac::MacAddr;
use crate::quoted::quoted;
use crate::uuids::uuid_value;

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// An unknown value, as it came.
            Unknown(String),
        }

        impl $name {
            /// Returns the value on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Unknown(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                match text {
                    $($text => $name::$variant,)+
                    _ => $name::Unknown(text.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok($name::from(&*text))
            }
        }
    };
}

open_enum! {
    /// What kind of thing a NIC belongs to.
    BelongsToType {
        /// A zone; `belongs_to_uuid` is the VM.
        Zone = "zone",
        /// A compute node.
        Server = "server",
        /// Anything else.
        Other = "other",
    }
}

open_enum! {
    /// How far a NIC's owner has come with it.
    NicState {
        /// Reserved for something that may not exist yet.
        Provisioning = "provisioning",
        /// In use.
        Running = "running",
        /// Its VM is stopped.
        Stopped = "stopped",
    }
}

/// One NIC record. Its uuids are values: a uuid in capitals, or alone in an array, is read as that
/// uuid in lower case.
#[derive(Debug, Clone, PartialEq)]
pub struct Nic {
    /// The address, the record's key.
    pub mac: MacAddr,
    /// The kind of its holder.
    pub belongs_to_type: BelongsToType,
    /// Its holder.
    pub belongs_to_uuid: String,
    /// The customer who owns it.
    pub owner_uuid: Option<String>,
    /// Whether it is its holder's primary NIC; false when absent.
    pub primary: bool,
    /// Its state.
    pub state: NicState,
    /// The compute node it is on; often absent. A value that is no text is its JSON here.
    pub cn_uuid: Option<String>,
    /// When it was created; the epoch for records older than the feature.
    pub created_timestamp: Option<Timestamp>,
    /// When it was last written.
    pub modified_timestamp: Option<Timestamp>,
    /// Its address, if it has one.
    pub ip: Option<String>,
    /// Its network, if it has one.
    pub network_uuid: Option<String>,
    /// Its NIC tag.
    pub nic_tag: Option<String>,
    /// Every other field, and any of the above that could not be read without loss.
    pub other: Map<String, Value>,
}

/// As NAPI prints it: milliseconds always.
fn iso(timestamp: Timestamp) -> String {
    format!("{timestamp:.3}")
}

/// Takes a required string field.
fn required<E: de::Error>(map: &mut Map<String, Value>, key: &'static str) -> Result<String, E> {
    match map.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(E::custom(format!("NIC field {key}: expected a string, got {other}"))),
        None => Err(E::missing_field(key)),
    }
}

/// Takes a string field; a value of another kind stays in the map.
fn optional(map: &mut Map<String, Value>, key: &str) -> Option<String> {
    match map.get_mut(key) {
        Some(Value::String(text)) => {
            let text = std::mem::take(text);
            map.remove(key);
            Some(text)
        }
        _ => None,
    }
}

/// Takes a uuid as a value: NAPI stores an array of one as it came, and capitals too. What we would
/// print differently stays in the map as well.
fn uuid(map: &mut Map<String, Value>, key: &str) -> Option<String> {
    let found = map.get(key)?;
    let text = match found {
        Value::Array(one) if one.len() == 1 => one.first()?.as_str()?,
        other => other.as_str()?,
    };
    let value = uuid_value(text);
    if found.as_str() == Some(&value) {
        map.remove(key);
    }
    Some(value)
}

/// Takes a timestamp; text that we would print differently stays in the map as well.
fn timestamp(map: &mut Map<String, Value>, key: &str) -> Option<Timestamp> {
    let text = map.get(key)?.as_str()?;
    let parsed: Timestamp = text.parse().ok()?;
    if iso(parsed) == text {
        map.remove(key);
    }
    Some(parsed)
}

impl<'de> Deserialize<'de> for Nic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nic, D::Error> {
        let mut map = Map::<String, Value>::deserialize(deserializer)?;
        let primary = match map.get("primary") {
            Some(Value::Bool(primary)) => {
                let primary = *primary;
                map.remove("primary");
                primary
            }
            _ => false,
        };
        Ok(Nic {
            mac: required::<D::Error>(&mut map, "mac")?.parse().map_err(de::Error::custom)?,
            belongs_to_type: required::<D::Error>(&mut map, "belongs_to_type")?.as_str().into(),
            belongs_to_uuid: match uuid(&mut map, "belongs_to_uuid") {
                Some(holder) => holder,
                None => required(&mut map, "belongs_to_uuid")?,
            },
            owner_uuid: uuid(&mut map, "owner_uuid"),
            primary,
            state: required::<D::Error>(&mut map, "state")?.as_str().into(),
            // Something odd is not nothing: it is shown as it came, and is no node's uuid.
            cn_uuid: uuid(&mut map, "cn_uuid")
                .or_else(|| map.get("cn_uuid").filter(|v| !v.is_null()).map(Value::to_string)),
            created_timestamp: timestamp(&mut map, "created_timestamp"),
            modified_timestamp: timestamp(&mut map, "modified_timestamp"),
            ip: optional(&mut map, "ip"),
            network_uuid: optional(&mut map, "network_uuid"),
            nic_tag: optional(&mut map, "nic_tag"),
            other: map,
        })
    }
}

impl Nic {
    /// The record as a JSON object; what `other` holds wins.
    pub fn to_object(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("belongs_to_type".into(), self.belongs_to_type.as_str().into());
        map.insert("belongs_to_uuid".into(), self.belongs_to_uuid.clone().into());
        map.insert("mac".into(), self.mac.to_string().into());
        map.insert("primary".into(), self.primary.into());
        map.insert("state".into(), self.state.as_str().into());
        let texts = [
            ("owner_uuid", self.owner_uuid.clone()),
            ("created_timestamp", self.created_timestamp.map(iso)),
            ("modified_timestamp", self.modified_timestamp.map(iso)),
            ("cn_uuid", self.cn_uuid.clone()),
            ("ip", self.ip.clone()),
            ("network_uuid", self.network_uuid.clone()),
            ("nic_tag", self.nic_tag.clone()),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                map.insert(key.into(), text.into());
            }
        }
        for (key, value) in &self.other {
            map.insert(key.clone(), value.clone());
        }
        map
    }
}

impl Serialize for Nic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_object().serialize(serializer)
    }
}

/// What to list. Unset fields are not sent; several values of one key are alternatives, several keys must
/// all match.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NicQuery {
    /// Compute nodes.
    pub cn_uuid: Vec<String>,
    /// Holders.
    pub belongs_to_uuid: Vec<String>,
    /// Kinds of holders.
    pub belongs_to_type: Vec<String>,
    /// Owners.
    pub owner_uuid: Vec<String>,
    /// States.
    pub state: Vec<String>,
    /// The most records to return, 1 to 1000.
    pub limit: Option<u32>,
    /// How many to skip.
    pub offset: Option<u32>,
}

impl NicQuery {
    pub(super) fn apply(&self, call: Call) -> Call {
        call.query_list("cn_uuid", &self.cn_uuid)
            .query_list("belongs_to_uuid", &self.belongs_to_uuid)
            .query_list("belongs_to_type", &self.belongs_to_type)
            .query_list("owner_uuid", &self.owner_uuid)
            .query_list("state", &self.state)
            .query_opt("limit", self.limit)
            .query_opt("offset", self.offset)
    }
}

/// What to change about a NIC. Unset fields are not sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NicUpdate {
    /// The compute node it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cn_uuid: Option<String>,
    /// Its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<NicState>,
    /// The kind of its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub belongs_to_type: Option<BelongsToType>,
    /// Its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub belongs_to_uuid: Option<String>,
    /// Its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_uuid: Option<String>,
    /// Whether it is the primary NIC; clears the flag on its siblings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Whether the server checks that the owner may use the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_owner: Option<bool>,
}

impl NicUpdate {
    /// Whether it changes nothing; an empty update would still bump the etag.
    pub fn is_empty(&self) -> bool {
        *self == NicUpdate::default()
    }

    /// Why this must not be sent: words read from some server are not ours to write.
    pub(super) fn unsendable(&self) -> Option<String> {
        let word = match (&self.state, &self.belongs_to_type) {
            (Some(NicState::Unknown(word)), _) => word,
            (_, Some(BelongsToType::Unknown(word))) => word,
            _ => return None,
        };
        Some(format!("an update must not carry the unknown word {}", quoted(word)))
    }
}

/// The answer of `/ping`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PingResponse {
    /// `OK` or `initializing`.
    pub status: String,
    /// Whether it can serve.
    #[serde(default)]
    pub healthy: bool,
    /// Everything else.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
