// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the node asks of the honest node's agent.

use http::Method;
use migration_core::intent::End;
use migration_core::protocol::{
    About, Clear, Datasets, Gone, Observe, Offer, Order, Properties, Rate, Received, State, What,
};
use sdc_clients::http::Call;
use sdc_clients::vminfod::VmFields as _;
use serde_json::{Value, json};
use testbed::moving::subject::VM;
use uuid::Uuid;

use super::super::common::centre::Centre;
use super::node::{COPY, Compromised, MIGRATION, about, root};
use super::rows::{DONE, FOREIGN, NOT_ALLOWED, NOT_RECEIVING, Rows, told};

/// What only the services may ask.
pub async fn of_services(centre: &Centre, node: &Compromised, rows: &mut Rows) {
    let vm: Uuid = VM.parse().unwrap();
    let about = About { migration: MIGRATION, revision: 1, nonce: None, vm, end: End::Source };
    let order = |order: What| json!(Order { about, wait_ms: 1, order, instead: None });
    let update = json!({"alias": "taken"}).as_object().cloned().unwrap();
    let of_vm = |rest: &[&'static str]| [&["vms", VM], rest].concat();
    let before = node.status().await;
    let (get, put, post, delete) = (Method::GET, Method::PUT, Method::POST, Method::DELETE);
    for (name, method, path, body) in [
        ("stop", &post, vec!["orders"], order(What::Stop)),
        ("boot", &post, vec!["orders"], order(What::Boot)),
        ("hide", &post, vec!["orders"], order(What::Hide)),
        ("show", &post, vec!["orders"], order(What::Show)),
        ("delete", &post, vec!["orders"], order(What::Delete)),
        ("over", &post, vec!["orders"], order(What::Over)),
        ("roll back", &post, vec!["orders"], order(What::Settle)),
        (
            "send the disks",
            &post,
            vec!["orders"],
            order(What::Send { number: 1, to: node.cn, mbps: None }),
        ),
        ("update", &post, vec!["orders"], order(What::BringOver { update, then: Vec::new() })),
        ("observe", &post, vec!["observe"], json!(Observe { about, brief: false })),
        ("limit the streams", &put, vec!["rate"], json!(Rate { mbps: Some(1) })),
        ("what the node is", &get, vec!["node"], Value::Null),
        ("which migrations are open", &get, vec!["migrations"], Value::Null),
        ("which copies there are", &get, vec!["copies"], Value::Null),
        ("an object", &get, of_vm(&[]), Value::Null),
        ("a size", &get, of_vm(&["size"]), Value::Null),
        ("datasets", &get, of_vm(&["datasets"]), Value::Null),
        ("snapshots", &get, of_vm(&["snapshots"]), Value::Null),
        ("make a snapshot", &put, of_vm(&["snapshots", "volsnap-a"]), Value::Null),
        ("destroy a snapshot", &delete, of_vm(&["snapshots", "volsnap-a"]), Value::Null),
        ("roll a volume back", &post, of_vm(&["snapshots", "volsnap-a", "rollback"]), Value::Null),
    ] {
        let call = Call::new(method.clone(), &path);
        let call = if body.is_null() { call } else { call.json(&body) };
        rows.row(name, NOT_ALLOWED, &told(&node.agent().execute(call).await));
    }
    let after = node.status().await;
    assert_eq!((&after["migrations"], &after["mbps"]), (&before["migrations"], &before["mbps"]));
    let vm = centre.lab.client().vm(VM, true).await.unwrap();
    assert!(vm.state() == Some("running") && !vm.is_hidden() && vm["alias"] != "taken");
}

/// What an agent may ask whom the order of the service names.
pub async fn of_agents(centre: &Centre, node: &Compromised, rows: &mut Rows) {
    let (root, theirs) = (root(), format!("zones/{VM}"));
    let received = |about: About, datasets: &[&String], origins: &[&str]| Received {
        about,
        datasets: datasets.iter().map(|it| (*it).clone()).collect(),
        origins: origins.iter().map(|it| (*it).to_owned()).collect(),
        whole: None,
    };
    let clear =
        |dataset: &String, gone: Gone| Clear { about: about(9), dataset: dataset.clone(), gone };
    let offer = |dataset: &str, image: Option<Uuid>, properties: Properties| Offer {
        about: about(9),
        dataset: dataset.to_owned(),
        image,
        properties,
        is_bare: false,
    };
    let none = Properties::new;
    let plain = offer(&root, None, none());

    rows.row(
        "an offer that no order names",
        NOT_RECEIVING,
        &told(&node.ask("streams", &plain).await),
    );
    let asked = received(about(9), &[&root], &[]);
    rows.row("a question without order", NOT_RECEIVING, &told(&node.ask("received", &asked).await));
    let gone = clear(&root, Gone::Dataset);
    rows.row("a removal without order", NOT_RECEIVING, &told(&node.ask("clear", &gone).await));

    assert_eq!(
        node.ordered(about(8), What::Receive { from: node.third, image: None }).await.state,
        State::Done
    );
    rows.row("an offer for another node", NOT_ALLOWED, &told(&node.ask("streams", &plain).await));
    rows.row("a question of another node", NOT_ALLOWED, &told(&node.ask("received", &asked).await));
    rows.row("a removal of another node", NOT_ALLOWED, &told(&node.ask("clear", &gone).await));

    assert_eq!(
        node.ordered(about(9), What::Receive { from: node.cn, image: None }).await.state,
        State::Done
    );
    let (vm, other) = (VM.parse().unwrap(), Uuid::from_u128(7));
    for (name, about, want) in [
        ("an older revision", about(8), "409 OldOrder"),
        ("another VM", About { vm, ..about(9) }, "409 OtherCopy"),
        ("the other copy", About { end: End::Source, ..about(9) }, "409 OtherCopy"),
        ("another migration", About { migration: other, ..about(9) }, NOT_RECEIVING),
        ("a revision of its own", about(u64::MAX), DONE),
    ] {
        let asked = received(about, &[&root], &[]);
        rows.row(name, want, &told(&node.ask("received", &asked).await));
    }
    // Whatever it said, the service is heard.
    assert_eq!(
        node.ordered(about(9), What::Receive { from: node.cn, image: None }).await.state,
        State::Done
    );

    let asked = received(about(9), &[&theirs], &[]);
    rows.row("the datasets of another VM", FOREIGN, &told(&node.ask("received", &asked).await));
    let asked = received(about(9), &[], &[&format!("{theirs}@vmsnap-a")]);
    centre.lab.node().zfs(|all| all.snapshot(&asked.origins[0], false)).unwrap();
    let there: Datasets = node.ask("received", &asked).await.unwrap().json("datasets").unwrap();
    rows.row("the snapshots of another VM", "0", &there.side.snapshots.len().to_string());
    for (name, gone) in [
        ("the end of another VM", clear(&theirs, Gone::Dataset)),
        ("the end of another VM's snapshots", clear(&theirs, Gone::Snapshots(vec!["a".into()]))),
        ("the end of the pool", clear(&"zones".to_owned(), Gone::Dataset)),
    ] {
        rows.row(name, FOREIGN, &told(&node.ask("clear", &gone).await));
    }
    let mountpoint = [("mountpoint".to_owned(), "/usr".to_owned())].into();
    let (of_vm, fresh) = (Some(vm), Some(Uuid::from_u128(0x1a6e)));
    for (name, offer) in [
        ("a stream into another VM", offer(&theirs, None, none())),
        ("a stream into the pool", offer("zones", None, none())),
        ("properties of another VM", offer(&root, None, [(theirs.clone(), mountpoint)].into())),
        (
            "an image that no order names",
            offer(&format!("zones/{}", fresh.unwrap()), fresh, none()),
        ),
        ("an image into another VM", offer(&theirs, of_vm, none())),
        ("an image under another name", offer(&theirs, fresh, none())),
    ] {
        rows.row(name, FOREIGN, &told(&node.ask("streams", &offer).await));
    }
    assert!(centre.lab.client().vm(&COPY.to_string(), true).await.unwrap().is_hidden());
}
