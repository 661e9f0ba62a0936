// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The identity, what the agent never does, and other agents beside it.

use serde_json::json;
use tokio::time::sleep;

use crate::world::{CN, HOME, TARGET, World, mac};
use crate::{HOUR, MIN, SEC, lawful, leak};

#[tokio::test(start_paused = true)] // C24, race 28
async fn refuses_to_write_with_a_wrong_identity() {
    let world = leak();
    world.hub(HOME).set_sysinfo(json!({"UUID": TARGET}));
    let (agent, _) = world.start(json!({"cn_uuid": CN}));
    sleep(3 * HOUR).await;
    world.vm("live", "stopped", &[1], false);
    sleep(HOUR).await;
    assert!(world.asked("").is_empty(), "{:?}", world.asked(""));
    let status = agent.status_json().await.to_string();
    assert!(status.contains("refusing to write"), "{status}");
    // It was sysinfo that was wrong.
    world.hub(HOME).set_sysinfo(json!({"UUID": CN}));
    sleep(HOUR).await;
    assert!(!world.has(2));
}

/// The home node's sysinfo, and CNAPI's record of the home node with that of another machine.
fn two_machines(world: &World) {
    let links = |n: u8| json!({"igb0": {"MAC Address": mac(n), "NIC Names": ["admin"]}});
    let sysinfo = |serial: &str, n| json!({"UUID": CN, "Serial Number": serial, "Network Interfaces": links(n)});
    world.hub(HOME).set_sysinfo(sysinfo("S1", 91));
    world.server(Some(json!({"uuid": CN, "sysinfo": sysinfo("S2", 92)})));
}

