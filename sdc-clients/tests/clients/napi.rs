// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! NAPI: the verbs on the wire, the pager, the probe.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pretty_assertions::assert_eq;
use proptest::prelude::*;
use sdc_clients::http::{Request, Response};
use sdc_clients::napi::{
    BelongsToType, FilterSupport, Napi, Nic, NicList, NicQuery, NicState, NicUpdate,
};
use sdc_clients::{Class, Jitter, MacAddr, Precondition};
use serde_json::{Value, json};

use crate::script::{Script, answer, query};

const CN: &str = "564d0000-0000-4000-8000-00000000000c";

fn mac(n: u32) -> MacAddr {
    let [_, b, c, d] = n.to_be_bytes();
    MacAddr::new([0x90, 0xb8, 0xd0, b, c, d])
}

fn record(n: u32) -> Value {
    json!({
        "belongs_to_type": "zone", "belongs_to_uuid": "z", "mac": mac(n).to_string(),
        "owner_uuid": "o", "primary": false, "state": "running", "cn_uuid": CN,
        "created_timestamp": "2026-01-05T10:00:00.000Z",
        "modified_timestamp": "1970-01-01T00:00:00.000Z",
    })
}

/// A page of `total` records, in an order of its own, with a record of the page before.
fn page(request: &Request, total: u32) -> Response {
    let number = |key| query(request, key).map_or(0, |v| v.parse::<u32>().unwrap());
    let (limit, offset) = (number("limit"), number("offset"));
    let end = (offset + limit).min(total);
    let mut numbers: Vec<u32> = (offset..end).collect();
    if let (Some(first), true) = (numbers.first_mut(), offset > 0) {
        // As after a deletion: the page shifts, and a record comes twice.
        *first = offset - 1;
    }
    Jitter::from_seed(u64::from(offset)).shuffle(&mut numbers);
    answer(200, &numbers.into_iter().map(record).collect())
}

// S29
#[tokio::test]
async fn the_pager_finds_every_record_once() {
    // (records, of them found when the first of each later page is one seen before)
    for (total, found, requests) in
        [(0, 0, 1), (1, 1, 1), (999, 999, 1), (1000, 1000, 2), (1001, 1000, 2), (2500, 2498, 3)]
    {
        let script = Script::new(move |request| async move { Ok(page(&request, total)) });
        let query = NicQuery { cn_uuid: vec![CN.into()], ..NicQuery::default() };
        let pages = Napi::new(script.http()).all_nics(NicList::Search, &query).await.unwrap();
        assert_eq!(pages.nics.len(), found, "{total}");
        assert_eq!(pages.requests, requests, "{total}");
        let distinct: BTreeSet<MacAddr> = pages.nics.iter().map(|nic| nic.mac).collect();
        assert_eq!(distinct.len(), found, "{total}");
        let targets = script.targets();
        assert_eq!(targets[0], format!("/search/nics?cn_uuid={CN}&limit=1000&offset=0"));
    }
}

// S29
#[tokio::test(start_paused = true)]
async fn any_failed_page_fails_the_listing() {
    for status in [404u16, 422, 500, 503] {
        let script = Script::new(move |request| async move {
            match query(&request, "offset").as_deref() {
                Some("0") => Ok(page(&request, 2500)),
                _ => Ok(answer(status, &json!({ "message": "no" }))),
            }
        });
        let listed = Napi::new(script.http()).all_nics(NicList::Nics, &NicQuery::default()).await;
        assert_eq!(listed.unwrap_err().status(), Some(status));
    }
}

