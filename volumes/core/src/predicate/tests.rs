// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use serde_json::json;

use super::*;
use crate::volume::NewVolume;

const NETWORK: &str = "8036d58d-7821-4ae3-a752-15be1d92344c";
const OWNER: &str = "644810da-6ce1-40a9-93db-c23dfb772fd2";

fn volume() -> Volume {
    Volume::new(NewVolume {
        labels: Some(json!({"a": "b=c"})),
        name: "alpha".to_owned(),
        owner_uuid: OWNER.to_owned(),
        size: 20480.0,
        networks: vec![NETWORK.to_owned()],
        ..NewVolume::sample()
    })
}

fn holds(predicate: Value, volume: &Volume) -> bool {
    let text = json!(predicate.to_string());
    Predicate::read(&text, Fields::All).unwrap().unwrap().holds(volume)
}

#[test] // V8
fn comparisons_networks_and_dangling_work_wherever_they_stand() {
    let mut volume = volume();
    for (operator, limit, expected) in [
        ("lt", 20480, false),
        ("lt", 20481, true),
        ("le", 20480, true),
        ("gt", 20480, false),
        ("gt", 20479, true),
        ("ge", 20481, false),
        ("ne", 20480, false),
    ] {
        assert_eq!(holds(json!({operator: ["size", limit]}), &volume), expected, "{operator}");
    }
    assert!(holds(json!({"eq": ["network", NETWORK]}), &volume));
    let twice = json!({"or": [{"eq": ["dangling", false]}, {"eq": ["dangling", false]}]});
    assert!(!holds(twice.clone(), &volume));
    volume.add_ref("a");
    assert!(holds(twice, &volume));
}

#[test] // V116
fn owners_packages_and_tags_are_compared() {
    let mut volume = volume();
    let is =
        |field: &str, value: &str, volume: &Volume| holds(json!({"eq": [field, value]}), volume);
    assert!(is("owner_uuid", OWNER, &volume) && !is("owner_uuid", NETWORK, &volume));
    assert!(!is("billing_id", NETWORK, &volume), "it has no package");
    volume.set_billing_id(NETWORK);
    assert!(is("billing_id", NETWORK, &volume));
    assert!(is("tags", "a=b=c", &volume) && !is("tags", "a=b", &volume));
    assert!(!is("tags", "b=a", &volume));
    assert!(holds(json!({"ne": ["tags", "a=x"]}), &volume));
    for (field, value) in [("tags", "a"), ("tags", "=b"), ("billing_id", "x")] {
        let text = json!(json!({"eq": [field, value]}).to_string());
        assert!(Predicate::read(&text, Fields::All).is_err(), "{field} {value}");
    }
}

fn refusal(predicate: Value) -> String {
    let refused = Predicate::read(&json!(predicate.to_string()), Fields::Deployed).unwrap_err();
    match refused {
        Cause::Predicate(text) | Cause::Parameter(text) => text,
    }
}

#[test] // V8
fn the_form_is_checked_before_the_fields_and_the_fields_before_the_values() {
    for (predicate, said) in [
        (json!({"eq": null}), r#"predicate { eq: null }: missing key "eq""#),
        (json!({"or": null}), r#"predicate { or: null }: expected "or" in logical expression"#),
        (
            json!({"eq": ["name", null]}),
            r#"predicate { eq: [ 'name', null ] }: field "name" is not a string, number, or boolean"#,
        ),
        (json!({"ne": [7, "x"]}), r#"predicate { ne: [ 7, 'x' ] }: field "ne" is not a string"#),
        (
            json!({"and": [{"eq": ["nope", "x"]}, {"eq": ["name", {}]}]}),
            r#"predicate { eq: [ 'name', {} ] }: field "name" is not a string, number, or boolean"#,
        ),
        (
            json!({"lt": ["name", 5]}),
            r#"predicate { lt: [ 'name', 5 ] }: field "name" value ("5") expected "string", but got "number""#,
        ),
        (
            json!({"le": ["size", "5"]}),
            r#"predicate { le: [ 'size', '5' ] }: operator "le" cannot be applied to fields of type "string""#,
        ),
        (
            json!({"or": [{"eq": ["size", -1]}, {"eq": ["state", "a"]}, {"eq": ["size", -2]}]}),
            "Invalid values in predicate: \
             Error: Volume size: \"-1\" is not a valid volume size. Size must be a number > 0,\
             Error: Volume size: \"-2\" is not a valid volume size. Size must be a number > 0,\
             Error: Volume state: a is invalid",
        ),
    ] {
        assert_eq!(refusal(predicate), said);
    }
    assert!(holds(json!({"and": [{}, {"eq": ["name", "alpha"]}]}), &volume()));
}

#[test] // V115
fn a_volume_that_rolls_back_is_found_by_its_state() {
    let text = json!(json!({"eq": ["state", "rolling_back"]}).to_string());
    assert!(Predicate::read(&text, Fields::All).is_ok());
    assert!(Predicate::read(&text, Fields::Deployed).is_err());
}

#[test]
fn depth_has_a_bound() {
    let leaf = json!({"eq": ["dangling", true]});
    let deep = (0..40).fold(leaf.clone(), |inner, _| json!({"and": [inner, leaf]}));
    assert!(Predicate::read(&json!(deep.to_string()), Fields::All).is_err());
}
