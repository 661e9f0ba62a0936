// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use sdc_clients::Error;
use sdc_clients::agents::{Known, NodeAgents};
use sdc_clients::cnapi::Cnapi;
use sdc_clients::http::{Request, Response, Transport};
use sdc_clients::identity::Identity;

use super::*;
use daemon::command::{Output, Run};
use migration_core::intent::End;
use migration_core::protocol::About;

const CN: Uuid = Uuid::from_u128(1);
const VMS: [Uuid; 3] = [Uuid::from_u128(11), Uuid::from_u128(12), Uuid::from_u128(13)];

const MIGRATIONS: [Uuid; 2] = [Uuid::from_u128(21), Uuid::from_u128(22)];

/// Zones with autoboot and hidden, and those that run; the second boots as kvm and bhyve do.
struct Zones(Mutex<BTreeMap<String, (bool, bool)>>, Mutex<Vec<String>>);

impl Zones {
    fn new() -> Zones {
        let zones = VMS.iter().map(|vm| (vm.to_string(), (true, false))).collect();
        Zones(Mutex::new(zones), Mutex::default())
    }

    fn of(&self, vm: Uuid) -> (bool, bool) {
        self.0.lock().unwrap()[&vm.to_string()]
    }
}

impl Commands for Zones {
    fn run(&self, call: Call) -> Run<'_> {
        let Call { program, args, .. } = call;
        assert_eq!(args[0].as_str(), "-z");
        let output =
            |text: String| Output { status: 0, stdout: text.into_bytes(), stderr: Vec::new() };
        if program == Program::Zoneadm {
            let mut up = self.1.lock().unwrap();
            let print = match args[2].as_str() {
                "list" if up.contains(&args[1]) => format!("7:{}:running:/zones\n", args[1]),
                "list" => format!("-:{}:installed:/zones\n", args[1]),
                verb => {
                    assert_eq!((verb, up.contains(&args[1])), ("halt", true));
                    up.retain(|it| *it != args[1]);
                    String::new()
                }
            };
            return std::future::ready(Ok(output(print))).boxed();
        }
        assert_eq!(program, Program::Zonecfg);
        let mut zones = self.0.lock().unwrap();
        let is_hvm = args[1] == VMS[1].to_string();
        let (autoboot, hidden) = zones.get_mut(&args[1]).unwrap();
        let print = match args[2].as_str() {
            "info autoboot" => format!("autoboot: {}", *autoboot && !is_hvm),
            "info attr name=vm-autoboot" if is_hvm => {
                format!("attr:\n\tname: vm-autoboot\n\ttype: boolean\n\tvalue: {autoboot}")
            }
            set if set.ends_with("autoboot=false")
                || set == "select attr name=vm-autoboot; set value=false; end" =>
            {
                *autoboot = false;
                String::new()
            }
            set if set.starts_with("add attr; set name=do-not-inventory;") => {
                *hidden = true;
                String::new()
            }
            info => {
                assert!(info.starts_with("info attr name="), "{info}");
                "No such attr resource.".to_owned()
            }
        };
        std::future::ready(Ok(output(print))).boxed()
    }
}

/// A service that answers, or does not: the migrations with replaced copies, and those that it knows.
struct Service(Option<(Vec<Uuid>, Vec<Uuid>)>);

impl Transport for Service {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, Error>> {
        let Some((replaced, known)) = &self.0 else {
            let error = Error::connect(&request.method, request.target(), "no service listens");
            return std::future::ready(Err(error)).boxed();
        };
        assert_eq!(request.peer, Some(Identity::Service));
        assert_eq!(request.url.path(), format!("/agents/{CN}/replaced"));
        for migration in MIGRATIONS {
            assert!(request.target().contains(&migration.to_string()));
        }
        let (status, headers) = (StatusCode::OK, HeaderMap::new());
        let body = serde_json::json!({"replaced": replaced, "known": known}).to_string();
        std::future::ready(Ok(Response { status, headers, body: body.into() })).boxed()
    }
}

/// What became of the zones, and what the state file has, where this service answers.
async fn booted(answer: Option<(Vec<Uuid>, Vec<Uuid>)>, autoboot: bool) -> (Zones, Memory) {
    looked(answer, autoboot, &[]).await
}

