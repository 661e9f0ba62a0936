// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The modification times of the files a VM object is made of.

use super::{Ctx, Fault, LoadError, Origin, ZoneRow};
use crate::root::{Root, modified};

/// The newest, in whole seconds since 1970. Only regular files count, and a time of 0 does not.
pub async fn load(ctx: &Ctx, row: &ZoneRow) -> Result<Option<i64>, LoadError> {
    let row = row.clone();
    ctx.on_files(Origin::Times, move |root| read(root, &row)).await
}

/// The same here and now, where it may block.
pub(super) fn read(root: &Root, row: &ZoneRow) -> Result<Option<i64>, LoadError> {
    let paths = [
        root.zone_xml(&row.zonename),
        root.config_file(&row.zonepath, "metadata"),
        root.config_file(&row.zonepath, "routes"),
        root.config_file(&row.zonepath, "tags"),
        root.lastexited(&row.zonepath),
    ];
    let times = paths.iter().map(|path| {
        modified(path).map_err(|e| LoadError::new(Origin::Times, Fault::Read(e)).in_file(path))
    });
    Ok(newest(times.collect::<Result<Vec<_>, _>>()?))
}

/// The newest of these times.
pub fn newest(times: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    times.into_iter().flatten().filter(|t| *t != 0).max()
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn zero_is_no_time() {
        assert_eq!(newest([Some(5), None, Some(7), Some(0)]), Some(7));
        assert_eq!(newest([Some(0), None]), None);
        assert_eq!(newest([Some(-3), Some(0)]), Some(-3));
    }
}
