// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The zones of services: `deploy/zone/setup.sh` in a root of its own, with doubles of what the zone has, again after
//! the root was made anew; and a reprovision on real ZFS.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::process::{self, Child, Finished};

use super::common::{self, program};

const LATE: Duration = Duration::from_secs(60);
const JAIL: [&str; 3] = ["-r", "-m", "--"];
const ZONE: &str = "5e1f0a5e-0000-4000-8000-000000000001";

/// The zones, and the configuration that config-agent writes for each.
const ZONES: [(&str, &str); 3] = [
    ("volapi", "opt/smartdc/volapi/etc/volapi.json"),
    ("migration-service", "opt/smartdc/migration-service/etc/config.json"),
    ("feed", "data/feed/nats.conf"),
];

/// Doubles of the zone's commands: each notes its call; `zfs` knows one delegated dataset, whose state is a folder.
const COMMANDS: [(&str, &str); 5] = [
    ("zonename", "echo ZONE"),
    ("svccfg", "echo \"svccfg $*\" >>/calls; [ \"$1\" = import ] && [ -f \"$2\" ]"),
    ("svcadm", "echo \"svcadm $*\" >>/calls"),
    ("mdata-put", "echo \"mdata-put $*\" >>/calls"),
    (
        "zfs",
        "[ -d /dataset ] || { echo \"cannot open: dataset does not exist\" >&2; exit 1; }\n\
         case \"$1 $5\" in\n\
         'get mountpoint') cat /dataset/mountpoint 2>/dev/null || echo /zones/ZONE/data ;;\n\
         'get mounted') [ -f /dataset/mounted ] && echo yes || echo no ;;\n\
         set*) echo \"${2#mountpoint=}\" >/dataset/mountpoint; touch /dataset/mounted ;;\n\
         mount*) touch /dataset/mounted ;;\n\
         list*) echo zones/ZONE/data ;;\n\
         *) echo \"zfs $*: not known here\" >&2; exit 2 ;;\n\
         esac",
    ),
];

/// A double of sdc-scripts: config-agent's run writes each file of the local manifests, and what SAPI does not have is
/// an empty text in it.
const UTIL: &str = r#"
sdc_common_setup() {
    for folder in "$CONFIG_AGENT_LOCAL_MANIFESTS_DIRS"/sapi_manifests/*; do
        path=$(sed -n 's/.*"path": "\(.*\)".*/\1/p' "$folder/manifest.json")
        sed -e "s/{{{HUB_DATA_IN_USE}}}/$(cat /in-use)/" -e 's/{{{[^}]*}}}//g' "$folder/template" >"$path"
    done
}
sdc_log_rotation_add() { echo "rotate $1" >>/calls; }
sdc_log_rotation_setup_end() { echo "rotation ends" >>/calls; }
sdc_setup_complete() { echo complete >>/calls; }
"#;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn run(program: &str, args: &[&str]) -> Finished {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(process::run(Path::new(program), args, LATE)).unwrap()
}

fn put(file: &Path, text: &str, mode: u32) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A zone: its root, and its delegated dataset as the folder `data` in it.
struct Zone {
    dir: tempfile::TempDir,
    program: &'static str,
}

