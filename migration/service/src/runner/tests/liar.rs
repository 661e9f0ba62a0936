// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A node that lies: each field of each answer of its agent is replaced, one at a time, by what another node, record or
//! time would say. The VM of the other node, which migrates to it, stays as it is.

use std::sync::Arc;
use std::time::Duration;

use migration_core::intent::End;
use sdc_clients::Http;
use sdc_clients::http::Call;
use sdc_clients::identity::Identity;
use serde_json::{Value, json};
use store::Store;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::node::{ONE, TWO, VM};
use super::routed::Routed;
use super::story::beside;
use super::tongue::{Lie, Said, Tongue};
use super::words::{answered, page};
use super::world::World;
use crate::front::agent_routes;

/// What a service does when it begins, and a sync with its attempts.
const WATCHED: Duration = Duration::from_secs(75);

/// What another node, record or time would say instead.
fn others(truth: &Value) -> Vec<Value> {
    let nodes = [json!(ONE), json!(TWO), json!(VM), json!(Uuid::from_u128(0xcccc))];
    let mut all = match truth {
        Value::Bool(truth) => vec![json!(!truth)],
        Value::Number(_) => vec![json!(0), json!(1_000_000), json!(1_u64 << 52), json!(u64::MAX)],
        Value::String(text) if text.parse::<Uuid>().is_ok() => nodes.to_vec(),
        Value::String(_) => ["source", "target", "running", "failed", "2036-01-01T00:00:00.000Z"]
            .map(|text| json!(text))
            .to_vec(),
        Value::Null => {
            let power = json!({"running": false, "autoboot": false});
            nodes.into_iter().chain([json!(true), json!(1_000_000), power]).collect()
        }
        Value::Array(_) | Value::Object(_) => vec![json!([]), json!({})],
    };
    all.push(Value::Null);
    all.retain(|it| it != truth);
    all
}

/// Tells the story with a lie, if any; returns what was said, what is wrong, and how long the other node's agent waited
/// for its answer.
async fn told(lie: Option<Lie>) -> (Said, Vec<String>, Duration) {
    let world = World::new(true);
    beside(&world, async { world.synced().await }).await;
    let record = world.record().await.unwrap();
    let orders = {
        let mut centre = world.centre();
        centre.tongues.insert(TWO, Tongue { lie, ..Tongue::default() });
        centre.hosts[&ONE].orders.len()
    };
    let mut waited = Duration::ZERO;
    // The service starts again, and then with a store that has lost all.
    let open = format!("{}.{}.{TWO}", record.id, record.intent.revision);
    let empty = world.with_store(Store::in_memory().unwrap());
    let mut wrong = Vec::new();
    for world in [&world, &empty] {
        beside(world, async {
            let _may_be_refused = world.act("sync").await;
            sleep(WATCHED).await;
            let began = Instant::now();
            let answer = answered(world, ONE, &open).await;
            waited = waited.max(began.elapsed());
            if answer["replaced"] != json!([]) {
                wrong.push(format!("the copy was replaced: {answer}"));
            }
            page(world, "/status").await;
            sleep(WATCHED).await;
        })
        .await;
    }
    wrong.extend(judged(&world, orders));
    let said = world.centre().tongues[&TWO].said.clone();
    (said, wrong, waited)
}

/// What is wrong with the VM of the node that does not lie.
fn judged(world: &Arc<World>, orders: usize) -> Vec<String> {
    let centre = world.centre();
    let host = &centre.hosts[&ONE];
    let mut wrong = Vec::new();
    let is_well =
        |copy: &migration_core::machine::Copy| copy.running && copy.autoboot && !copy.hidden;
    if !host.copy.as_ref().is_some_and(is_well) {
        wrong.push(format!("the VM is {:?}", host.copy));
    }
    let harm = ["stop", "hide", "delete", "autoboot", "boot"];
    let harmed = host.orders[orders..].iter().filter(|it| harm.contains(&it.as_str()));
    wrong.extend(harmed.map(|order| format!("{order} was ordered")));
    drop(centre);
    let record = world.record_in_vmapi();
    if record["server_uuid"] != json!(ONE) || record["state"] != json!("running") {
        wrong.push(format!("VMAPI has {} on {}", record["state"], record["server_uuid"]));
    }
    wrong
}

