// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Uuids are values: `A829…` and `a829…` are the same VM.

use serde::{Deserialize, Deserializer};

/// Returns a uuid in lower case, and any other text as it is.
pub fn uuid_value(text: &str) -> String {
    match uuid::Uuid::try_parse(text) {
        Ok(parsed) if text.len() == 36 => parsed.hyphenated().to_string(),
        _ => text.to_owned(),
    }
}

/// Reads a field that is a uuid.
pub(crate) fn field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(uuid_value(&String::deserialize(deserializer)?))
}

/// Reads a field that is a uuid, or absent.
pub(crate) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.as_deref().map(uuid_value))
}

#[cfg(test)]
mod tests {
    use super::uuid_value;

    #[test] // F69
    fn a_uuid_in_capitals_is_that_uuid() {
        let small = "a829c448-085b-4138-adbc-583ac96881c3";
        assert_eq!(uuid_value(&small.to_uppercase()), small);
        for other in ["Zone-A", "A829C448085B4138ADBC583AC96881C3", "", "z"] {
            assert_eq!(uuid_value(other), other);
        }
    }
}