#[tokio::test(start_paused = true)] // C40
async fn a_second_machine_of_this_uuid_stops_all_writing_until_an_operator_decides() {
    let server = |n| (n, json!({"belongs_to_type": "server", "belongs_to_uuid": CN}));
    for is_second in [true, false] {
        let world = leak();
        two_machines(&world);
        let nics = if is_second { vec![server(91), server(92)] } else { vec![server(91)] };
        nics.into_iter().for_each(|(n, over)| world.nic(n, CN, over));
        let (agent, _) = world.start(json!({}));
        sleep(3 * HOUR).await;
        assert_eq!(world.writes().is_empty(), is_second, "{:?}", world.writes());
        if !is_second {
            continue;
        }
        let status = agent.status_json().await;
        assert!(status["mute"].to_string().contains("serial number S2"), "{status}");
        assert!(status["waiting_for"].to_string().contains("second machine"), "{status}");
        // It stays silent when the other machine is no more to be seen.
        world.server(None);
        sleep(3 * HOUR).await;
        assert!(world.writes().is_empty(), "{:?}", world.writes());
        agent.parts.claim(CN, "root", false).await.unwrap();
        two_machines(&world);
        sleep(3 * HOUR).await;
        assert!(!world.has(2), "what an operator has refuted counts no more");
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C40
async fn the_machine_that_cnapi_knows_stops_too_where_a_nics_vm_and_a_server_nic_were_never_here() {
    for vmapi in ["http://vmapi.lab", "none"] {
        for is_second in [true, false] {
            let world = leak();
            two_machines(&world);
            let sysinfo = world.hub(HOME).sysinfo();
            world.server(Some(json!({"uuid": CN, "sysinfo": sysinfo})));
            for n in if is_second { vec![91, 92] } else { vec![91] } {
                world.nic(n, CN, json!({"belongs_to_type": "server", "belongs_to_uuid": CN}));
            }
            let (agent, _) = world.start(json!({"vmapi": {"url": vmapi}}));
            sleep(3 * HOUR).await;
            assert_eq!(world.has(2), is_second, "{vmapi}");
            if !is_second {
                continue;
            }
            let status = agent.status_json().await;
            assert!(status["mute"].to_string().contains("never here"), "{status}");
            agent.parts.claim(CN, "root", false).await.unwrap();
            sleep(3 * HOUR).await;
            assert!(!world.has(2), "what an operator has refuted counts no more");
            lawful(&world);
        }
    }
}

#[tokio::test(start_paused = true)] // C41
async fn nics_of_a_claimed_node_get_this_ones_cn_uuid() {
    for vmapi in ["http://vmapi.lab", "none"] {
        let world = World::new();
        world.vm("here", "stopped", &[1], false);
        world.vmapi("here", "stopped", TARGET);
        world.nic(1, "here", json!({"cn_uuid": TARGET}));
        world.server(Some(json!({"uuid": CN, "sysinfo": {"UUID": CN}})));
        let (agent, _) = world.start(json!({"vmapi": {"url": vmapi}}));
        sleep(HOUR).await;
        assert_eq!(world.field(1, "cn_uuid"), TARGET);
        agent.parts.claim(TARGET, "root", false).await.unwrap();
        sleep(MIN).await;
        assert_eq!(world.field(1, "cn_uuid"), CN, "{vmapi}");
    }
}

#[tokio::test(start_paused = true)] // C25
async fn makes_no_request_without_no_rabbit() {
    let world = leak();
    let (agent, _) = world.start(json!({"no_rabbit": false}));
    sleep(3 * HOUR).await;
    world.vm("live", "stopped", &[1], false);
    sleep(HOUR).await;
    assert!(world.asked("").is_empty() && world.vmapi.log().all().is_empty());
    assert!(agent.parts.status.waiting_for().join(" ").contains("no_rabbit"));
}

#[tokio::test(start_paused = true)] // C27, R18, race 12
async fn only_reads_node_and_vmapi() {
    // The program cannot run commands at all: nothing in it starts a process.
    let src = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut folders = vec![std::path::PathBuf::from(src)];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["process::Command", "Command::new", "vmadm update", "put_vm", "create_nic"]
            {
                assert!(!text.contains(word), "{word} in {}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 20);
    let world = leak();
    world.start(json!({}));
    sleep(HOUR).await;
    // A NIC that NAPI forgot: news about NAPI, never a reason to touch the VM or make a record.
    world.napi.reset();
    world.vm("live", "stopped", &[1], false);
    sleep(48 * HOUR).await;
    assert!(world.napi.nics().is_empty());
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C28, D7
async fn survives_errors_without_a_body() {
    use crate::world::Fault;
    for fault in [Fault::Refuse, Fault::Reset] {
        let world = leak();
        for n in 0..40 {
            world.state().faults.insert(n, fault);
        }
        let (agent, shutdown) = world.start(json!({}));
        sleep(2 * HOUR).await;
        assert!(!shutdown.is_triggered(), "a vital task ended");
        assert!(!world.has(2) && world.has(1), "{fault:?}");
        assert!(agent.parts.status.get(net_agent::status::Count::Errors) > 0);
        lawful(&world);
    }
}

#[tokio::test(start_paused = true)] // C29, D11
async fn reconnects_to_vminfod_and_compares() {
    let world = leak();
    world.vmapi_has("live", "state", json!("destroyed"));
    world.vm("other", "running", &[], false);
    world.start(json!({"relist": "0"}));
    sleep(HOUR).await;
    assert!(!world.has(2) && world.has(1));
    world.hub(HOME).stop();
    world.quietly("live", None);
    sleep(HOUR).await;
    assert!(world.has(1), "nothing is deleted while vminfod is silent");
    world.hub(HOME).restart();
    sleep(3 * MIN).await;
    assert!(!world.has(1), "found by comparing with what was known before");
    lawful(&world);
}

#[tokio::test(start_paused = true)] // C30, race 23, race 24
async fn live_vms_keep_nics_beside_an_old_agent() {
    let world = World::new();
    world.vm("v", "running", &[1], false);
    world.vm("w", "running", &[2], false);
    world.nic(1, "v", json!({}));
    world.nic(2, "w", json!({}));
    world.vmapi("v", "running", TARGET);
    world.vmapi("w", "running", CN);
    world.start(json!({"relist": "1h"}));
    // The old agent of the target overwrites the whole record now and then, and hides nothing;
    // our copy of v goes away in the middle of it.
    for round in 0..40 {
        let cn = if round % 2 == 0 { TARGET } else { CN };
        world.nic(1, "v", json!({"cn_uuid": cn, "state": "running"}));
        if round == 20 {
            world.delete_vm("v");
        }
        sleep(13 * MIN + round * SEC).await;
        assert!(world.has(1) && world.has(2), "round {round}");
    }
    let claims = world.asked("PUT /nics/f20000000001").len();
    assert!(claims <= 40, "never fights: {claims}");
    assert!(world.asked("DELETE").is_empty());
    lawful(&world);
}

/// Counts the audit lines.
#[derive(Clone, Default)]
struct Audits(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

struct Line(bool, String);

impl tracing::field::Visit for Line {
    fn record_bool(&mut self, field: &tracing::field::Field, value: bool) {
        self.0 |= field.name() == "audit" && value;
    }

    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.1 += &format!("{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for Audits {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(false, String::new());
        event.record(&mut line);
        if line.0 {
            self.0.lock().unwrap().push(line.1);
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn each_write_leaves_one_audit_line() {
    let audits = Audits::default();
    let _here = tracing::subscriber::set_default(audits.clone());
    let world = leak();
    world.nic(1, "live", json!({"cn_uuid": null, "state": "provisioning"}));
    world.nic(3, "gone", json!({"cn_uuid": null}));
    world.state().touch_next = 2;
    world.start(json!({}));
    sleep(HOUR).await;
    world.state().lose_next = true;
    world.vm("live", "stopped", &[1], false);
    sleep(HOUR).await;
    let (lines, writes) = (audits.0.lock().unwrap().clone(), world.writes());
    assert_eq!(lines.len(), writes.len(), "{lines:#?} {writes:#?}");
    assert!(writes.len() >= 7);
    for key in ["mac=", "vm=", "rule=", "etag=", "outcome=", "request="] {
        assert!(lines.iter().all(|line| line.contains(key)), "{key}: {lines:#?}");
    }
    let reap = lines.iter().find(|line| line.contains("rule=\"reap\"") && line.contains("deleted"));
    assert!(reap.unwrap().contains("vmapi_confirms: VMAPI says destroyed"), "{reap:?}");
}

#[tokio::test(start_paused = true)]
async fn deletes_nothing_after_napi_lost_its_records() {
    let world = World::new();
    let macs = [1, 2, 3, 4, 5, 6, 7, 8];
    world.vm("live", "running", &macs, false);
    world.vm("more", "running", &[], false);
    let (agent, _) = world.start(json!({}));
    sleep(HOUR).await;
    let brake = agent.status_json().await["brake"].to_string();
    assert!(brake.contains("no record of 8 of the 8"), "{brake}");
    // What VMAPI does not confirm stays, even when it left before our eyes.
    world.nic(1, "live", json!({}));
    world.vm("live", "running", &macs[1..], false);
    world.delete_vm("live");
    sleep(HOUR).await;
    assert!(world.has(1), "{:?} {}", world.writes(), agent.plan_json());
    world.nic(9, "more", json!({}));
    world.vm("more", "running", &[9], false);
    // It is asked again like one without the route, not only when the day is over.
    sleep(6 * HOUR).await;
    assert_eq!(agent.status_json().await["brake"], json!(null));
    assert!(!world.has(1), "VMAPI's 404 is enough for one again");
    lawful(&world);
}
