// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Every point at which an agent can die, read stale or miss something: one scripted history with
//! everything that net-agent and vm-agent do, run again for each of their requests and events. At each
//! request the agent dies before it is sent or after it took effect, with its disk state or without
//! its last write; each read is answered once from before the last change; after each event the node
//! is hidden until the next step. Every promise holds in each run, and NAPI and VMAPI end as in the
//! undisturbed one.
//!
//! Failed requests and lost answers while net-agent lives are tested at every index in
//! net-agent/tests/statements/faults.rs.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use sdc_clients::vminfod::{VmFields as _, VmObject};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::centre::Centre;
use super::gate::{Gate, Planned, Point, Who};
use super::node::Cn;
use super::outside::ELSEWHERE;
use super::runs::alone;
use super::settle;
use super::truth::{Life, Truth};
use super::world::held;
use crate::faults::{Fault, Moment};
use crate::parallel::failed_in_parallel;
use crate::place::place;
use mocks::napi::{Era, NewNic};
use simnode::{payload, sample};

/// Between two steps of the script: longer than any of them takes to be dealt with.
const PAUSE: Duration = Duration::from_secs(100);
const DAY: Duration = Duration::from_secs(86_400);
/// The steps of the script.
const STEPS: usize = 8;

/// One point, and what the agent that is started after a death finds of its memory.
#[derive(Clone, Copy, Debug)]
struct Case {
    who: Who,
    point: Option<Planned>,
    /// The last write of its memory never reached the disk.
    back: bool,
}

/// What a run came to.
#[derive(Debug)]
struct Ran {
    nics: BTreeMap<String, Value>,
    vms: BTreeMap<String, Value>,
    /// The requests and the number of events of each agent.
    counted: [(Vec<String>, usize); 2],
    /// The NIC that left a VM that stays.
    left: String,
}

