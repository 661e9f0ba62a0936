// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A volume gets another network, or loses one (RFD 26 §AttachVolumeToNetwork, §DetachVolumeFromNetwork).

use serde::{Deserialize, Serialize};

use super::checks::{Causes, Params, flag, given, text, uuids};
use super::facts::Nic;
use super::refused::Refused;

/// What is done to a volume's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Attach,
    Detach,
}

/// `POST /volumes/:uuid/attachtonetwork` and `detachfromnetwork`.
#[derive(Clone, Debug)]
pub struct ChangeNetwork {
    pub way: Way,
    pub uuid: String,
    pub owner_uuid: Option<String>,
    pub network_uuid: String,
    /// Also where users are cut off; only for a detach.
    pub force: bool,
}

/// Checks the parameters.
pub fn read(params: &Params, way: Way) -> Result<ChangeNetwork, Refused> {
    let mut causes = Causes::default();
    let optionals: &[&str] = match way {
        Way::Attach => &["owner_uuid"],
        Way::Detach => &["owner_uuid", "force"],
    };
    causes.names(params, &["uuid", "network_uuid"], optionals);
    let names = ["uuid", "owner_uuid", "network_uuid"].map(|name| (name, name));
    uuids(&mut causes, params, &names);
    let force = flag(params, "force").unwrap_or_else(|text| {
        causes.add(text);
        false
    });
    causes.done()?;
    Ok(ChangeNetwork {
        way,
        uuid: given(params, "uuid"),
        owner_uuid: text(params, "owner_uuid"),
        network_uuid: given(params, "network_uuid"),
        force,
    })
}

/// Returns each once, in the order in which they come first.
pub fn distinct(networks: Vec<&str>) -> Vec<&str> {
    let mut found = Vec::new();
    for network in networks {
        if !found.contains(&network) {
            found.push(network);
        }
    }
    found
}

/// Returns true if one of the NICs is on the network.
pub fn is_on(nics: &[Nic], network: &str) -> bool {
    nics.iter().any(|nic| nic.network.as_deref() == Some(network))
}

/// Returns true if no NIC would be left.
pub fn is_last(nics: &[Nic], network: &str) -> bool {
    nics.iter().all(|nic| nic.network.as_deref() == Some(network))
}

/// Returns the users, each with its networks, that cannot reach the volume any more once its storage VM, which
/// has these NICs, leaves the network. All use the address of the first NIC; where that one stays, those are
/// cut off that share no other network with the storage VM.
pub fn cut_off(network: &str, nics: &[Nic], users: &[(String, Vec<String>)]) -> Vec<String> {
    let goes = |nic: &Nic| nic.network.as_deref() == Some(network);
    let loses_path = nics.first().is_some_and(goes);
    let stays =
        |own: &String| own != network && nics.iter().any(|nic| nic.network.as_deref() == Some(own));
    let is_cut_off = |(_, own): &&(String, Vec<String>)| loses_path || !own.iter().any(stays);
    users.iter().filter(is_cut_off).map(|(vm, _)| vm.clone()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const U: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

    fn nics(networks: &[&str]) -> Vec<Nic> {
        let nic =
            |network: &&str| Nic { mac: "m".to_owned(), network: Some((*network).to_owned()) };
        networks.iter().map(nic).collect()
    }

    fn users(users: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        users.iter().map(|(vm, own)| ((*vm).to_owned(), owned(own))).collect()
    }

    #[test] // V110
    fn a_change_names_the_volume_the_network_and_for_a_detach_whether_to_force() {
        let of = |value: Value, way| read(value.as_object().unwrap(), way);
        let all = json!({"uuid": U, "network_uuid": U, "owner_uuid": U});
        assert!(of(all, Way::Attach).is_ok_and(|it| !it.force));
        for (force, expected) in
            [(json!(true), true), (json!("true"), true), (json!("false"), false)]
        {
            let all = json!({"uuid": U, "network_uuid": U, "force": force});
            assert_eq!(of(all.clone(), Way::Detach).unwrap().force, expected, "{force}");
            assert!(of(all, Way::Attach).is_err(), "an attach cuts nobody off");
        }
        let upper = U.to_uppercase();
        for bad in [
            json!({"uuid": U}),
            json!({"network_uuid": U}),
            json!({"uuid": U, "network_uuid": upper}),
            json!({"uuid": U, "network_uuid": [U]}),
            json!({"uuid": U, "network_uuid": U, "owner_uuid": ""}),
            json!({"uuid": U, "network_uuid": U, "force": 1}),
            json!({"uuid": U, "network_uuid": U, "network_id": U}),
        ] {
            assert!(of(bad.clone(), Way::Detach).is_err(), "{bad}");
        }
    }

    #[test] // V112
    fn a_vm_that_shares_no_other_network_is_cut_off_and_every_vm_where_the_path_goes() {
        let of_two = nics(&["a", "b"]);
        let all = users(&[
            ("on a", &["a"]),
            ("on b", &["b", "x"]),
            ("on both", &["b", "a"]),
            ("on none", &[]),
        ]);
        assert_eq!(cut_off("b", &of_two, &all), ["on b", "on none"]);
        assert_eq!(cut_off("a", &of_two, &all), ["on a", "on b", "on both", "on none"]);
        assert!(cut_off("b", &of_two, &[]).is_empty());
        assert!(is_last(&nics(&["a", "a"]), "a") && !is_last(&of_two, "a"));
        assert!(is_on(&of_two, "b") && !is_on(&of_two, "x"));
    }

    proptest! {
        #[test] // V112
        fn a_vm_that_is_not_cut_off_still_reaches_the_first_nic_over_a_network_that_stays(
            own in prop::collection::vec(prop::collection::vec(0..4usize, 0..4), 0..5),
            of_vm in prop::collection::vec(0..4usize, 1..4),
            gone in 0..4usize,
        ) {
            let names = ["a", "b", "c", "d"];
            let named = |at: &Vec<usize>| at.iter().map(|at| names[*at].to_owned()).collect();
            let users: Vec<(String, Vec<String>)> =
                own.iter().enumerate().map(|(vm, own)| (format!("v{vm}"), named(own))).collect();
            let nics = nics(&of_vm.iter().map(|at| names[*at]).collect::<Vec<_>>());
            let cut = cut_off(names[gone], &nics, &users);
            for (vm, own) in users.iter().filter(|(vm, _)| !cut.contains(vm)) {
                prop_assert_ne!(nics[0].network.as_deref(), Some(names[gone]), "{}", vm);
                let left = nics.iter().filter(|nic| nic.network.as_deref() != Some(names[gone]));
                let mut left = left.filter_map(|nic| nic.network.as_ref());
                prop_assert!(left.any(|network| own.contains(network)), "{}", vm);
            }
        }
    }
}
