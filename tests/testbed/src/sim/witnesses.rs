// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Each witness of a zone wrong in each way, one at a time and two at a time, for a VM that runs and one that is
//! stopped: what vminfod shows, what VMAPI is told, and which NICs are deleted. `docs/contract/witnesses.md` is made of
//! this.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use daemon::command::Program;
use mocks::faults::{Action, Rule};
use mocks::napi::{Era, NewNic};
use sdc_clients::vminfod::{Incomplete, VmFields as _};
use serde_json::{Value, json};
use simnode::files;

use super::centre::Centre;
use super::node::Cn;
use super::runs::alone;
use super::truth::Truth;
use crate::parallel::in_parallel;
use crate::place::place;

/// Both agents have compared all that they have within this.
const COMPARED: Duration = Duration::from_secs(1800);
const DAY: Duration = Duration::from_secs(86_400);

/// The ways in which a witness is wrong: its name, and what is wrong with it.
pub const WRONGS: [(Witness, Wrong); 17] = {
    use Witness::*;
    use Wrong::*;
    [
        (Index, Absent),
        (Index, Older),
        (Index, Cut),
        (Xml, Absent),
        (Xml, Older),
        (Xml, Cut),
        (Zoneadm, Absent),
        (Zoneadm, Older),
        (Zoneadm, Cut),
        (Dataset, Absent),
        (Dataset, Cut),
        (Napi, Absent),
        (Napi, Older),
        (Napi, Cut),
        (Vmapi, Absent),
        (Vmapi, Older),
        (Vmapi, Cut),
    ]
};

/// Who has a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    Index,
    Xml,
    Zoneadm,
    Dataset,
    Napi,
    Vmapi,
}

/// What is wrong with a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has nothing of the zone.
    Absent,
    /// It has what was right when the zone was made.
    Older,
    /// What it has breaks off in the middle.
    Cut,
}

/// What came of it for one VM.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    shown: &'static str,
    told: bool,
    deleted: bool,
}

/// A world with the two VMs.
struct Scene {
    centre: Centre,
    cn: Cn,
    vms: [String; 2],
}

/// Returns the page of the table, made by trying each case.
/// Errors: a world does not start, the first one that does not.
pub fn page() -> anyhow::Result<String> {
    let mut cases: Vec<Vec<(Witness, Wrong)>> = WRONGS.iter().map(|one| vec![*one]).collect();
    for (at, one) in WRONGS.iter().enumerate() {
        let others = WRONGS[at..].iter().filter(|other| other.0 != one.0);
        cases.extend(others.map(|other| vec![*one, *other]));
    }
    let tried = in_parallel(&cases, &|case| alone(tried(case)).with_context(|| named(case)));
    let mut text = HEAD.to_owned();
    let outcomes = tried.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let (singles, pairs) = outcomes.split_at(WRONGS.len());
    for (case, [running, stopped]) in cases.iter().zip(singles) {
        text += &format!("| {} | {} | {} |\n", named(case), running.cells(), stopped.cells());
    }
    text += &format!(
        "{MIDDLE}| the two | runs: vminfod | told | deleted | stopped: vminfod | told | deleted |\n"
    );
    text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    let mut quiet = 0;
    for (case, [running, stopped]) in cases[WRONGS.len()..].iter().zip(pairs) {
        if [running, stopped].iter().any(|it| it.told || it.deleted) {
            text += &format!("| {} | {} | {} |\n", named(case), running.cells(), stopped.cells());
        } else {
            quiet += 1;
        }
    }
    Ok(text + &format!("\nIn the other {quiet} pairs nothing is told and nothing deleted.\n"))
}

const HEAD: &str = "\
# Witnesses of a zone

This page is made by a test (`witnesses`, tests/testbed/src/sim/witnesses.rs), which holds it to what the real vminfod,
vm-agent and net-agent did in half an hour on a simulated node. A witness is *absent* where it has nothing of the VM,
*older* where it has what was right when the VM was made (the index: `configured`; the XML: no NIC; zoneadm: the state
before; NAPI: `provisioning`, without `cn_uuid`; VMAPI: `provisioning`), *cut* where it breaks off in the middle. *Told*:
VMAPI has the VM `destroyed` by the word of vm-agent. *Deleted*: a NIC of the VM that NAPI had is gone.

## One witness

| witness | runs: vminfod | told | deleted | stopped: vminfod | told | deleted |
| --- | --- | --- | --- | --- | --- | --- |
";
const MIDDLE: &str = "
## Two witnesses

";

