// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Shared steps of the tests: a VM of some kind, a stream read up to an event, no other event.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::time::Instant;
use vminfod::config::Config;

use super::{Events, FakeNode, Served, zfs_history};

pub const A: &str = "7992e853-8812-4060-8b15-fff23517df24";
pub const B: &str = "ff4b2ea8-68ea-4503-9949-fe1dff68c5d2";
pub const C: &str = "0b0c5a2e-9c54-4e5c-8f4e-0d5f7a1a9b03";
/// The VM by which [`Events::settled`] knows that all before it is done.
pub const MARK: &str = "3d1f0c58-55f3-4a1b-a2ab-5d8f1a2b3c4d";

const DAY: Duration = Duration::from_secs(86_400);
/// Longer than anything that goes well takes.
pub const LATE: Duration = Duration::from_secs(120);

/// A zone configuration with these elements in it.
pub fn config_of(zone: &str, brand: &str, items: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<zone name=\"{zone}\" zonepath=\"/zones/{zone}\" autoboot=\"true\" \
         brand=\"{brand}\" ip-type=\"exclusive\">\n{items}\n</zone>\n"
    )
}

/// An attr of a zone configuration.
pub fn attr(name: &str, value: &str) -> String {
    format!("<attr name=\"{name}\" type=\"string\" value=\"{value}\"/>")
}

/// A daemon on a node with the VM [`A`]: it learns from events alone, and is at rest.
pub async fn one_vm() -> (FakeNode, Served) {
    let node = FakeNode::one();
    let served = node.serve_quiet().await;
    served.idle().await;
    (node, served)
}

/// The same with a stream of its events.
pub async fn followed() -> (FakeNode, Served, Events) {
    let (node, served) = one_vm().await;
    let events = served.events().await;
    (node, served, events)
}

/// The same with the VM [`MARK`] too, so that [`Events::settled`] can be used.
pub async fn marked() -> (FakeNode, Served, Events) {
    let node = FakeNode::one();
    node.add_zone(MARK, "running", Some(7), "mark");
    let (served, events) = node.serve_followed().await;
    (node, served, events)
}

/// Begins a refresh that waits for `zfs list`, until [`FakeNode::release`]; returns its status then.
pub async fn refreshing(node: &FakeNode, served: &Served) -> tokio::task::JoinHandle<u16> {
    node.with(|state| state.held.push("zfs"));
    let url = format!("{}/vms?sync=true", served.url);
    let asked = tokio::spawn(async move { reqwest::get(url).await.unwrap().status().as_u16() });
    served.status_until(|status| status["state"] == "paused").await;
    asked
}

impl FakeNode {
    /// A node with the VM [`A`], which runs.
    pub fn one() -> Self {
        let node = Self::new();
        node.add_zone(A, "running", Some(5), "one");
        node
    }

    /// Settings without sweeps and refreshes: only events announce changes.
    pub fn quiet(&self) -> Config {
        Config { sweep: DAY, refresh: (DAY, DAY), ..self.config() }
    }

    /// A daemon that learns from events alone.
    pub async fn serve_quiet(&self) -> Served {
        self.serve_as(self.quiet()).await
    }

    /// The same at rest, with a stream of its events.
    pub async fn serve_followed(&self) -> (Served, Events) {
        let served = self.serve_quiet().await;
        served.idle().await;
        let events = served.events().await;
        (served, events)
    }

    /// A running VM whose configuration has these elements.
    pub fn add_vm(&self, uuid: &str, brand: &str, items: &str) {
        self.add_zone(uuid, "running", Some(5), "");
        self.set_line(format!("5:{uuid}:running:/zones/{uuid}:{uuid}:{brand}:excl:6"));
        self.configure(uuid, brand, items);
    }

    /// Other elements in the same configuration.
    pub fn configure(&self, uuid: &str, brand: &str, items: &str) {
        self.write(&format!("/etc/zones/{uuid}.xml"), &config_of(uuid, brand, items));
    }

