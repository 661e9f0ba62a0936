// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What concerns every VM: sysinfo, and the list of zones that the file watcher follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Engine;
use crate::dirty::Stale;
use crate::load::Sysinfo;

impl Engine {
    pub(super) fn sysinfo_read(&mut self, result: Result<Sysinfo, String>) {
        self.sysinfo_reading = false;
        match result {
            Ok(sysinfo) => {
                self.sysinfo_retry = None;
                self.board.well("sysinfo");
                self.board.show_sysinfo(sysinfo.value());
                if *self.sysinfo != sysinfo {
                    self.sysinfo = Arc::new(sysinfo);
                    self.compose_all();
                }
            }
            Err(message) => {
                self.sysinfo_stale = true;
                self.sysinfo_retry = Some(
                    Instant::now() + self.jitter.uniform(self.config.fold, Duration::from_secs(1)),
                );
                if self.board.trouble("sysinfo", "sysinfo", message.clone()) {
                    tracing::warn!(source = "sysinfo", reason = %message, "reading failed: the last good one stays");
                }
            }
        }
    }

    /// Every object is to be composed again from the parts there are.
    pub(super) fn compose_all(&mut self) {
        let names: Vec<String> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.parts.is_some())
            .map(|(name, _)| name.to_string())
            .collect();
        let now = Instant::now();
        for name in names {
            self.mark(&name, Stale::OBJECT, now);
        }
    }

    /// The zones whose files matter, with their zonepaths.
    pub(super) fn zone_paths(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let known = self.vms.iter().filter_map(|(name, vm)| Some((name, vm.parts.as_ref()?)));
        known.map(|(name, parts)| (name.clone(), parts.zone.zonepath.clone())).collect()
    }

    pub(super) fn tell_watcher(&mut self) {
        if std::mem::take(&mut self.zones_changed) {
            let zones = self.zone_paths();
            self.zones.send_if_modified(|current| {
                let news = **current != zones;
                *current = Arc::new(zones);
                news
            });
        }
    }
}
