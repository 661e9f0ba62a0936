// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Volume packages, filters, tags, and what the operator chooses, over HTTP.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::asked::{COMPUTE_10G, COMPUTE_20G, NETWORK, OTHER, OWNER, SECOND, World, nics};

fn package(more: Value) -> Value {
    let mut body = json!({"type": "tritonnfs", "size": 10240, "compute_package_uuid": COMPUTE_10G,
        "description": "10 GiB", "active": true});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    body
}

async fn made(world: &World, more: Value) -> Value {
    let (status, made) = world.post("/volumepackages", package(more)).await;
    assert_eq!(status, 201, "{made}");
    made
}

fn code(answer: (u16, Value)) -> (u16, String) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default().to_owned())
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test(start_paused = true)] // V104
async fn as_deployed_there_is_nothing_of_the_rfd() {
    let world = World::start(false).await;
    let (volume, _) = world.volume("name", &[NETWORK]).await;
    for path in ["/volumepackages".to_owned(), "/volumepackages/nfs1-10g".to_owned()] {
        assert_eq!(code(world.get(&path).await), refusal(404, "ResourceNotFound"), "{path}");
    }
    for verb in ["attachtonetwork", "detachfromnetwork"] {
        let path = format!("/volumes/{volume}/{verb}");
        let asked = world.post(&path, json!({"network_uuid": SECOND})).await;
        assert_eq!(code(asked), refusal(404, "ResourceNotFound"), "{path}");
    }
    for name in ["package", "server_uuid", "ip_address", "tags"] {
        let (status, said) = world.create("other", json!({name: "x"})).await;
        let message = said["message"].as_str().unwrap();
        assert_eq!(status, 409);
        assert!(message.ends_with(&format!("invalid parameter: {name}")), "{message}");
    }
    let refused = refusal(409, "ValidationError");
    let path = format!("/volumes/{volume}");
    assert_eq!(code(world.post(&path, json!({"tags": {"a": "b"}})).await), refused);
    for query in ["vm_uuid=x", "billing_id=x", "tag.a=b"] {
        assert_eq!(code(world.get(&format!("/volumes?{query}")).await), refused, "{query}");
    }
}

#[tokio::test(start_paused = true)] // V100 V101
async fn a_package_is_found_by_its_uuid_and_by_its_name_and_stays_for_ever() {
    let world = World::start(true).await;
    let first = made(&world, json!({})).await;
    let second = made(
        &world,
        json!({"name": "nfs2-ssd-20g", "size": 20480,
        "compute_package_uuid": COMPUTE_20G}),
    )
    .await;
    assert_eq!((&first["name"], &first["size"]), (&json!("nfs1-10g"), &json!(10240)));
    assert_eq!(world.get("/volumepackages").await, (200, json!([first, second])));
    assert_eq!(world.get("/volumepackages?type=tritonnfs").await.0, 200);
    for package in [&first, &second] {
        for key in ["uuid", "name"] {
            let path = format!("/volumepackages/{}", package[key].as_str().unwrap());
            assert_eq!(world.get(&path).await, (200, package.clone()));
            assert_eq!(world.ask("DELETE", &path, Value::Null).await.0, 405, "never deleted");
        }
    }
    let unknown =
        ["/volumepackages/nfs9-10g", &format!("/volumepackages/{OTHER}")[..]].map(str::to_owned);
    for path in unknown {
        assert_eq!(code(world.get(&path).await), refusal(404, "VolumePackageNotFound"), "{path}");
    }
    let invalid = refusal(409, "ValidationError");
    assert_eq!(code(world.get("/volumepackages/Nope*").await), invalid);
    // PAPI does not have it, or in another size.
    for (compute, size) in [(OTHER, 10240), (COMPUTE_10G, 20480)] {
        let other =
            package(json!({"name": "nfs9-x", "size": size, "compute_package_uuid": compute}));
        assert_eq!(code(world.post("/volumepackages", other).await), invalid, "{compute}");
    }
    assert_eq!(world.get("/volumepackages").await.1.as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)] // V101
async fn of_many_packages_of_one_name_one_is_made() {
    let world = World::start(true).await;
    let all = (0..20).map(|_| world.post("/volumepackages", package(json!({}))));
    let mut all: Vec<_> = join_all(all).await.into_iter().map(code).collect();
    all.sort();
    assert_eq!(all.remove(0).0, 201);
    assert!(all.iter().all(|it| *it == refusal(409, "VolumePackageAlreadyExists")), "{all:?}");
}