    /// Another quota of a VM's dataset, in GiB.
    pub fn set_quota(&self, uuid: &str, gib: u64) {
        self.set_dataset(&format!("zones/{uuid}"), json!({"quota": (gib << 30).to_string()}));
    }

    /// The index has these zones.
    pub fn index(&self, zones: &[&str]) {
        let line = |zone: &&str| format!("{zone}:installed:/zones/{zone}:{zone}\n");
        let lines: String = zones.iter().map(line).collect();
        self.write("/etc/zones/index", &format!("global:installed:/:\n{lines}"));
    }

    /// Writes a file that is not watched yet.
    pub fn write_now(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn set_modified(&self, path: &str, since_1970: Duration) {
        let file = std::fs::File::options().write(true).open(self.path(path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + since_1970).unwrap();
    }

    pub fn tags(&self, uuid: &str, tags: &Value) {
        self.write(&format!("/zones/{uuid}/config/tags.json"), &tags.to_string());
    }

    /// The kernel's numbers of a zone; `None`: it does not run.
    pub fn kstat(&self, uuid: &str, numbers: Option<(i64, i64, i64)>) {
        self.with(|state| {
            state.zoneinfo.retain(|kstat| kstat["data"]["zonename"] != uuid);
            if let Some((pid, restarts, boot)) = numbers {
                let data = json!({"zonename": uuid, "init_pid": pid, "init_restarts": restarts, "boot_time": boot});
                state.zoneinfo.push(json!({"class": "zone_misc", "module": "zones", "data": data}));
            }
        });
    }

    /// Zone, configuration and datasets are gone; nothing is announced.
    pub fn remove(&self, uuid: &str) {
        self.drop_zone(uuid);
        self.drop_datasets(&format!("zones/{uuid}"));
        std::fs::remove_file(self.path(&format!("/etc/zones/{uuid}.xml"))).unwrap();
    }

    /// A dataset and all below it are gone.
    pub fn drop_datasets(&self, name: &str) {
        self.with(|state| {
            state.zfs.retain(|row| {
                let rest = row["name"].as_str().unwrap().strip_prefix(name);
                !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
            });
        });
    }

    /// How often `zfs list` was run so far.
    pub fn listings(&self) -> usize {
        self.with(|state| state.log.iter().filter(|(tool, _)| tool.name() == "zfs").count())
    }

    /// A ZFS event with its text.
    pub async fn zfs_event_saying(&self, dataset: &str, action: &str, text: &str) {
        self.sysevent("zfs", &zfs_history(dataset, action, text)).await;
    }
}

/// The changes of an event, one text each, without the time of the files.
pub fn told(event: &Value) -> Vec<String> {
    let list = event["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |change: &Value| {
        let side = |key: &str| change.get(key).map_or("-".to_owned(), Value::to_string);
        let [path, action] = ["prettyPath", "action"].map(|key| change[key].as_str().unwrap());
        format!("{path} {action} {} -> {}", side("oldValue"), side("newValue"))
    };
    list.iter().filter(|change| change["prettyPath"] != "last_modified").map(text).collect()
}

/// These are among the changes that [`told`] gives.
#[track_caller]
pub fn assert_told(lines: &[String], wanted: &[&str]) {
    for want in wanted {
        assert!(lines.iter().any(|line| line == want), "{want} is not in {lines:#?}");
    }
}

/// The one change of an event at this path.
pub fn change<'a>(event: &'a Value, path: &str) -> Option<&'a Value> {
    event["changes"].as_array()?.iter().find(|change| change["prettyPath"] == path)
}

/// The VMs by zone name as clients keep them, strict about what may follow what.
#[derive(Debug, PartialEq)]
pub struct Mirror(BTreeMap<String, Value>);

impl Mirror {
    /// The mirror of a list.
    pub fn of(vms: &Value) -> Self {
        let name = |vm: &Value| vm["zonename"].as_str().unwrap().to_owned();
        Self(vms.as_array().unwrap().iter().map(|vm| (name(vm), vm.clone())).collect())
    }