#[tokio::test(start_paused = true)] // M150 M174
async fn a_node_that_lies_in_any_field_of_any_answer_harms_no_vm_of_another_node() {
    let (said, wrong, usual) = told(None).await;
    assert_eq!(wrong, Vec::<String>::new(), "the truth");
    let (mut count, mut through) = (0, Vec::new());
    for ((route, pointer), truth) in &said {
        // Two of them, other ones for each field.
        let all = others(truth);
        for with in all.iter().cycle().skip(count).take(all.len().min(2)).cloned() {
            let lie = Lie { route: route.clone(), pointer: pointer.clone(), with };
            let (_, wrong, waited) = told(Some(lie.clone())).await;
            count += 1;
            through.extend(wrong.into_iter().map(|what| format!("{lie:?}: {what}")));
            if waited > 2 * usual.max(Duration::from_millis(100)) {
                through.push(format!("{lie:?}: another node waited {waited:?}, not {usual:?}"));
            }
        }
    }
    assert!(through.is_empty(), "{} of {count} lies:\n{}", through.len(), through.join("\n"));
    assert!(count > 60, "{count} lies");
}

/// The answer to a question, or its status.
async fn question(world: &Arc<World>, cn: Uuid, open: &str) -> Result<Value, Option<u16>> {
    let routes = agent_routes(world.plain().await.clone());
    let routed = Arc::new(Routed(routes, Some(Identity::Agent(cn))));
    let http = Http::with_transport("https://m.sim", "agent", routed).unwrap().without_retries();
    let call = Call::get(&["agents", &cn.to_string(), "replaced"]).query("open", open);
    let answer = http.execute(call).await.map_err(|error| error.status())?;
    Ok(answer.json("the copies that were replaced").unwrap())
}

#[tokio::test(start_paused = true)] // M192
async fn a_question_of_a_node_costs_what_the_store_knows_of_it() {
    let world = World::new(true);
    beside(&world, async { world.synced().await }).await;
    let id = world.record().await.unwrap().id;
    let asked = || world.centre().events;
    let made_up = |count: u128| {
        let names = (0..count).map(|at| format!("{}.1.", Uuid::from_u128(at)));
        names.collect::<Vec<_>>().join(",")
    };
    let before = asked();
    let answer = question(&world, ONE, &made_up(180)).await.unwrap();
    assert_eq!(
        (answer["known"].clone(), asked() - before),
        (json!([]), 0),
        "nobody else was asked"
    );
    let before = asked();
    let open = vec![format!("{id}.1.{TWO}"); 50].join(",");
    question(&world, ONE, &open).await.unwrap();
    assert_eq!(asked() - before, 1, "the other node was asked more than once");
    assert_eq!(question(&world, ONE, &made_up(1001)).await, Err(Some(413)));
    let (first, second) = tokio::join!(question(&world, ONE, &open), question(&world, ONE, &open));
    assert!(first.is_ok() && second == Err(Some(503)), "{first:?} {second:?}");
    let (one, two) = tokio::join!(question(&world, ONE, &open), question(&world, TWO, ""));
    assert!(one.is_ok() && two.is_ok(), "another node's question waits");
}

#[tokio::test(start_paused = true)] // M174 M124
async fn a_node_s_word_of_another_node_is_an_alarm_about_itself_and_goes_with_its_key() {
    let world = World::new(true);
    let is_up =
        || world.centre().hosts[&ONE].copy.as_ref().is_some_and(|it| it.running && !it.hidden);
    beside(&world, async {
        world.synced().await;
        let id = world.record().await.unwrap().id;
        {
            let mut centre = world.centre();
            let liar = centre.hosts.get_mut(&TWO).unwrap();
            liar.received.insert(id, (1_000_000, End::Target));
            liar.others.insert(id, (Some(ONE), Some(ONE)));
        }
        let open = format!("{id}.1.{TWO}");
        let got = answered(&world, ONE, &open).await;
        assert_eq!(got["replaced"], json!([]), "{got}");
        sleep(2 * WATCHED).await;
        assert!(is_up());
        let status = page(&world, "/status").await;
        assert!(status.contains(&format!("{TWO} received a later revision")), "{status}");
        let (status, body) = world.act("pause").await;
        assert_eq!(status, 412, "{body}");
        world.plain().await.disbelieve(TWO).await.unwrap();
        assert_eq!(world.record().await.unwrap().intent.older, None);
        assert_eq!(world.plain().await.records.strangers.all().await.unwrap(), []);
    })
    .await;
}
