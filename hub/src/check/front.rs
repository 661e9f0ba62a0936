// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Who asks VMAPI past migration-service: connections to VMAPI's zone, which is on one headnode, of neither
//! migration-service nor a node. Counted, not judged: services that never act on a VM may ask as they like.

use std::collections::BTreeSet;
use std::net::IpAddr;

use daemon::command::Program;
use daemon::text::counted;
use sdc_clients::Http;
use sdc_clients::cnapi::{Cnapi, Server, ServerQuery};

use super::finding::Finding;
use super::programs::Programs;
use crate::place::Place;

/// The port of VMAPI, behind its address in netstat's listing.
const PORT: &str = ".80";

pub(super) async fn check(place: &Place, programs: &Programs, cnapi: Option<Http>) -> Finding {
    let unknown = |why: &str| Finding::unknown("B29", why);
    let Some(front) = place.front else {
        return unknown("no configuration names the address of migration-service");
    };
    let role = ["lookup", "-1", "tags.smartdc_role=vmapi", "state=running"];
    let Ok(zone) = programs.printed(Program::Vmadm, &role).await else {
        return unknown("the zone of VMAPI is not on this node");
    };
    let zone = String::from_utf8_lossy(&zone).trim().to_owned();
    let asked = [&zone, "/usr/bin/netstat", "-an", "-f", "inet", "-P", "tcp"];
    let listed = match programs.printed(Program::Zlogin, &asked).await {
        Ok(listed) => String::from_utf8_lossy(&listed).into_owned(),
        Err(why) => return unknown(&why),
    };
    let query = ServerQuery { sysinfo: true, ..ServerQuery::default() };
    let nodes = match cnapi {
        Some(http) => Cnapi::new(http).list_servers(&query).await.ok(),
        None => None,
    };
    let Some(nodes) = nodes else { return unknown("CNAPI does not say which callers are nodes") };
    let known: BTreeSet<IpAddr> =
        nodes.iter().filter_map(Server::admin_ip).chain([front]).collect();
    match callers(&listed).difference(&known).count() {
        0 => Finding::holds("B29", "no caller but nodes and migration-service is connected"),
        count => unknown(&format!(
            "{} past migration-service: zlogin to the zone of VMAPI, netstat -an",
            counted(count, "caller asks VMAPI", "callers ask VMAPI")
        )),
    }
}

/// Returns who is, or was a minute ago, connected to VMAPI.
fn callers(listed: &str) -> BTreeSet<IpAddr> {
    let caller = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, remote, state) = (words.first()?, words.get(1)?, words.last()?);
        let counts = ["ESTABLISHED", "TIME_WAIT", "CLOSE_WAIT"].contains(state);
        let address = remote.rsplit_once('.')?.0.parse().ok()?;
        (counts && local.ends_with(PORT)).then_some(address)
    };
    listed.lines().filter_map(caller).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // B29
    fn callers_are_counted_once_and_connections_of_vmapi_itself_are_none() {
        let listed = "
TCP: IPv4
   Local Address        Remote Address    Swind  Send-Q  Rwind  Recv-Q    State
-------------------- -------------------- ------- ------ ------- ------ -----------
      *.80                 *.*                 0      0  128000      0 LISTEN
10.99.99.27.80       10.99.99.30.51324    128872      0  128872      0 ESTABLISHED
10.99.99.27.80       10.99.99.30.51325    128872      0  128872      0 TIME_WAIT
10.99.99.27.80       10.99.99.7.40001     128872      0  128872      0 ESTABLISHED
10.99.99.27.80       10.99.99.8.40001     128872      0  128872      0 SYN_RCVD
10.99.99.27.41234    10.99.99.17.2020     128872      0  128872      0 ESTABLISHED
";
        let want: BTreeSet<IpAddr> =
            ["10.99.99.30", "10.99.99.7"].iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(callers(listed), want);
    }
}
