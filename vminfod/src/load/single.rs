// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! One VM in one call, as the load of the whole node would show it, without reading the files of
//! all others.
//!
//! Must never show anything else than the whole node's load. So the datasets are the whole node's:
//! one of any pool may be mounted where the VM is, and the last one counts.

use sdc_clients::vminfod::VmObject;

use super::{Ctx, LoadError, datasets, kstat, node, sysinfo, zoneadm};
use crate::vm;

/// The VM of this zone name; `None` if there is no such zone.
///
/// # Errors
/// A source that concerns every VM fails, or one of its own: that it cannot be read does not mean
/// that it is not there.
pub async fn vm(ctx: &Ctx, zonename: &str) -> Result<Option<VmObject>, LoadError> {
    let (rows, sysinfo, kstats, datasets) = tokio::try_join!(
        zoneadm::list(ctx),
        sysinfo::load(ctx),
        kstat::node(ctx),
        datasets::node(ctx)
    )?;
    let Some(row) = rows.into_iter().find(|row| *row.zonename == *zonename) else {
        return Ok(None);
    };
    node::have_pools(&datasets)?;
    let kstat = kstat::of(&kstats, &row).cloned();
    let parts = node::zone(ctx, row, kstat).await?;
    let composed = vm::compose(&parts, &datasets, &sysinfo);
    composed.map(Some).map_err(|error| LoadError::from_compose(ctx, &parts, error))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::commands::{CommandError, Commands, Follow, Output, Tool};
    use crate::root::Root;

    /// What the commands of a node printed.
    struct Recorded(PathBuf);

    impl Commands for Recorded {
        fn run<'a>(
            &'a self,
            tool: Tool,
            _: Vec<String>,
            _: Duration,
        ) -> BoxFuture<'a, Result<Output, CommandError>> {
            let name = match tool {
                Tool::Zoneadm => "zoneadm-list.txt",
                Tool::Zfs => "zfs-list.txt",
                Tool::Kstat | Tool::Sysevent => "zoneinfo.json",
            };
            let stdout = std::fs::read(self.0.join(name)).unwrap_or_default();
            Box::pin(async move { Ok(Output { status: 0, stdout, stderr: Vec::new() }) })
        }

        fn follow(&self, _: Tool, _: Vec<String>) -> Result<Follow, CommandError> {
            panic!("nothing follows here")
        }
    }

    fn nodes() -> Vec<PathBuf> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut nodes = vec![here.join("tests/fixtures/cn-basic")];
        let shared = std::fs::read_dir(here.join("../../shared/fixtures"));
        nodes.extend(
            shared
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.join("cmd").is_dir() && path.join("root").is_dir()),
        );
        nodes
    }

    #[tokio::test]
    async fn a_vm_alone_is_what_it_is_in_the_whole_node() {
        let (mut shown, mut broken) = (0, 0);
        for dir in nodes() {
            let ctx = Ctx::new(Root::new(dir.join("root")), Arc::new(Recorded(dir.join("cmd"))));
            let Ok(whole) = node::node(&ctx).await else { continue };
            let names = whole.rows.iter().map(|row| row.zonename.to_string());
            for name in names.chain(["no-such-zone".to_owned()]) {
                let got = vm(&ctx, &name).await;
                if let Some(one) = whole.broken.iter().find(|one| one.zonename == name) {
                    assert_eq!(got.unwrap_err().to_string(), one.error.to_string());
                    broken += 1;
                    continue;
                }
                let got = got.unwrap();
                let want = whole.vms.iter().find(|vm| vm["zonename"] == name.as_str());
                assert_eq!(got.as_ref(), want, "{name} of {}", dir.display());
                shown += usize::from(got.is_some());
            }
        }
        assert!(shown > 0 && (broken > 0 || nodes().len() == 1), "{shown} {broken}");
    }
}