fn named(case: &[(Witness, Wrong)]) -> String {
    let one = |(witness, wrong): &(Witness, Wrong)| {
        let witness = match witness {
            Witness::Index => "index",
            Witness::Xml => "XML",
            Witness::Zoneadm => "zoneadm",
            Witness::Dataset => "dataset",
            Witness::Napi => "NAPI",
            Witness::Vmapi => "VMAPI",
        };
        let wrong = match wrong {
            Wrong::Absent => "absent",
            Wrong::Older => "older",
            Wrong::Cut => "cut",
        };
        format!("{witness} {wrong}")
    };
    case.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl Outcome {
    fn cells(&self) -> String {
        let said = |is: bool, word: &'static str| if is { word } else { "–" };
        format!(
            "{} | {} | {}",
            self.shown,
            said(self.told, "destroyed"),
            said(self.deleted, "its NICs")
        )
    }
}

/// How long VMAPI does not hear of a halt while the datasets of eight other VMs are slow.
/// Errors: the world does not start, or VMAPI never hears of it.
pub fn halt_beside_slow_tenants() -> anyhow::Result<Duration> {
    alone(async {
        let (dir, truth) = (place()?, Truth::default());
        let scene = Scene::new(dir.path(), &truth).await?;
        let (cn, halted) = (&scene.cn, &scene.vms[0]);
        let shown = cn.shown().into_iter().filter_map(|vm| vm.uuid().map(str::to_owned));
        let slow: Vec<String> = shown.filter(|vm| vm != halted).take(8).collect();
        cn.commands.slow_down(slow.clone());
        for vm in &slow {
            let quota = json!({"quota": 77});
            cn.verbs.update(vm, quota.as_object().context("an object")?).await?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = tokio::time::Instant::now();
        cn.verbs.halt(halted, 0).await?;
        let is_told = || {
            let record = scene.centre.vmapi.get(halted).unwrap_or_default();
            record.get("state") == Some(&json!("stopped"))
        };
        while !is_told() {
            ensure!(began.elapsed() < COMPARED, "VMAPI does not hear of it");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let took = began.elapsed();
        scene.cn.end().await;
        Ok(took)
    })
}

async fn tried(case: &[(Witness, Wrong)]) -> anyhow::Result<[Outcome; 2]> {
    let (dir, truth) = (place()?, Truth::default());
    let scene = Scene::new(dir.path(), &truth).await?;
    for (witness, wrong) in case {
        scene.wrong(*witness, *wrong)?;
    }
    scene.cn.watch.poll(&scene.cn.node.root(), &scene.cn.way);
    let kept = scene.vms.clone().map(|vm| scene.nics(&vm));
    tokio::time::sleep(COMPARED).await;
    let shown = scene.shown().await;
    let outcome = |n: usize| {
        let vm = &scene.vms[n];
        let record = scene.centre.vmapi.get(vm).unwrap_or_default();
        Outcome {
            shown: shown[n],
            told: record.get("state") == Some(&json!("destroyed")),
            deleted: scene.nics(vm) < kept[n],
        }
    };
    let outcomes = [outcome(0), outcome(1)];
    scene.cn.end().await;
    Ok(outcomes)
}

impl Scene {
    async fn new(dir: &std::path::Path, truth: &Truth) -> anyhow::Result<Self> {
        let centre = Centre::new(Era::Rfd58, 2, None, truth);
        let mut cn = Cn::new(&centre, dir, 0, 10)?;
        let vms = cn.load().await.context("the first load")?;
        let of = |state: &str| {
            let mut found = vms
                .iter()
                .filter(|vm| vm.state() == Some(state) && !vm.is_hidden() && !vm.macs().is_empty());
            found.next().and_then(|vm| vm.uuid()).map(str::to_owned).context("no such VM")
        };
        let chosen = [of("running")?, of("stopped")?];
        centre.vmapi.seed_from_vms(&vms, &cn.uuid);
        centre.napi.seed_from_vms(&vms, &cn.uuid).map_err(anyhow::Error::msg)?;
        cn.start_vminfod().await?;
        cn.start_agent()?;
        cn.start_vm_agent()?;
        tokio::time::sleep(COMPARED).await;
        Ok(Self { centre, cn, vms: chosen })
    }

    /// How many NICs NAPI has of the VM.
    fn nics(&self, vm: &str) -> usize {
        self.centre.napi.nics().iter().filter(|nic| nic["belongs_to_uuid"] == vm).count()
    }

    /// What vminfod shows of the two.
    async fn shown(&self) -> [&'static str; 2] {
        let Some(api) = self.cn.wire.api() else { return ["no answer"; 2] };
        let mut request = http::Request::new(String::new());
        *request.uri_mut() = http::Uri::from_static("/vms");
        let (answer, _) = api.answer(request).await.into_parts();
        let (incomplete, shown) = (Incomplete::of(&answer.headers), self.cn.shown());
        self.vms.each_ref().map(|vm| {
            let is_shown = shown.iter().any(|it| it.uuid() == Some(vm));
            match (is_shown, incomplete.has(vm)) {
                (true, false) => "shown",
                (true, true) => "as it was, named",
                (false, true) => "named",
                (false, false) => "gone",
            }
        })
    }

    fn is_of(&self, line: &str) -> bool {
        self.vms.iter().any(|vm| line.contains(vm.as_str()))
    }

    /// The lines of a text, where those of the two VMs are wrong.
    fn lines(
        vms: &[String; 2],
        text: &str,
        wrong: Wrong,
        older: impl Fn(&str) -> String,
    ) -> String {
        let line = |line: &str| match wrong {
            _ if !vms.iter().any(|vm| line.contains(vm.as_str())) => line.to_owned(),
            Wrong::Absent => String::new(),
            Wrong::Older => older(line),
            Wrong::Cut => format!("{}\n", &line[..line.len() / 2]),
        };
        text.split_inclusive('\n').map(line).collect()
    }

    fn wrong(&self, witness: Witness, wrong: Wrong) -> anyhow::Result<()> {
        let configured = |line: &str| line.replace(":installed:", ":configured:");
        match witness {
            Witness::Index => {
                let file = self.cn.node.path("/etc/zones/index");
                let text =
                    Self::lines(&self.vms, &std::fs::read_to_string(&file)?, wrong, configured);
                files::replace(&file, text.as_bytes())?;
            }
            Witness::Xml => {
                for file in self.vms.iter().map(|vm| self.cn.node.zone_xml(vm)) {
                    let text = std::fs::read_to_string(&file)?;
                    match wrong {
                        Wrong::Absent => std::fs::remove_file(&file)?,
                        Wrong::Older => files::replace(&file, without_nics(&text).as_bytes())?,
                        Wrong::Cut => {
                            files::write_in_place(&file, &text.as_bytes()[..text.len() / 2])?
                        }
                    }
                }
            }
            Witness::Zoneadm | Witness::Dataset => {
                let program =
                    if witness == Witness::Zoneadm { Program::Zoneadm } else { Program::Zfs };
                let vms = self.vms.clone();
                let before = |line: &str| {
                    line.replace(":running:", ":ready:").replace(":installed:", ":configured:")
                };
                self.cn.commands.alter(move |ran, text| match ran == program {
                    true => Self::lines(&vms, &text, wrong, before),
                    false => text,
                });
            }
            Witness::Napi => self.napi(wrong)?,
            Witness::Vmapi => match wrong {
                Wrong::Absent => {
                    self.vms.iter().for_each(|vm| _ = self.centre.vmapi.remove(vm));
                }
                Wrong::Older => {
                    for vm in &self.vms {
                        self.centre.vmapi.set(vm, "provisioning", Some(&self.cn.uuid));
                    }
                }
                Wrong::Cut => {
                    self.centre.vmapi.faults().add(Rule::any(Action::Truncate { bytes: 200 }))
                }
            },
        }
        Ok(())
    }

    fn napi(&self, wrong: Wrong) -> anyhow::Result<()> {
        let nics = self.centre.napi.nics();
        let text = |nic: &Value, key: &str| nic[key].as_str().unwrap_or_default().to_owned();
        match wrong {
            Wrong::Cut => self.centre.napi.faults().add(Rule::any(Action::Truncate { bytes: 200 })),
            _ => {
                for nic in nics.iter().filter(|nic| self.is_of(&text(nic, "belongs_to_uuid"))) {
                    let (mac, vm) = (text(nic, "mac"), text(nic, "belongs_to_uuid"));
                    self.centre.napi.remove(&mac);
                    if wrong == Wrong::Older {
                        let nic = NewNic::zone(&mac, &vm, &self.cn.uuid)
                            .without("cn_uuid")
                            .with("owner_uuid", nic["owner_uuid"].clone())
                            .with("state", json!("provisioning"));
                        self.centre.napi.add_nic(nic.aged(DAY)).map_err(anyhow::Error::msg)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The configuration of a zone before it had a NIC.
fn without_nics(xml: &str) -> String {
    let mut parts = xml.split("<network");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once("</network>").map_or("", |(_, rest)| rest);
    }
    text
}
