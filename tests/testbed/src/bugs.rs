// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Deliberate bugs of a runner: what its world would be like without a guard of the programs. Its judge has to notice
//! each.

/// Makes the type `Bug` of these variants, and `BUGS`, which has all of them with the names they are asked for by.
macro_rules! bugs {
    ($($(#[doc = $what:literal])+ $bug:ident = $name:literal,)+) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $what])+ $bug,)+
        }

        /// All of them, with the names they are asked for by.
        pub const BUGS: &[(&str, Bug)] = &[$(($name, Bug::$bug),)+];

        impl Bug {
            /// Returns the name it is asked for by.
            pub fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)+
                }
            }
        }

        impl std::str::FromStr for Bug {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let found = BUGS.iter().find(|(name, _)| *name == text);
                let names: Vec<&str> = BUGS.iter().map(|(name, _)| *name).collect();
                let unknown = || format!("no bug {text}; there are {}", names.join(", "));
                found.map(|(_, bug)| *bug).ok_or_else(unknown)
            }
        }
    };
}

pub(crate) use bugs;
