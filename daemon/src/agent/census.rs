// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Whether a second machine has this node's uuid. Two pieces of evidence are needed: the sysinfo that CNAPI has of
//! this uuid is of another machine, and NAPI has server NICs of this uuid that this machine lacks. A card that was
//! swapped leaves the second piece only, once CNAPI has heard of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::Transport;
use sdc_clients::napi::{BelongsToType, Napi, NicList, NicQuery};
use sdc_clients::{Error, Http, MacAddr};
use serde::{Deserialize, Serialize};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::identity::Identity;

/// More `server` records than any node has.
const MOST: u32 = 100;
/// How long CNAPI, and then NAPI, is waited for: a CNAPI that hangs keeps no agent from writing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why it is not known whether there is a second machine.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The answer of CNAPI or NAPI cannot be used.
    #[error(transparent)]
    Failed(#[from] Error),
    /// CNAPI hangs.
    #[error("CNAPI has not answered within {} s", PATIENCE.as_secs())]
    Hangs(#[from] Elapsed),
}

/// A second machine, as CNAPI and NAPI show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondMachine {
    /// The serial number that CNAPI has, where it is not this machine's.
    pub serial: Option<String>,
    /// The MACs that CNAPI has.
    pub macs: BTreeSet<MacAddr>,
    /// The server NICs of NAPI that this machine lacks.
    pub nics: BTreeSet<MacAddr>,
    /// Where CNAPI knows this machine: a VM that VMAPI or NAPI has on the node, and this machine never had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<String>,
}

impl fmt::Display for SecondMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a second machine has this node's uuid: ")?;
        match (&self.vm, &self.serial, self.macs.first()) {
            (Some(vm), ..) => write!(f, "its VM {vm} was never here")?,
            (None, Some(serial), _) => write!(f, "CNAPI knows it with serial number {serial}")?,
            (None, None, Some(mac)) => write!(f, "CNAPI knows it with MAC {mac}")?,
            (None, None, None) => f.write_str("CNAPI knows it with other MACs")?,
        }
        match self.nics.first() {
            Some(nic) => write!(
                f,
                ", and NAPI has its NIC {nic}: nothing is written until an operator says by `claim` that this \
                 machine is the node"
            ),
            None => f.write_str("; nothing is written until NAPI says whether it has NICs of it"),
        }
    }
}

impl SecondMachine {
    /// Compares this machine with what CNAPI and NAPI say of its uuid. Pure.
    pub fn of(ours: &Identity, cnapi: &Identity, nics: &BTreeSet<MacAddr>) -> Option<Self> {
        let nics: BTreeSet<MacAddr> = nics.difference(&ours.macs).copied().collect();
        let is_found = ours.is_other_machine(cnapi) && !nics.is_empty();
        is_found.then(|| Self { nics, ..Self::suspected(ours, cnapi) })
    }

    /// A machine that CNAPI shows, and of which NAPI does not say whether it has NICs.
    fn suspected(ours: &Identity, cnapi: &Identity) -> Self {
        let serial = cnapi.serial.clone().filter(|_| ours.has_other_serial(cnapi));
        Self { serial, macs: cnapi.macs.clone(), nics: BTreeSet::new(), vm: None }
    }

    /// Returns true if only CNAPI has said so far that there is one.
    pub fn is_suspected(&self) -> bool {
        self.nics.is_empty()
    }

    /// Returns true if the evidence names the same machine.
    pub fn is(&self, other: &Self) -> bool {
        (&self.serial, &self.macs) == (&other.serial, &other.macs)
    }

    /// Returns true if the other one is told from a VM alone, and all its NICs are this one's.
    pub fn has(&self, other: &Self) -> bool {
        other.vm.is_some() && other.nics.is_subset(&self.nics)
    }

    /// Returns true if one reading is enough: a machine with other MACs alone may be this one, whose only card was
    /// swapped and of which CNAPI has not heard yet.
    pub fn is_certain(&self) -> bool {
        (self.serial.is_some() || self.vm.is_some()) && !self.is_suspected()
    }
}

/// What the data centre knows of its nodes.
#[derive(Clone, Debug)]
pub struct Census {
    cnapi: Cnapi,
    napi: Napi,
}

impl Census {
    /// CNAPI and NAPI at these URLs, through this transport.
    /// Fails if a URL cannot be used.
    pub fn over(
        transport: &Arc<dyn Transport>,
        agent: &str,
        (cnapi, napi): (&str, &str),
    ) -> Result<Self, Error> {
        let to = |url| Http::with_transport(url, agent, Arc::clone(transport));
        Ok(Self {
            cnapi: Cnapi::new(to(cnapi)?.without_retries()),
            napi: Napi::new(to(napi)?.without_retries()),
        })
    }