#[tokio::test(start_paused = true)] // V102
async fn users_do_not_see_what_is_inactive_or_another_users() {
    let world = World::start(true).await;
    let own = made(&world, json!({"owner_uuids": [OWNER]})).await;
    let path = "/volumepackages/nfs1-10g";
    let as_user = |path: &str, user: &str| format!("{path}?owner_uuid={user}");
    let absent = refusal(404, "VolumePackageNotFound");
    assert_eq!(world.get(&as_user(path, OWNER)).await, (200, own.clone()));
    assert_eq!(code(world.get(&as_user(path, OTHER)).await), absent);
    assert_eq!(world.get(&as_user("/volumepackages", OTHER)).await, (200, json!([])));
    let (status, off) = world.post(path, json!({"active": false})).await;
    assert_eq!((status, &off["active"], &off["uuid"]), (200, &json!(false), &own["uuid"]));
    assert_eq!(code(world.get(&as_user(path, OWNER)).await), absent);
    assert_eq!(world.get(&as_user("/volumepackages", OWNER)).await, (200, json!([])));
    assert_eq!(code(world.create("name", json!({"package": "nfs1-10g"})).await), absent);
    // The operator sees it, and turns it on again.
    assert_eq!(world.get(path).await, (200, off.clone()));
    assert_eq!(world.get("/volumepackages").await, (200, json!([off])));
    let by_uuid = format!("/volumepackages/{}", own["uuid"].as_str().unwrap());
    assert_eq!(world.post(&by_uuid, json!({"active": true})).await, (200, own));
    assert_eq!(world.create("name", json!({"package": "nfs1-10g"})).await.0, 201);
}

#[tokio::test(start_paused = true)] // V103
async fn a_volume_has_the_size_of_its_package_and_is_billed_by_it() {
    let world = World::start(true).await;
    let package = made(&world, json!({"size": 20480, "compute_package_uuid": COMPUTE_20G})).await;
    for (name, key) in [("one", &package["name"]), ("two", &package["uuid"])] {
        world.data_centre.take_calls();
        let (status, volume) = world.create(name, json!({"package": key})).await;
        assert_eq!((status, &volume["size"]), (201, &json!(20480)), "{volume}");
        assert_eq!(volume["billing_id"], package["uuid"]);
        let [order] = &world.orders()[..] else { panic!() };
        assert_eq!(order.body.as_ref().unwrap()["billing_id"], COMPUTE_20G);
        let path = format!("/volumes?billing_id={}", package["uuid"].as_str().unwrap());
        assert!(world.get(&path).await.1.as_array().unwrap().contains(&volume));
    }
    assert_eq!(world.create("three", json!({"package": "nfs1-20g", "size": 20480})).await.0, 201);
    let refused = refusal(409, "ValidationError");
    let other = json!({"package": "nfs1-20g", "size": 10240});
    assert_eq!(code(world.create("four", other).await), refused);
    let absent = refusal(404, "VolumePackageNotFound");
    assert_eq!(code(world.create("four", json!({"package": "nfs1-10g"})).await), absent);
    assert_eq!(world.get("/volumes?name=four").await.1, json!([]), "no record is left");
    assert_eq!(world.data_centre.tickets(), 0);
    // Without a package all is as ever.
    let (_, plain) = world.create("four", json!({"size": 20480})).await;
    assert!(plain.get("billing_id").is_none());
}

