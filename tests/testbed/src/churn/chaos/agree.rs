// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What has to agree when all is quiet: the old daemon, a fresh one, and the node.

use sdc_clients::vminfod::VmObject;

use crate::changes::same_vms;

/// Compares what both daemons show with the node.
pub(super) fn agree(old: &[VmObject], fresh: &[VmObject], node: &[VmObject]) -> anyhow::Result<()> {
    for (whose, cache) in [("the old daemon", old), ("a fresh daemon", fresh)] {
        same_vms(cache, node).map_err(|what| anyhow::anyhow!("{whose}: {what}"))?;
    }
    Ok(())
}
