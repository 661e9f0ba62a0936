// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Which vminfod the next boot starts: the rule of the start method of `hub-node`, in its order.

use std::fmt;

/// Why the next boot starts the platform's vminfod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaysAway {
    /// Nothing lays the mounts.
    NotEnabled,
    /// vminfod did not answer at an earlier boot of this platform image.
    DidNotAnswer(String),
    /// It did not answer yet at this boot.
    NotYet,
    /// It was never seen to work on this platform image.
    NotTried(String),
}

impl fmt::Display for StaysAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StaysAway::NotEnabled => f.write_str("hub node enable was not run"),
            StaysAway::DidNotAnswer(platform) => {
                write!(
                    f,
                    "the hub's did not answer at a boot of {platform}; hub node try tries it again"
                )
            }
            StaysAway::NotYet => f.write_str(
                "the hub's has not answered since this boot; hub node try tries it again",
            ),
            StaysAway::NotTried(platform) => {
                write!(f, "the hub's was not tried on {platform}; hub node try tries it")
            }
        }
    }
}

/// What decides it.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The service that lays the mounts is imported at each boot.
    pub is_enabled: bool,
    /// The platform images on which it was seen to work.
    pub tried: Vec<String>,
    /// The platform image of the boot at which it did not answer.
    pub failed: Option<String>,
    /// The mounts were laid at this boot, and vminfod has not answered.
    pub is_booting: bool,
}

/// Returns why a boot of this platform image starts the platform's vminfod; none if it starts the hub's.
pub fn stays_away(known: &Known, platform: &str) -> Option<StaysAway> {
    if !known.is_enabled {
        return Some(StaysAway::NotEnabled);
    }
    if let Some(failed) = &known.failed {
        return Some(StaysAway::DidNotAnswer(failed.clone()));
    }
    if known.is_booting {
        return Some(StaysAway::NotYet);
    }
    let is_tried = known.tried.iter().any(|it| it == platform);
    (!is_tried).then(|| StaysAway::NotTried(platform.to_owned()))
}