#[tokio::test(start_paused = true)] // V115 V116 V117
async fn volumes_are_found_by_storage_vm_package_owner_and_tags() {
    let world = World::start(true).await;
    let (_, red) = world.create("red", json!({"tags": {"colour": "red", "a.b": "c"}})).await;
    let (_, blue) = world.create("blue", json!({"labels": {"colour": "blue"}})).await;
    let names = |answer: (u16, Value)| {
        let names =
            answer.1.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let vm = red["vm_uuid"].as_str().unwrap();
    for (query, expected) in [
        (format!("vm_uuid={vm}"), vec!["red"]),
        (format!("vm_uuid={OTHER}"), vec![]),
        (format!("billing_id={OTHER}"), vec![]),
        ("tag.colour=red".to_owned(), vec!["red"]),
        ("tag.a.b=c".to_owned(), vec!["red"]),
        ("tag.colour=red&tag.a.b=d".to_owned(), vec![]),
        ("tag.colour=".to_owned(), vec![]),
        ("tag.nope=red".to_owned(), vec![]),
    ] {
        assert_eq!(names(world.get(&format!("/volumes?{query}")).await), expected, "{query}");
    }
    for (predicate, expected) in [
        (json!({"eq": ["tags", "colour=blue"]}), vec!["blue"]),
        (json!({"ne": ["tags", "colour=blue"]}), vec!["red"]),
        (
            json!({"or": [{"eq": ["tags", "colour=blue"]}, {"eq": ["tags", "a.b=c"]}]}),
            vec!["blue", "red"],
        ),
        (json!({"eq": ["owner_uuid", OWNER]}), vec!["blue", "red"]),
        (json!({"eq": ["owner_uuid", OTHER]}), vec![]),
        (json!({"ne": ["billing_id", OTHER]}), vec!["blue", "red"]),
    ] {
        let text: String = url_text(&predicate.to_string());
        assert_eq!(
            names(world.get(&format!("/volumes?predicate={text}")).await),
            expected,
            "{predicate}"
        );
    }
    assert_eq!(world.get("/volumes?tag.=x").await.0, 409);
    assert_eq!(blue["labels"], json!({"colour": "blue"}));
}

fn url_text(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test(start_paused = true)] // V119
async fn tags_are_changed_on_the_storage_vm_and_stay() {
    let world = World::start(true).await;
    let (volume, vm) = world.volume("name", &[NETWORK]).await;
    let path = format!("/volumes/{volume}");
    world.orders();
    let (status, shown) = world.post(&path, json!({"tags": {"a": "b"}})).await;
    assert_eq!((status, &shown["labels"]), (200, &json!({"a": "b"})));
    let [order] = &world.orders()[..] else { panic!() };
    assert_eq!((&*order.method, &*order.url), ("PUT", &*format!("/vms/{vm}/tags")));
    assert_eq!(order.body, Some(json!({"a": "b"})));
    // VMAPI's job has set them: what is heard of the VM says the same.
    world.vm(&vm, json!({"tags": {"a": "b"}}));
    world.service.follower.follow(&vm, None).await.unwrap();
    assert_eq!(world.get(&path).await.1["labels"], json!({"a": "b"}));
    assert_eq!(world.post(&path, json!({"tags": {}, "name": "other"})).await.1["name"], "other");
    assert_eq!(world.orders()[0].method, "DELETE", "no tags at all");
    assert_eq!(world.get(&path).await.1["labels"], json!({}));
    // Another owner's, and VMAPI's refusal: nothing changes.
    let foreign = json!({"tags": {"a": "c"}, "owner_uuid": OTHER});
    assert_eq!(code(world.post(&path, foreign).await), refusal(404, "VolumeNotFound"));
    let no =
        json!({"status": 409, "times": 1, "body": {"code": "ValidationFailed", "message": "no"}});
    world.data_centre.behave(json!({"vm_order": [no]}).as_object().unwrap());
    let refused = world.post(&path, json!({"tags": {"a": "c"}})).await;
    assert_eq!(code(refused), refusal(409, "ValidationFailed"));
    assert_eq!(world.get(&path).await.1["labels"], json!({}));
}

#[tokio::test(start_paused = true)] // V118
async fn the_operator_chooses_the_node_and_the_address() {
    let world = World::start(true).await;
    let more =
        json!({"server_uuid": OTHER, "ip_address": "10.0.0.7", "networks": [NETWORK, SECOND]});
    let (status, volume) = world.create("name", more).await;
    assert_eq!(status, 201, "{volume}");
    assert_eq!(volume["networks"], json!([NETWORK, SECOND]));
    let orders = world.orders();
    let body = orders[0].body.as_ref().unwrap();
    assert_eq!(body["server_uuid"], OTHER);
    assert_eq!(body["networks"][0]["ipv4_ips"], json!(["10.0.0.7"]));
    assert_eq!(body["networks"][1]["ipv4_uuid"], SECOND);
    let vm = volume["vm_uuid"].as_str().unwrap();
    let mut found = nics(&[NETWORK]);
    found[0]["ip"] = json!("10.0.0.7");
    world.vm(vm, json!({"state": "running", "nics": found, "zonepath": "/zones/z"}));
    world.service.follower.follow(vm, None).await.unwrap();
    let path = format!("/volumes/{}", volume["uuid"].as_str().unwrap());
    assert_eq!(world.get(&path).await.1["filesystem_path"], "10.0.0.7:/zones/z/data");
}

#[tokio::test(start_paused = true)] // V2
async fn rules_of_affinity_reach_vmapi_as_objects_that_placement_takes() {
    let world = World::start(false).await;
    let rule = json!({"key": "role", "operator": "!=", "value": "db", "isSoft": false,
        "valueType": "exact"});
    for (at, given) in [json!([rule]), json!(["role!=db"])].into_iter().enumerate() {
        let (status, made) = world.create(&format!("name{at}"), json!({"affinity": given})).await;
        assert_eq!(status, 201, "{given}: {made}");
        let orders = world.orders();
        assert_eq!(orders[0].body.as_ref().unwrap()["affinity"], json!([rule]), "{given}");
    }
    for bad in [json!("role!=db"), json!(["role"]), json!([{"key": "role"}]), json!([7])] {
        let (status, said) = world.create("name", json!({"affinity": bad})).await;
        assert_eq!((status, &said["code"]), (409, &json!("ValidationError")), "{bad}");
        assert!(world.orders().is_empty(), "{bad}");
    }
    assert_eq!(
        world.create("name", json!({})).await.0,
        201,
        "no refusal has left a name or a ticket"
    );
}