impl Zone {
    fn new(program: &'static str) -> Zone {
        let zone = Zone { dir: tempfile::tempdir().unwrap(), program };
        zone.image();
        zone
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Puts the image's files into the root, without what only its builder can give.
    fn image(&self) {
        let (name, folder) = (self.program, format!("opt/smartdc/{}", self.program));
        let copy = |from: &str, to: &str| {
            let text = std::fs::read_to_string(deploy(from))
                .unwrap_or_else(|error| panic!("{from}: {error}"));
            put(&self.at(to), &text, 0o755);
        };
        copy("zone/setup.sh", "opt/smartdc/boot/setup.sh");
        copy("zone/configure.sh", "opt/smartdc/boot/configure.sh");
        copy(&format!("zone/{name}.conf"), "opt/smartdc/boot/zone.conf");
        let (smf, sapi) = match name {
            "feed" => ("zone/feed/feed.xml".to_owned(), "zone/feed".to_owned()),
            _ => (format!("smf/{name}.xml"), format!("sapi/{name}")),
        };
        copy(&smf, &format!("{folder}/smf/manifests/{name}.xml"));
        for file in ["manifest.json", "template"] {
            copy(&format!("{sapi}/{file}"), &format!("{folder}/sapi_manifests/{name}/{file}"));
        }
        for (command, does) in COMMANDS {
            put(
                &self.at(&format!("opt/local/bin/{command}")),
                &format!("#!/bin/sh\n{}\n", does.replace("ZONE", ZONE)),
                0o755,
            );
        }
        for folder in ["usr", "root", "data", "dev"] {
            std::fs::create_dir_all(self.at(folder)).unwrap();
        }
        put(&self.at("in-use"), "", 0o644);
        for link in ["bin", "lib", "lib64", "sbin"] {
            let _there = std::os::unix::fs::symlink(format!("usr/{link}"), self.at(link));
        }
    }

    /// What the builder of the image gives.
    fn inputs(&self) {
        put(&self.at("opt/smartdc/boot/lib/util.sh"), UTIL, 0o755);
        put(&self.at("opt/smartdc/config-agent/agent.js"), "", 0o644);
        put(&self.at("opt/smartdc/feed/bin/nats-server"), "", 0o755);
    }

    /// Runs setup.sh with a read-only `/usr`. Returns its exit status, what it said, and the calls that it made.
    fn setup(&self) -> (Option<i32>, String, String) {
        let _none = std::fs::remove_file(self.at("calls"));
        let script = "set -e; cd \"$0\"; mount --rbind /usr usr; mount -o remount,bind,ro usr; \
                      mount --rbind /dev dev; exec chroot . /opt/smartdc/boot/setup.sh";
        let root = self.dir.path().to_string_lossy();
        let args = [&JAIL[..], &["sh", "-c", script, &root]].concat();
        let done = run("/usr/bin/unshare", &args);
        let calls = std::fs::read_to_string(self.at("calls")).unwrap_or_default();
        (done.code, done.stdout + &done.stderr, calls)
    }

    /// A reprovision: the root is new, and only what is in `data` stays.
    fn reprovision(&self) {
        for entry in std::fs::read_dir(self.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().unwrap().to_str().unwrap() {
                "data" | "dataset" | "usr" | "dev" => {}
                _ if path.is_symlink() || path.is_file() => std::fs::remove_file(path).unwrap(),
                _ => std::fs::remove_dir_all(path).unwrap(),
            }
        }
        self.image();
        self.inputs();
    }

    /// Every file of the dataset with its mode.
    fn data(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        let (mut found, mut left) = (BTreeMap::new(), vec![self.at("data")]);
        while let Some(path) = left.pop() {
            let mode = path.metadata().unwrap().permissions().mode();
            let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if path.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            found.insert(path, (mode, bytes));
        }
        found
    }
}

fn can_jail() -> bool {
    let can = run("/usr/bin/unshare", &[&JAIL[..], &["mount", "--rbind", "/dev", "/mnt"]].concat());
    if can.code != Some(0) {
        eprintln!("skipped: no mounts can be made here: {}", can.stderr.trim());
    }
    can.code == Some(0)
}

#[test] // Z10, Z11
fn a_zone_is_set_up_again_after_each_new_root_and_changes_nothing_that_it_keeps() {
    if !can_jail() {
        return;
    }
    for (program, config) in ZONES {
        let zone = Zone::new(program);
        std::fs::create_dir(zone.at("dataset")).unwrap();
        let (code, said, calls) = zone.setup();
        assert!(code != Some(0) && said.contains("without SDC_SCRIPTS"), "{program}: {said}");
        assert_eq!(calls, "", "{program}");
        zone.inputs();
        std::fs::remove_dir(zone.at("dataset")).unwrap();
        let (code, said, calls) = zone.setup();
        assert!(code != Some(0) && said.contains("no delegated dataset"), "{program}: {said}");
        assert_eq!(calls, "", "{program}");
        std::fs::create_dir(zone.at("dataset")).unwrap();
        let (code, said, calls) = zone.setup();
        assert_eq!(code, Some(0), "{program}: {said}");
        assert!(zone.at(config).exists() && calls.ends_with("complete\n"), "{program}: {calls}");
        assert!(calls.contains(&format!("rotate {program}\n")), "{program}: {calls}");
        assert!(!calls.contains("svcadm enable"), "an operator enables it first: {calls}");
        assert_eq!(std::fs::read_to_string(zone.at("dataset/mountpoint")).unwrap(), "/data\n");
        put(&zone.at(&format!("data/{program}/trust/identity.json")), "a key", 0o600);
        let kept = |zone: &Zone| {
            let mut data = zone.data();
            data.remove(&zone.at("data/feed/nats.conf")); // config-agent's
            data
        };
        let before = kept(&zone);
        for _ in 0..2 {
            zone.reprovision();
            put(&zone.at("in-use"), "2026-11-28", 0o644);
            let (code, said, calls) = zone.setup();
            assert_eq!(code, Some(0), "{program}: {said}");
            assert_eq!(kept(&zone), before, "{program}");
            let enabled = format!("svcadm enable svc:/smartdc/site/{program}:default\n");
            assert!(calls.contains(&enabled), "{program} is in use: {calls}");
        }
        // Once more in the same root, as after a set-up that was killed.
        let (code, said, _) = zone.setup();
        assert_eq!((code, kept(&zone)), (Some(0), before), "{program}: {said}");
        let profile = std::fs::read_to_string(zone.at("root/.profile")).unwrap();
        assert_eq!(profile.lines().count(), 1, "{profile}");
    }
}

/// migration-service with its records and its authority below `/data` of the zone.
struct Service {
    config: String,
    child: Option<Child>,
}

impl Service {
    fn new(dir: &Path, data: &Path) -> Service {
        let config = dir.join("config.json");
        let data = data.join("migration-service");
        let away = "http://127.0.0.1:1";
        let text = serde_json::json!({
            "listen": "127.0.0.1:0", "status": { "listen": "127.0.0.1:0" }, "upstream_vmapi": away,
            "cnapi_url": away, "napi_url": away, "imgapi_url": away, "papi_url": away,
            "store": { "file": data.join("store.redb") }, "data_in_use": "2026-11-28",
            "trust": { "listen": "127.0.0.1:0", "authority": data.join("authority.json") },
            "control_socket": dir.join("run/control.sock"),
        });
        std::fs::write(&config, text.to_string()).unwrap();
        Service { config: config.to_string_lossy().into_owned(), child: None }
    }