    /// Looks for a second machine with the uuid of this one. NAPI is asked only where CNAPI's record is of another.
    /// Each is waited for on its own: a NAPI that hangs takes nothing back of what CNAPI has said.
    /// Fails if CNAPI does not answer: then it is not known.
    pub(super) async fn second_machine(
        &self,
        ours: &Identity,
    ) -> Result<Option<SecondMachine>, Unanswered> {
        let known = match timeout(PATIENCE, self.cnapi.get_server(&ours.uuid)).await? {
            Ok(server) => server.sysinfo.as_ref().and_then(|it| Identity::of(it).ok()),
            Err(error) if error.is_not_found_resource() => None,
            Err(error) => return Err(error.into()),
        };
        let Some(known) = known else { return Ok(None) };
        if !ours.is_other_machine(&known) {
            return Ok(None);
        }
        match timeout(PATIENCE, server_nics(&self.napi, &ours.uuid)).await {
            Ok(Ok(nics)) => Ok(SecondMachine::of(ours, &known, &nics)),
            // Until NAPI answers it may be one.
            Ok(Err(_)) | Err(_) => Ok(Some(SecondMachine::suspected(ours, &known))),
        }
    }

    /// There is a VM on the node that this machine never had: finds out whether it is another machine's. CNAPI may know
    /// this machine, and NAPI has the NICs of both.
    /// Fails if one of them does not answer: then it is not known.
    pub(super) async fn second_machine_with(
        &self,
        vm: &str,
        ours: &Identity,
    ) -> Result<Option<SecondMachine>, Unanswered> {
        timeout(PATIENCE, self.knows(&ours.uuid)).await??;
        let nics = server_nics(&self.napi, &ours.uuid).await?;
        let nics: BTreeSet<MacAddr> = nics.difference(&ours.macs).copied().collect();
        let (macs, vm) = (ours.macs.clone(), Some(vm.to_owned()));
        Ok((!nics.is_empty()).then_some(SecondMachine { serial: None, macs, nics, vm }))
    }

    /// Returns whether CNAPI has a record of this node.
    /// Fails if CNAPI does not answer.
    pub async fn knows(&self, node: &str) -> Result<bool, Error> {
        match self.cnapi.get_server(node).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found_resource() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns the MACs of NAPI's `server` records of this node. One page: a node has few, and a filter that is ignored
/// costs no more.
/// Fails if NAPI does not answer.
pub async fn server_nics(napi: &Napi, node: &str) -> Result<BTreeSet<MacAddr>, Error> {
    let query = NicQuery {
        belongs_to_type: vec![BelongsToType::Server.as_str().to_owned()],
        belongs_to_uuid: vec![node.to_owned()],
        limit: Some(MOST),
        ..NicQuery::default()
    };
    let page = napi.nic_pages(NicList::Nics, &query).try_next().await?;
    let nics = page.into_iter().flat_map(|page| page.nics);
    let ours = nics
        .filter(|nic| nic.belongs_to_type == BelongsToType::Server && nic.belongs_to_uuid == node);
    Ok(ours.map(|nic| nic.mac).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(serial: &str, macs: &[u8]) -> Identity {
        let serial = (!serial.is_empty()).then(|| serial.to_owned());
        Identity { uuid: "u".to_owned(), serial, macs: nics(macs) }
    }

    fn nics(macs: &[u8]) -> BTreeSet<MacAddr> {
        macs.iter().map(|n| MacAddr::new([2, 0, 0, 0, 0, *n])).collect()
    }

    #[test]
    fn a_second_machine_is_one_that_cnapi_and_napi_both_show() {
        let ours = machine("S1", &[1, 2]);
        let found = |cnapi: Identity, of_napi: &[u8]| {
            SecondMachine::of(&ours, &cnapi, &nics(of_napi)).is_some()
        };
        assert!(found(machine("S2", &[7, 8]), &[7, 8]), "another board");
        assert!(found(machine("S1", &[7, 8]), &[1, 2, 7]), "boards of one serial number");
        assert!(found(machine("", &[7, 8]), &[7]), "a board without one");
        assert!(!found(machine("S2", &[7, 8]), &[1, 2]), "NAPI has no NIC that is not here");
        assert!(!found(machine("S1", &[1, 2]), &[1, 2, 7]), "CNAPI knows this machine");
        assert!(!found(machine("", &[]), &[7]), "CNAPI knows nothing of it");
    }

    #[test]
    fn a_nic_card_that_was_swapped_alone_is_no_second_machine() {
        // Before CNAPI has heard of the new card, and after.
        let ours = machine("S1", &[1, 2]);
        for cnapi in [machine("S1", &[1, 9]), machine("S1", &[1, 2]), machine("", &[1, 9])] {
            assert_eq!(SecondMachine::of(&ours, &cnapi, &nics(&[1, 9])), None, "{cnapi:?}");
        }
    }
}