#[tokio::test]
async fn a_page_that_repeats_is_an_error() {
    let script = Script::new(|_| async { Ok(answer(200, &(0..1000).map(record).collect())) });
    let listed = Napi::new(script.http()).all_nics(NicList::Nics, &NicQuery::default()).await;
    assert_eq!(listed.unwrap_err().class(), Class::Protocol);
    assert_eq!(script.count(), 2);

    let script = Script::new(|_| async { Ok(answer(200, &(0..1001).map(record).collect())) });
    let listed = Napi::new(script.http()).all_nics(NicList::Nics, &NicQuery::default()).await;
    assert_eq!(listed.unwrap_err().class(), Class::Protocol, "more than asked for");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_times_out_is_halved() {
    let script = Script::new(|request| async move {
        if query(&request, "limit").unwrap().parse::<u32>().unwrap() > 250 {
            std::future::pending::<()>().await;
        }
        let (limit, offset) = (query(&request, "limit"), query(&request, "offset"));
        let limit: u32 = limit.unwrap().parse().unwrap();
        let offset: u32 = offset.unwrap().parse().unwrap();
        Ok(answer(200, &(offset..(offset + limit).min(600)).map(record).collect()))
    });
    let pages =
        Napi::new(script.http()).all_nics(NicList::Nics, &NicQuery::default()).await.unwrap();
    assert_eq!(pages.nics.len(), 600);
    assert_eq!(pages.requests, 5);
    let limits: Vec<String> = script
        .log
        .lock()
        .unwrap()
        .iter()
        .map(|(_, r)| format!("{}+{}", query(r, "offset").unwrap(), query(r, "limit").unwrap()))
        .collect();
    assert_eq!(limits, ["0+1000", "0+500", "0+250", "250+250", "500+250"]);
}

#[tokio::test(start_paused = true)]
async fn halving_ends_at_a_hundred() {
    let script = Script::new(|_| std::future::pending());
    let listed = Napi::new(script.http()).all_nics(NicList::Nics, &NicQuery::default()).await;
    assert!(listed.unwrap_err().is_timeout());
    let last = query(&script.log.lock().unwrap().last().unwrap().1, "limit");
    assert_eq!(last.as_deref(), Some("100"));
    assert!(script.times().last().unwrap() < &Duration::from_secs(20 * 60));
}

/// One server that keeps a record and its etag.
fn one_nic() -> (Arc<Script>, Arc<Mutex<Vec<String>>>) {
    let conditions = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&conditions);
    let script = Script::new(move |request: Request| {
        let sent = request.headers.get("if-match").map(|v| v.to_str().unwrap().to_owned());
        seen.lock().unwrap().extend(sent.clone());
        async move {
            let stale = sent.is_some_and(|etag| etag != "0A1B2C3D");
            let mut reply = match request.method.as_str() {
                _ if stale => answer(412, &json!({ "code": "PreconditionFailed", "message": "m" })),
                "DELETE" => Response { body: Default::default(), ..answer(204, &Value::Null) },
                _ => answer(200, &record(1)),
            };
            reply.headers.insert("etag", "0A1B2C3D".parse().unwrap());
            Ok(reply)
        }
    });
    (script, conditions)
}

// S26
#[tokio::test]
async fn etags_go_back_byte_for_byte() {
    let (script, conditions) = one_nic();
    let napi = Napi::new(script.http());
    let nic = napi.get_nic(mac(1)).await.unwrap();
    let etag = nic.etag.clone().unwrap();
    let update = NicUpdate { state: Some(NicState::Running), ..NicUpdate::default() };
    napi.update_nic(mac(1), &update, Precondition::IfMatch(etag.clone())).await.unwrap();
    napi.delete_nic(mac(1), Precondition::IfMatch(etag)).await.unwrap();
    let stale = napi.delete_nic(mac(1), Precondition::IfMatch("u0000000".into())).await;
    assert!(stale.unwrap_err().is_precondition_failed());
    napi.delete_nic(mac(1), Precondition::None).await.unwrap();
    assert_eq!(*conditions.lock().unwrap(), ["0A1B2C3D", "0A1B2C3D", "u0000000"]);
    let log = script.log.lock().unwrap();
    assert!(log.iter().all(|(_, r)| r.url.path() == "/nics/90b8d0000001"), "bare hex in paths");
    assert_eq!(log[1].1.body.as_deref(), Some(br#"{"state":"running"}"#.as_slice()));
}

// S28
#[tokio::test]
async fn a_server_that_does_nothing_is_not_believed() {
    let script = Script::new(|_| async {
        Ok(Response { body: Default::default(), ..answer(200, &Value::Null) })
    });
    let napi = Napi::new(script.http());
    let update = NicUpdate { cn_uuid: Some(CN.into()), ..NicUpdate::default() };
    let error = napi.delete_nic(mac(1), Precondition::None).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol);
    assert!(error.may_have_applied());
    let error = napi.update_nic(mac(1), &update, Precondition::None).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol);
    assert_eq!(napi.get_nic(mac(1)).await.unwrap_err().class(), Class::Protocol);
    assert_eq!(napi.create_nic(&Default::default()).await.unwrap_err().class(), Class::Protocol);
}