/// The same where these run already.
async fn looked(
    answer: Option<(Vec<Uuid>, Vec<Uuid>)>,
    autoboot: bool,
    up: &[Uuid],
) -> (Zones, Memory) {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::read(dir.path(), CN).await.unwrap();
    for (at, vm) in VMS[..2].iter().enumerate() {
        let migration = MIGRATIONS[at];
        let about = About { migration, revision: 1, nonce: None, vm: *vm, end: End::Source };
        memory.accept(&about).await.unwrap();
    }
    let zones = Zones::new();
    zones.1.lock().unwrap().extend(up.iter().map(Uuid::to_string));
    if !autoboot {
        zones.0.lock().unwrap().values_mut().for_each(|(autoboot, _)| *autoboot = false);
    }
    let service: Arc<dyn Transport> = Arc::new(Service(answer));
    let cnapi = sdc_clients::Http::with_transport("http://cnapi", "test", service.clone());
    let known = Known { port: 0, urls: BTreeMap::new() };
    let cnapi = Cnapi::new(cnapi.unwrap());
    let agents = NodeAgents::new(known, cnapi, service.clone(), "test");
    let peers = Peers::new(service, agents, CN);
    before_zones(&memory, &zones, &peers, ("http://service", CN)).await.unwrap();
    drop(memory);
    let again = Memory::read(dir.path(), CN).await.unwrap();
    (zones, again)
}

#[tokio::test(start_paused = true)] // M48
async fn a_copy_that_was_replaced_is_hidden_and_does_not_boot() {
    for at in [0, 1] {
        let answer = Some((vec![MIGRATIONS[at]], MIGRATIONS.to_vec()));
        let (zones, memory) = booted(answer, true).await;
        assert_eq!(zones.of(VMS[at]), (false, true));
        assert_eq!((zones.of(VMS[1 - at]), zones.of(VMS[2])), ((true, false), (true, false)));
        let found: Vec<Uuid> =
            memory.open().into_values().filter(|it| it.replaced).map(|it| it.vm).collect();
        assert_eq!(found, [VMS[at]]);
    }
}

#[tokio::test(start_paused = true)] // M48
async fn while_no_service_answers_only_what_has_an_open_migration_stays_down_and_hidden() {
    let (zones, memory) = booted(None, true).await;
    assert_eq!((zones.of(VMS[0]), zones.of(VMS[1])), ((false, true), (false, true)));
    assert_eq!(zones.of(VMS[2]), (true, false));
    let all = |memory: &Memory| memory.open().into_values().map(|it| it.waits).collect::<Vec<_>>();
    assert_eq!(all(&memory), [Some(Taken { autoboot: true, shown: true }); 2]);
    // What does not boot with its node may have been replaced too.
    let (zones, memory) = booted(None, false).await;
    assert_eq!(zones.of(VMS[0]), (false, true));
    assert_eq!(all(&memory), [Some(Taken { autoboot: false, shown: true }); 2]);
}

#[tokio::test(start_paused = true)] // M48 M101
async fn on_a_node_that_is_up_what_was_replaced_is_halted_and_what_no_service_answers_for_runs_on()
{
    let answer = Some((vec![MIGRATIONS[0]], vec![MIGRATIONS[0]]));
    let (zones, memory) = looked(answer, true, &[VMS[0], VMS[1], VMS[2]]).await;
    assert_eq!((zones.of(VMS[0]), zones.of(VMS[1])), ((false, true), (true, false)));
    assert_eq!(*zones.1.lock().unwrap(), [VMS[1].to_string(), VMS[2].to_string()]);
    assert!(memory.get(MIGRATIONS[1]).unwrap().waits.is_none());
}

#[tokio::test(start_paused = true)] // M101
async fn a_store_that_does_not_know_an_open_migration_answers_nothing() {
    let (zones, memory) = booted(Some((vec![], vec![MIGRATIONS[1]])), true).await;
    assert_eq!((zones.of(VMS[0]), zones.of(VMS[1])), ((false, true), (true, false)));
    let taken = memory.get(MIGRATIONS[0]).unwrap().waits;
    assert_eq!(taken, Some(Taken { autoboot: true, shown: true }));
    assert_eq!(memory.get(MIGRATIONS[1]).unwrap().waits, None);
}