    async fn start(&mut self) -> std::io::Result<()> {
        let args = ["@migration-service", "serve", "--config", &self.config];
        let mut child = Child::spawn("migration-service", &program(), &args)?;
        child.said("migration-service is listening").await?;
        child.ignore();
        self.child = Some(child);
        Ok(())
    }

    async fn stop(&mut self) {
        self.child.take().unwrap().stop(LATE).await.unwrap();
    }

    async fn trust(&self, words: &[&str]) -> String {
        let args = [&["@sdc-migrate", "trust", "--config", &self.config], words].concat();
        let done = common::run(&args).await;
        assert_eq!(done.code, Some(0), "{words:?}: {}{}", done.stdout, done.stderr);
        done.stdout
    }
}

#[tokio::test] // Z1, Z12
#[ignore = "servers: `.ci/run` has it in its lane of programs"]
async fn records_authority_and_certificates_outlive_a_reprovision_on_real_zfs() {
    if let Some(why) = rig::why_not() {
        eprintln!("skipped: {why}");
        return;
    }
    let cn = rig::start(1, 1 << 28).unwrap().remove(0);
    let zfs = |line: &str| {
        let done = cn.zfs(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert!(done.status.success(), "zfs {line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    // zfs-fuse lets go of a dataset a moment after the last file of it was closed.
    let renamed = async |names: String| {
        let done = async || {
            let words = names.split(' ').collect::<Vec<_>>();
            cn.zfs(&[&["rename"], &*words].concat()).unwrap().status.success()
        };
        common::until("the dataset is renamed", done).await;
    };
    for line in ["create zones/image", "snapshot zones/image@final"] {
        zfs(line);
    }
    let (top, away, old) =
        (format!("zones/{ZONE}"), format!("zones/{ZONE}-data"), format!("zones/{ZONE}-root"));
    zfs(&format!("clone zones/image@final {top}"));
    zfs(&format!("create {top}/data"));
    let dir = tempfile::tempdir().unwrap();
    let mut service = Service::new(dir.path(), &cn.path(&format!("{top}/data"), ""));
    // Marked as in use, it does not begin with an empty /data.
    let refused = service.start().await.unwrap_err().to_string();
    assert!(refused.contains("in use since 2026-11-28"), "{refused}");
    let text = std::fs::read_to_string(&service.config).unwrap();
    std::fs::write(&service.config, text.replace("2026-11-28", "")).unwrap();
    service.start().await.unwrap();
    service.trust(&["init"]).await;
    service.trust(&["token", "operator"]).await;
    let before = [service.trust(&["export"]).await, service.trust(&["list", "-j"]).await];
    service.stop().await;
    std::fs::write(&service.config, text).unwrap();
    std::fs::write(cn.path(&top, "lost"), "of the old root").unwrap();
    // What vmadm does to a stopped zone.
    renamed(format!("{top}/data {away}")).await;
    renamed(format!("{top} {old}")).await;
    zfs(&format!("clone zones/image@final {top}"));
    zfs(&format!("destroy -r {old}"));
    renamed(format!("{away} {top}/data")).await;
    assert!(!cn.path(&top, "lost").exists());
    service.start().await.unwrap();
    assert_eq!([service.trust(&["export"]).await, service.trust(&["list", "-j"]).await], before);
    service.stop().await;
}