#[tokio::test]
async fn another_nic_is_an_error() {
    let (script, _) = one_nic();
    let error = Napi::new(script.http()).get_nic(mac(2)).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol);
}

#[tokio::test]
async fn unknown_words_are_read_but_never_written() {
    let mut odd = record(1);
    odd["state"] = json!("parked");
    odd["belongs_to_type"] = json!("balloon");
    let nic: Nic = serde_json::from_value(odd.clone()).unwrap();
    assert_eq!(nic.state, NicState::Unknown("parked".into()));
    assert_eq!(nic.belongs_to_type.as_str(), "balloon");
    assert_eq!(serde_json::to_value(&nic).unwrap(), odd);

    let script = Script::new(|_| async { Ok(answer(200, &record(1))) });
    let napi = Napi::new(script.http());
    for update in [
        NicUpdate { state: Some(nic.state.clone()), ..NicUpdate::default() },
        NicUpdate { belongs_to_type: Some(nic.belongs_to_type.clone()), ..NicUpdate::default() },
    ] {
        let error = napi.update_nic(mac(1), &update, Precondition::None).await.unwrap_err();
        assert_eq!(error.class(), Class::Request);
    }
    assert_eq!(script.count(), 0);
}

// S30
#[tokio::test]
async fn the_probe_knows_the_eras() {
    fn strict(names: &[&str]) -> Response {
        let element = json!({ "code": "UnknownParameters", "field": names, "message": "?" });
        let body = json!({ "code": "InvalidParameters", "message": "m", "errors": [element] });
        answer(422, &body)
    }
    async fn probe(reply: fn() -> Response) -> Result<FilterSupport, sdc_clients::Error> {
        let script = Script::new(move |_| async move { Ok(reply()) });
        let outcome = Napi::new(script.http().without_retries()).probe_cn_uuid_filter(CN).await;
        let target = script.targets().remove(0);
        assert!(target.starts_with(&format!("/nics?cn_uuid={CN}&limit=1&")), "{target}");
        outcome
    }
    let nonsense = || strict(&["no_such_parameter"]);
    assert_eq!(probe(nonsense).await.unwrap(), FilterSupport::Supported);
    let both = || strict(&["cn_uuid", "no_such_parameter"]);
    assert_eq!(probe(both).await.unwrap(), FilterSupport::Unsupported);
    let lenient = || answer(200, &json!([]));
    assert_eq!(probe(lenient).await.unwrap(), FilterSupport::Lenient);
    assert_eq!(probe(|| answer(503, &json!({}))).await.unwrap_err().status(), Some(503));
    assert_eq!(probe(|| answer(200, &json!({}))).await.unwrap_err().class(), Class::Protocol);
    assert!(probe(|| strict(&["limit"])).await.is_err(), "an answer that explains nothing");
}