/// Runs every `every`-th point; prints what does not hold, and totals.
pub fn run(every: usize) -> ExitCode {
    let began = Instant::now();
    match enumerate(every) {
        Ok(totals) => {
            println!("{} in {:.0} s", totals.text, began.elapsed().as_secs_f64());
            ExitCode::from(u8::from(totals.failed > 0))
        }
        Err(error) => {
            println!("FAIL the undisturbed run: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How the points came out.
#[derive(Debug)]
pub struct Totals {
    /// In words.
    pub text: String,
    pub points: usize,
    /// Points at which something did not hold.
    pub failed: u64,
}

/// Runs every `every`-th point.
pub fn enumerate(every: usize) -> anyhow::Result<Totals> {
    let truth = Truth::default();
    let nothing = Case { who: Who::NetAgent, point: None, back: false };
    let plain = alone(script(nothing, &truth)).inspect_err(|_| {
        truth.trace().iter().for_each(|line| println!("  {line}"));
    })?;
    // Who the node is does not change, the stream has no past, and what `sync` answers is
    // never stale (V5).
    let timeless = ["/sysinfo", "/events", "sync="];
    let has_past = |request: &String| {
        request.starts_with("GET") && !timeless.iter().any(|part| request.contains(part))
    };
    let mut cases = Vec::new();
    for who in [Who::NetAgent, Who::VmAgent] {
        let (requests, events) = &plain.counted[who as usize];
        for nth in 0..requests.len() {
            for moment in [Moment::Before, Moment::After] {
                let dies = Planned { at: Point::Request(nth), moment, fault: Fault::Dies(who) };
                cases.extend([false, true].map(|back| Case { who, point: Some(dies), back }));
            }
        }
        let whole = |point| Case { who, point: Some(point), back: false };
        let stale =
            |nth| Planned { at: Point::Request(nth), moment: Moment::Before, fault: Fault::Stale };
        let unseen =
            |nth| Planned { at: Point::Event(nth), moment: Moment::After, fault: Fault::Unseen };
        let reads = (0..requests.len()).filter(|nth| has_past(&requests[*nth]));
        cases.extend(reads.map(stale).map(whole));
        cases.extend((0..*events).map(unseen).map(whole));
    }
    let cases: Vec<Case> = cases.into_iter().step_by(every.max(1)).collect();
    let kept = std::sync::atomic::AtomicUsize::new(0);
    let failed =
        failed_in_parallel(&cases, &|case| match alone(script(*case, &Truth::default())) {
            Ok(ran) => match compare(&plain, &ran) {
                Ok(as_before) => {
                    let ordering = std::sync::atomic::Ordering::Relaxed;
                    kept.fetch_add(usize::from(!as_before), ordering);
                    true
                }
                Err(what) => tell(case, &plain, &what),
            },
            Err(error) => tell(case, &plain, &format!("{error:#}")),
        });
    let [net, vms] = plain
        .counted
        .each_ref()
        .map(|(requests, events)| format!("{} requests and {events} events", requests.len()));
    let (points, kept) = (cases.len(), kept.into_inner());
    let text = format!(
        "{net} of net-agent, {vms} of vm-agent: {points} points, {failed} failed; {kept} times a \
         NIC that left a VM that stays was kept, for nobody saw it go"
    );
    Ok(Totals { text, points, failed })
}

fn tell(case: &Case, plain: &Ran, what: &str) -> bool {
    let request = match case.point.map(|planned| planned.at) {
        Some(Point::Request(nth)) => {
            plain.counted[case.who as usize].0.get(nth).map(String::as_str).unwrap_or_default()
        }
        _ => "",
    };
    println!("FAIL {case:?} {request}: {what}");
    false
}

/// Are NAPI and VMAPI what the undisturbed run left? Says whether the NIC that left a VM that stays went in
/// both: an agent that did not see it go keeps it, for its VM is here (G3).
fn compare(plain: &Ran, ran: &Ran) -> Result<bool, String> {
    for vm in plain.vms.keys().chain(ran.vms.keys()) {
        let (one, two) = (plain.vms.get(vm), ran.vms.get(vm));
        if one != two {
            let show = |vm: Option<&Value>| vm.map(Value::to_string);
            return Err(format!("{vm} ends as {:?} instead of {:?}", show(two), show(one)));
        }
    }
    let keys = plain.nics.keys().chain(ran.nics.keys());
    let other = keys.filter(|mac| plain.nics.get(*mac) != ran.nics.get(*mac));
    let mut same = true;
    for mac in other {
        if *mac != plain.left {
            let show = |ran: &Ran| ran.nics.get(mac).map(Value::to_string);
            return Err(format!("{mac} ends as {:?} instead of {:?}", show(ran), show(plain)));
        }
        same = false;
    }
    Ok(same)
}

/// The world of the script, at work.
struct Stage {
    centre: Centre,
    cn: Cn,
    back: bool,
    /// The VMs that the script is about.
    vms: Vec<String>,
    /// The one that is made and goes.
    made: String,
    left: String,
}

async fn script(case: Case, truth: &Truth) -> anyhow::Result<Ran> {
    let dir = place()?;
    let mut stage = Stage::new(dir.path(), truth, case.back).await?;
    let gates = [stage.cn.net.gate.clone(), stage.cn.vms.gate.clone()];
    let gate = &gates[case.who as usize];
    gate.plan(case.point);
    stage.look_back();
    stage.cn.start_agent()?;
    stage.cn.start_vm_agent()?;
    stage.pause(PAUSE).await?;
    for step in 0..STEPS {
        stage.look_back();
        stage.step(step).await.with_context(|| format!("step {step}"))?;
        stage.cn.watch.poll(&stage.cn.node.root(), &stage.cn.way);
        stage.pause(Duration::from_secs(1)).await?;
        gates.iter().for_each(Gate::see);
        stage.pause(PAUSE).await?;
    }
    let counted = gates.each_ref().map(Gate::counted);
    for (requests, events) in counted.iter().filter(|_| case.point.is_none()) {
        // The undisturbed run is what its steps make of it, and the rest is silence.
        ensure!(requests.len() > 25 && *events > STEPS / 2, "{} requests", requests.len());
    }
    gates.iter().for_each(Gate::see_all);
    // The hour before a record that is being provisioned may go is over.
    stage.centre.napi.advance_clock(DAY);
    tokio::select! {
        done = settle::settle(&stage.centre, std::slice::from_ref(&stage.cn), &[], settle::BRAKED) => done?,
        // A point beyond the script: the world is at rest, and nothing more is to come of it.
        () = gate.death() => bail!("the agent died after the script"),
    }
    held(truth)?;
    if case.point.is_some() {
        ensure!(gate.happened(), "the point was never reached");
    }
    let vms = stage.centre.vmapi.all().into_iter().map(|mut vm| {
        let times = ["create_timestamp", "last_modified", "destroyed"];
        vm.retain(|key, _| !times.contains(&key.as_str()));
        (vm["uuid"].as_str().unwrap_or_default().to_owned(), Value::Object(vm))
    });
    let (vms, mut nics) = (vms.collect(), BTreeMap::new());
    for mut nic in stage.centre.napi.nics() {
        if let Some(fields) = nic.as_object_mut() {
            let times = ["etag", "created_timestamp", "modified_timestamp"];
            fields.retain(|key, _| !times.contains(&key.as_str()));
        }
        nics.insert(nic["mac"].as_str().unwrap_or_default().to_owned(), nic);
    }
    let left = stage.left.clone();
    stage.cn.end().await;
    Ok(Ran { nics, vms, counted, left })
}

impl Stage {
    async fn new(dir: &std::path::Path, truth: &Truth, back: bool) -> anyhow::Result<Self> {
        let centre = Centre::new(Era::Rfd58, 7, None, truth);
        let cn = Cn::new(&centre, dir, 0, 8)?;
        let all = cn.load().await.context("the first load")?;
        let fit = |vm: &&VmObject| {
            vm.state() == Some("running") && !vm.is_hidden() && !vm.macs().is_empty()
        };
        let name = |vm: &VmObject| vm.uuid().map(str::to_owned);
        let vms: Vec<String> = all.iter().filter(fit).filter_map(name).collect();
        ensure!(vms.len() >= 5, "only {} VMs run and have NICs", vms.len());
        centre.vmapi.seed_from_vms(&all, &cn.uuid);
        centre.napi.seed_from_vms(&all, &cn.uuid).map_err(anyhow::Error::msg)?;
        let (made, left) = (String::new(), String::new());
        let mut stage = Self { centre, back, vms, made, left, cn };
        stage.seed().map_err(anyhow::Error::msg)?;
        stage.cn.start_vminfod().await?;
        Ok(stage)
    }

    /// What is wrong in NAPI when the agent starts: one of everything that VMAPI can confirm, so
    /// that the brake never waits for an operator.
    fn seed(&self) -> Result<(), String> {
        let (napi, cn) = (&self.centre.napi, &self.cn.uuid);
        let of = |vm: &str| napi.nics().into_iter().find(|nic| nic["belongs_to_uuid"] == vm);
        let nic = of(&self.vms[4]).ok_or("a VM without a record")?;
        let mac = nic["mac"].as_str().unwrap_or_default();
        napi.remove(mac);
        let bare = NewNic::zone(mac, &self.vms[4], cn)
            .without("cn_uuid")
            .with("state", json!("provisioning"))
            .with("primary", nic["primary"].clone())
            .with("owner_uuid", nic["owner_uuid"].clone());
        napi.add_nic(bare)?;
        let stray = |n: u8, vm: &str, cn: &str| {
            NewNic::zone(&format!("90:b8:d0:ff:00:{n:02x}"), vm, cn).aged(DAY)
        };
        let vm = |n: u8| format!("00000000-0000-4000-8000-0000000000{n:02x}");
        for (n, state, server) in
            [(1, "destroyed", cn.as_str()), (2, "destroyed", cn), (3, "running", ELSEWHERE)]
        {
            self.centre.vmapi.set(&vm(n), state, Some(server));
        }
        self.centre.truth.set(&vm(3), Life::On(ELSEWHERE.to_owned()));
        napi.add_nic(stray(1, &vm(1), cn))?;
        // No list by node shows it: it has to be adopted first. Its VM was here once.
        let gone = Life::Gone(Instant::now() + DAY, cn.clone());
        self.centre.truth.set(&vm(2), gone);
        napi.add_nic(stray(2, &vm(2), cn).without("cn_uuid"))?;
        napi.add_nic(stray(3, &vm(3), cn))?;
        let sysinfo = std::fs::read(self.cn.node.root().join("tmp/.sysinfo.json"));
        let sysinfo: Value = serde_json::from_slice(&sysinfo.map_err(|e| e.to_string())?)
            .map_err(|e| e.to_string())?;
        let links = sysinfo["Network Interfaces"].as_object().into_iter().flatten();
        for (_, link) in links {
            let mac = link["MAC Address"].as_str().unwrap_or_default();
            napi.add_admin_nic(mac, cn, false)?;
        }
        Ok(())
    }

    /// What stale answers will be given from.
    fn look_back(&self) {
        let vms: Vec<Value> = self.cn.shown().into_iter().map(Value::Object).collect();
        let vms = Bytes::from(Value::from(vms).to_string());
        self.cn.net.gate.remember(vms.clone());
        self.cn.vms.gate.remember(vms);
    }

    /// Time passes; an agent that dies meanwhile is started again.
    async fn pause(&mut self, span: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + span;
        let (net, vms) = (self.cn.net.gate.clone(), self.cn.vms.gate.clone());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return Ok(()),
                () = net.death() => {
                    self.centre.truth.note("net-agent dies");
                    self.cn.net.kill(self.back).await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    self.cn.start_agent()?;
                }
                () = vms.death() => {
                    self.centre.truth.note("vm-agent dies");
                    self.cn.vms.kill(self.back).await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    self.cn.start_vm_agent()?;
                }
            }
        }
    }

    fn forget(&self, vm: &str) {
        let gone = Life::Gone(Instant::now(), self.cn.uuid.clone());
        self.centre.truth.set(vm, gone);
    }

    async fn step(&mut self, step: usize) -> anyhow::Result<()> {
        let vm = |nth: usize| self.vms[nth].clone();
        let verbs = self.cn.verbs.clone();
        self.centre.truth.note(format!("step {step}"));
        match step {
            0 => {
                verbs.delete(&vm(0)).await?;
                self.forget(&vm(0));
            }
            1 => {
                let macs = self.cn.macs(&vm(1))?;
                let mac = macs.last().context("a VM without NICs")?.clone();
                verbs.remove_nic(&vm(1), &mac).await?;
                self.left = mac;
            }
            2 => verbs.halt(&vm(2), 0).await?,
            3 => self.create().await?,
            4 => verbs.boot(&vm(2)).await?,
            5 => verbs.hide(&vm(3), true).await?,
            6 => verbs.hide(&vm(3), false).await?,
            _ => {
                verbs.delete(&self.made).await?;
                self.forget(&self.made);
            }
        }
        Ok(())
    }

    async fn create(&mut self) -> anyhow::Result<()> {
        let mut vm = sample::fresh("lx", Some(99))?;
        self.made = "00000000-0000-4000-8000-0000000000ff".to_owned();
        vm.insert("uuid".to_owned(), json!(self.made));
        self.centre.vmapi.set(&self.made, "provisioning", Some(&self.cn.uuid));
        for nic in payload::list(&vm, "nics")? {
            let Some(mac) = payload::text(nic, "mac") else { continue };
            let new = NewNic::zone(mac, &self.made, &self.cn.uuid)
                .without("cn_uuid")
                .with("state", json!("provisioning"))
                .with("primary", json!(nic.get("primary") == Some(&Value::Bool(true))))
                .with("owner_uuid", vm.get("owner_uuid").cloned().unwrap_or(Value::Null));
            self.centre.napi.add_nic(new).map_err(anyhow::Error::msg)?;
        }
        self.centre.truth.set(&self.made, Life::On(self.cn.uuid.clone()));
        self.cn.verbs.create(&vm).await?;
        Ok(())
    }
}
