// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! `zfs list -H -o name,mountpoint NAME ...`: where filesystems are mounted.
//!
//! Who owns a dataset chooses the text, and zfs prints it as it is: it may have lines that look like
//! those of other datasets. Only datasets whose `zoned` is off are asked for, which no tenant sets
//! properties of; but what was delegated once keeps the text that it had. So an answer is believed only
//! where it can have one meaning: as many lines as datasets, or one dataset.

use std::collections::HashMap;

use crate::js::lossy;

/// The columns of a look-up, for `-o`.
pub const COLUMNS: &str = "name,mountpoint";

/// Returns the mountpoint of each of these datasets, `missing` of which do not exist; `None` if a text
/// has line ends, so that the lines are not those of the datasets.
///
/// Each dataset has at least one line. With no more lines than datasets each has one, and its name, in
/// which there is no tab, ends at the first tab.
pub fn parse(asked: &[&str], missing: usize, printed: &[u8]) -> Option<HashMap<String, String>> {
    let text = lossy(printed);
    let found = asked.len().checked_sub(missing)?;
    if text.is_empty() {
        return (found == 0).then(HashMap::new);
    }
    let text = text.strip_suffix('\n')?;
    let lines: Vec<&str> = match asked {
        [_] => vec![text],
        _ => text.split('\n').collect(),
    };
    let pairs = lines.iter().map(|line| line.split_once('\t'));
    let pairs: HashMap<&str, &str> = pairs.collect::<Option<_>>()?;
    let are_those = asked.iter().filter(|name| pairs.contains_key(*name)).count() == found;
    let owned = |(name, at): (&str, &str)| (name.to_owned(), at.to_owned());
    (are_those && lines.len() == found && pairs.len() == found)
        .then(|| pairs.into_iter().map(owned).collect())
}

#[cfg(test)]
mod tests;