#[test]
fn absent_is_false_and_an_empty_update_empty() {
    let nic: Nic = serde_json::from_value(json!({
        "mac": "90B8D0000001", "belongs_to_type": "server", "belongs_to_uuid": CN, "state": "stopped",
    }))
    .unwrap();
    assert!(!nic.primary && nic.cn_uuid.is_none() && nic.created_timestamp.is_none());
    assert_eq!(nic.belongs_to_type, BelongsToType::Server);
    assert!(NicUpdate::default().is_empty());
    assert_eq!(serde_json::to_string(&NicUpdate::default()).unwrap(), "{}");
    let epoch: Nic = serde_json::from_value(record(1)).unwrap();
    assert_eq!(epoch.modified_timestamp, Some(jiff::Timestamp::UNIX_EPOCH));
    for missing in ["mac", "belongs_to_type", "belongs_to_uuid", "state"] {
        let mut value = record(1);
        value.as_object_mut().unwrap().remove(missing);
        assert!(serde_json::from_value::<Nic>(value).is_err(), "{missing}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,6}", inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever a server adds, and whatever it puts into the optional fields, comes back out.
    #[test]
    fn nics_survive_the_round_trip(
        extra in prop::collection::vec(("[a-z_]{1,12}", any_json()), 0..6),
        odd in prop::collection::vec((prop::sample::select(vec![
            "owner_uuid", "cn_uuid", "ip", "network_uuid", "nic_tag",
            "created_timestamp", "modified_timestamp", "primary",
        ]), any_json()), 0..4),
        micros in 0i64..4_102_444_800_000_000,
    ) {
        let mut value = record(7);
        let map = value.as_object_mut().unwrap();
        map.insert("modified_timestamp".into(), jiff::Timestamp::from_microsecond(micros).unwrap().to_string().into());
        for (key, value) in extra.into_iter().chain(odd.into_iter().map(|(k, v)| (k.to_owned(), v))) {
            if !matches!(key.as_str(), "mac" | "state" | "belongs_to_type" | "belongs_to_uuid") {
                map.insert(key, value);
            }
        }
        let nic: Nic = serde_json::from_value(value.clone()).unwrap();
        let printed = serde_json::to_value(&nic).unwrap();
        prop_assert_eq!(&printed, &value);
        let again: Nic = serde_json::from_value(printed).unwrap();
        prop_assert_eq!(again, nic);
    }
}

#[tokio::test]
async fn other_verbs_have_napis_routes() {
    let script = Script::new(|request| async move {
        Ok(match request.url.path() {
            "/search/ips" => answer(200, &json!([{ "ip": "10.0.0.1", "network_uuid": "n" }])),
            "/networks/admin/nics" => answer(
                200,
                &json!({ "mac": "90:b8:d0:00:00:01", "primary": false, "state": "running",
                    "belongs_to_type": "zone", "belongs_to_uuid": "u", "owner_uuid": "o" }),
            ),
            "/servers/s" => {
                answer(200, &json!({ "uuid": "s", "status": "unknown", "sysinfo": {} }))
            }
            _ => answer(200, &json!([])),
        })
    });
    let napi = Napi::new(script.http());
    let ips = napi.search_ips("10.0.0.1".parse().unwrap()).await.unwrap();
    assert_eq!(ips[0]["network_uuid"], "n");
    let nic = json!({ "belongs_to_type": "zone", "belongs_to_uuid": "u", "owner_uuid": "o" });
    napi.provision_nic("admin", nic.as_object().unwrap()).await.unwrap();
    let cnapi = sdc_clients::cnapi::Cnapi::new(script.http());
    let server = cnapi.get_server("s").await.unwrap();
    assert_eq!(server.status.as_deref(), Some("unknown"));
    assert!(server.sysinfo.is_some());
    assert_eq!(cnapi.get_server("t").await.unwrap_err().class(), Class::Protocol);
    assert_eq!(
        script.targets(),
        ["/search/ips?ip=10.0.0.1", "/networks/admin/nics", "/servers/s", "/servers/t"]
    );
}

#[tokio::test]
async fn pages_come_one_by_one_and_the_last_says_so() {
    use futures_util::StreamExt as _;
    for fails in [false, true] {
        let script = Script::new(move |request| async move {
            let offset: u64 = query(&request, "offset").unwrap().parse().unwrap();
            if fails && offset == 2000 {
                return Ok(answer(422, &json!({ "code": "InvalidParameters" })));
            }
            let page: Value = (offset..(offset + 1000).min(2500))
                .map(|n| json!({ "mac": format!("{n:012x}"), "belongs_to_type": "zone",
                    "belongs_to_uuid": "u", "owner_uuid": "o", "primary": false, "state": "running" }))
                .collect();
            Ok(answer(200, &page))
        });
        let napi = Napi::new(script.http());
        let mut pages = napi.nic_pages(NicList::Nics, &NicQuery::default());
        assert_eq!(script.count(), 0, "nothing is asked before the first read");
        let mut seen = Vec::new();
        while let Some(page) = pages.next().await {
            seen.push(page.map(|p| (p.nics.len(), p.last)).map_err(|e| e.class()));
        }
        let end = if fails { Err(Class::Invalid) } else { Ok((500, true)) };
        assert_eq!(seen, [Ok((1000, false)), Ok((1000, false)), end]);
        assert_eq!(script.count(), 3);
    }
}