    /// Does what an event says.
    pub fn take(&mut self, event: &Value) {
        let name = event["zonename"].as_str().unwrap().to_owned();
        let (kind, list) = (event["type"].as_str().unwrap(), event["changes"].as_array());
        let known = match kind {
            "create" | "modify" => self.0.insert(name, event["vm"].clone()),
            "delete" => self.0.remove(&name),
            other => panic!("type {other}"),
        };
        assert_eq!(known.is_none(), kind == "create", "{event}");
        assert_eq!(list.is_some_and(|list| !list.is_empty()), kind == "modify", "{event}");
        let states = list.into_iter().flatten().filter(|one| one["path"] == json!(["state"]));
        assert!(states.count() <= 1, "{event}");
    }
}

impl Events {
    /// The next event that is as wanted; those before it are dropped.
    pub async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.gather(wanted).await.1
    }

    /// Events up to the wanted one.
    pub async fn gather(&mut self, wanted: impl Fn(&Value) -> bool) -> (Vec<Value>, Value) {
        let (end, mut before) = (Instant::now() + LATE, Vec::new());
        loop {
            let next = tokio::time::timeout_at(end, self.next()).await;
            match next.unwrap_or_else(|_| panic!("not the wanted event: {before:#?}")) {
                Some(event) if wanted(&event) => return (before, event),
                Some(event) => before.push(event),
                None => panic!("the stream ended after {before:#?}"),
            }
        }
    }

    /// Waits until the VM [`A`] has this tag, be it there already or not.
    pub async fn until_tag(&mut self, served: &Served, key: &str) {
        while served.vm(A).await["tags"].get(key).is_none() {
            self.soon().await;
        }
    }

    /// The next event in which this path changed.
    pub async fn change_of(&mut self, path: &str) -> Value {
        self.until(|event| change(event, path).is_some()).await
    }

    /// The events up to the effect of a later event of both sysevent streams and of the files: what is
    /// not in it was not sent. The VM [`MARK`] must exist.
    pub async fn settled(&mut self, node: &FakeNode, served: &Served) -> Vec<Value> {
        let quota = self.seq + 100;
        node.set_quota(MARK, quota);
        node.zfs_event(&format!("zones/{MARK}"), "set").await;
        let tag = json!({"mark": self.seq});
        node.tags(MARK, &tag);
        let id = i64::try_from(self.seq).unwrap() + 1000;
        node.set_zone(MARK, "running", Some(id));
        node.zone_event(MARK, "running", id).await;
        let mut all = Vec::new();
        loop {
            let event = self.soon().await;
            let vm = &event["vm"];
            let seen = vm["tags"] == tag && vm["zoneid"] == id && vm["quota"] == quota;
            let is_last = seen && event["zonename"] == MARK;
            all.push(event);
            if is_last {
                break;
            }
        }
        served.idle().await;
        let newest = served.json("/status").await["journal"]["newest"].as_u64().unwrap();
        while self.seq < newest {
            all.push(self.soon().await);
        }
        all.retain(|event| event["zonename"] != MARK);
        all
    }
}

impl Served {
    /// Waits until nothing is being read or about to be.
    pub async fn idle(&self) {
        self.status_until(|status| status["queue"]["idle"] == true).await;
    }

    /// Looks at `/status?full=1` until it is as wanted.
    pub async fn status_until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until("/status?full=1", wanted).await
    }

    /// Looks at this path until the answer is as wanted.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + LATE;
        loop {
            let answer = self.json(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "never as wanted: {answer:#}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits for so many more sweeps.
    pub async fn sweeps(&self, more: u64) {
        let wanted = self.counter("sweeps").await + more;
        self.status_until(|status| status["counters"]["sweeps"].as_u64() >= Some(wanted)).await;
    }

    pub async fn counter(&self, name: &str) -> u64 {
        self.json("/status").await["counters"][name].as_u64().unwrap()
    }
}

/// Waits for a condition that no event announces.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LATE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::task::yield_now().await;
    }
}
