// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The ages of NAPI in use, and their differences.

use serde::{Deserialize, Serialize};

/// Which NAPI is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Era {
    /// The released code: `/nics` filters by `cn_uuid`, no `/search/nics`.
    #[default]
    Master,
    /// As master, with `/search/nics` as an alias.
    Rfd58,
    /// Filters and has the alias, but knows no entity tags.
    EraC,
    /// Refuses `cn_uuid` in lists; no entity tags.
    Mid2017,
    /// Ignores unknown list parameters; no paging, no time stamps, no entity tags.
    Old2015,
}

impl Era {
    /// Whether GET `/search/nics` exists.
    pub fn has_search_nics(self) -> bool {
        matches!(self, Era::Rfd58 | Era::EraC)
    }

    /// Whether entity tags are sent and honoured.
    pub fn has_etags(self) -> bool {
        matches!(self, Era::Master | Era::Rfd58)
    }

    /// Whether unknown list parameters are refused.
    pub fn is_strict(self) -> bool {
        self != Era::Old2015
    }

    /// Whether lists can be filtered by `cn_uuid` and `state`.
    pub fn has_cn_filter(self) -> bool {
        !matches!(self, Era::Mid2017 | Era::Old2015)
    }

    /// Whether NICs carry time stamps.
    pub fn has_timestamps(self) -> bool {
        self != Era::Old2015
    }

    /// Whether fabrics are configured.
    pub fn has_fabrics(self) -> bool {
        matches!(self, Era::Master | Era::Rfd58 | Era::EraC)
    }

    /// Whether the code runs on the old platform (another JSON parser and router).
    pub fn old_platform(self) -> bool {
        matches!(self, Era::Mid2017 | Era::Old2015)
    }
}

impl std::str::FromStr for Era {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "master" | "modern" => Ok(Era::Master),
            "rfd58" => Ok(Era::Rfd58),
            "era-c" => Ok(Era::EraC),
            "mid2017" => Ok(Era::Mid2017),
            "old2015" => Ok(Era::Old2015),
            other => Err(format!("no such era: {other} (master, rfd58, era-c, mid2017, old2015)")),
        }
    }
}
