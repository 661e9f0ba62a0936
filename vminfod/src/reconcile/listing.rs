// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The list of zones for requests: `sync=zones`, and names without a known VM. One list answers all
//! requests that came before it began.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sdc_clients::vminfod::Incomplete;
use tokio::time::Instant;
use vm_model::origin::Origin;
use vm_model::parts::XML;
use vm_model::stale::{Stale, ZoneFile};

use super::asks::{Waiter, ZonesWaiter, answer};
use super::vms::Vms;
use crate::node::load::{self, Zones};
use crate::node::read::stamps;
use crate::node::{Ctx, Fault, LoadError};

/// How long a request waits for the readings of the zones that differ.
pub const LIMIT: Duration = Duration::from_secs(10);

/// What a request asks.
#[derive(Debug)]
pub enum Question {
    /// To have shown what the list says.
    Zones(ZonesWaiter),
    /// To have the zone of this name or uuid read, if there is one.
    Name(String, Waiter),
}

impl Question {
    /// Answers that the list failed.
    pub fn fail(self, message: &str) {
        match self {
            Question::Zones(waiter) => drop(waiter.send(Err(message.to_owned()))),
            Question::Name(_, waiter) => answer(vec![waiter], &Err(message.to_owned())),
        }
    }
}

/// The requests that wait for a list.
#[derive(Debug, Default)]
pub struct Listing {
    /// For the next one.
    asked: Vec<Question>,
    /// For the one under way.
    running: Option<Vec<Question>>,
}

impl Listing {
    pub fn ask(&mut self, question: Question) {
        self.asked.push(question);
    }

    /// Begins a list, if one is asked for and none is under way.
    pub fn begin(&mut self) -> bool {
        let begins = self.running.is_none() && !self.asked.is_empty();
        if begins {
            self.running = Some(std::mem::take(&mut self.asked));
        }
        begins
    }

    /// The list under way has ended; returns the requests that wait for it.
    pub fn ended(&mut self) -> Vec<Question> {
        self.running.take().unwrap_or_default()
    }
}

/// The zones, as they were listed.
#[derive(Debug)]
pub struct Listed {
    pub zones: Zones,
    /// The stamp of the XML of each row; 0 if there is none.
    xml: Vec<u64>,
    began: Instant,
}

/// Lists the zones, and takes the stamps of their XMLs.
/// Errors: a source fails.
pub async fn list(ctx: &Ctx) -> Result<Listed, LoadError> {
    let began = Instant::now();
    let zones = load::zones(ctx).await?;
    let names: Vec<Arc<str>> = zones.rows.iter().map(|row| Arc::clone(&row.zonename)).collect();
    let place = ctx.root.zone_index().display().to_string();
    let stamps = ctx.root.on_files(&place, move |root| {
        let stamp = |name: &Arc<str>| stamps::of(root, &root.zone_xml(name)).unwrap_or_default();
        names.iter().map(stamp).collect()
    });
    let xml = stamps.await.map_err(|e| LoadError::new(Origin::ZoneXml, Fault::Read(e)))?;
    Ok(Listed { zones, xml, began })
}

impl Listed {
    /// The zones that are not shown as they were seen, or not at all, and what is to be read of each.
    pub fn differing(&self, vms: &Vms) -> Vec<(Arc<str>, Stale)> {
        let (mut differing, outranked) = (Vec::new(), vms.outranked());
        for (row, xml) in self.zones.rows.iter().zip(&self.xml) {
            let name = Arc::clone(&row.zonename);
            match vms.parts(&name) {
                Some(parts) if parts.zone == *row && !outranked.contains(&name) => {
                    let is_young = parts.stamps.young & 1 << XML != 0;
                    if is_young || parts.stamps.versions.get(XML) != Some(xml) {
                        differing.push((name, Stale::on_file(ZoneFile::Xml)));
                    }
                }
                _ => differing.push((name, Stale::ON_ZONE_EVENT)),
            }
        }
        let rows: HashSet<&str> = self.zones.rows.iter().map(|row| &*row.zonename).collect();
        let gone = vms.known().map(|(name, _)| name).filter(|name| !rows.contains(&***name));
        let unlisted = self.zones.unlisted.iter().chain(&self.zones.strays);
        let unlisted = unlisted.filter(|name| vms.parts(name).is_none());
        let others = gone.cloned().chain(unlisted.map(|name| Arc::from(&**name)));
        differing.extend(others.map(|name| (name, Stale::ON_ZONE_EVENT)));
        differing
    }
}

/// Zones that differed, and the requests that wait until they are read.
pub struct Differing {
    pub zones: Vec<(Arc<str>, Stale)>,
    pub seen: Box<Listed>,
    pub waiters: Vec<ZonesWaiter>,
}

impl Differing {
    /// Answers with the zones that were not read since the list began.
    pub fn answer(self, vms: &Vms) {
        let is_unread = |(name, stale): &&(Arc<str>, Stale)| {
            let needed = *stale & (Stale::ZONEADM | Stale::XML);
            vms.get(name).is_some_and(|vm| !vm.is_read_since(needed, self.seen.began))
        };
        let incomplete = match self.seen.zones.is_blind {
            true => Incomplete::Everything,
            false => {
                let unread = self.zones.iter().filter(is_unread);
                Incomplete::of_zones(unread.map(|(name, _)| name.to_string()))
            }
        };
        for waiter in self.waiters {
            let _asker_may_have_gone = waiter.send(Ok(incomplete.clone()));
        }
    }
}
