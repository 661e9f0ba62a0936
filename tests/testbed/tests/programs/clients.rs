// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The clients against every fault rule of the mocks, over real sockets: the kind of the error, the
//! number of requests, and no second write where the first may have happened.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mocks::faults::{Action, Rule, Seen};
use mocks::napi::{Era, NewNic, Options, Server, Store};
use mocks::transport::InProcess;
use mocks::vmapi;
use sdc_clients::http::{HttpTransport, Timeouts};
use sdc_clients::napi::{Napi, NicList, NicQuery, NicState, NicUpdate};
use sdc_clients::retry::Policy;
use sdc_clients::vmapi::{VmQuery, Vmapi};
use sdc_clients::{Class, Error, Http, Jitter, MacAddr, Phase, Precondition};
use serde_json::json;

const CN: &str = "30000000-0000-4000-8000-000000000001";
const VM: &str = "40000000-0000-4000-8000-000000000001";
const MAC: &str = "90:b8:d0:00:00:01";
const NEW: &str = "90:b8:d0:00:00:02";
/// How often a read is tried; a write never more than once after it was sent.
const TRIES: u32 = 4;
/// Longer than the clients below wait for headers.
const LONG_MS: u64 = 2_000;

/// How long an answer is waited for that is not to come.
const SHORT: Duration = Duration::from_millis(150);
/// The same where it comes, be the machine ever so busy.
const LONG: Duration = Duration::from_secs(60);

/// A client that waits no longer than needed for this action.
fn http_under(url: &str, action: &Action) -> Http {
    let never =
        matches!(action, Action::Delay { .. } | Action::Hang { .. } | Action::DelayCommit { .. });
    http(url, if never { SHORT } else { LONG })
}

fn http(url: &str, headers: Duration) -> Http {
    let timeouts = Timeouts { headers: Some(headers), ..Timeouts::default() };
    let transport = Arc::new(HttpTransport::with_timeouts(timeouts).unwrap());
    let policy = Policy {
        initial: Duration::from_millis(1),
        max: Duration::from_millis(2),
        max_attempts: Some(TRIES),
        ..Policy::napi()
    };
    let http = Http::with_transport(url, "tests/1", transport).unwrap();
    http.retrying(policy, Jitter::from_seed(1))
}

fn local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verb {
    Get,
    List,
    Create,
    Update,
    Delete,
    /// A delete that carries the etag it read.
    DeleteIfMatch,
}

const VERBS: [Verb; 6] =
    [Verb::Get, Verb::List, Verb::Create, Verb::Update, Verb::Delete, Verb::DeleteIfMatch];

impl Verb {
    fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List)
    }

    fn method(self) -> &'static str {
        match self {
            Verb::Get | Verb::List => "GET",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Delete | Verb::DeleteIfMatch => "DELETE",
        }
    }

    async fn run(self, napi: &Napi, etag: Option<String>) -> Result<(), Error> {
        let mac: MacAddr = MAC.parse().unwrap();
        match self {
            Verb::Get => napi.get_nic(mac).await.map(drop),
            Verb::List => napi.list_nics(NicList::Nics, &NicQuery::default()).await.map(drop),
            Verb::Create => {
                let body = json!({ "mac": NEW, "belongs_to_type": "zone", "belongs_to_uuid": VM,
                    "owner_uuid": VM });
                napi.create_nic(body.as_object().unwrap()).await.map(drop)
            }
            Verb::Update => {
                let update = NicUpdate { state: Some(NicState::Stopped), ..NicUpdate::default() };
                napi.update_nic(mac, &update, Precondition::None).await.map(drop)
            }
            Verb::Delete => napi.delete_nic(mac, Precondition::None).await,
            Verb::DeleteIfMatch => napi.delete_nic(mac, Precondition::IfMatch(etag.unwrap())).await,
        }
    }

    /// Whether the write is in the store.
    fn applied(self, server: &Server) -> bool {
        let nic = server.store().nic(MAC);
        match self {
            Verb::Get | Verb::List => false,
            Verb::Create => server.store().nic(NEW).is_some(),
            Verb::Update => nic.is_some_and(|nic| nic["state"] == "stopped"),
            Verb::Delete | Verb::DeleteIfMatch => nic.is_none(),
        }
    }
}

/// One of every action. A new kind does not compile until [`expected`] knows it.
fn actions() -> Vec<Action> {
    let status = |status, retry_after| Action::Status { status, body: None, retry_after };
    vec![
        status(503, None),
        status(503, Some(3600)),
        status(429, None),
        status(500, None),
        Action::Delay { ms: LONG_MS },
        Action::Hang { ms: LONG_MS },
        Action::DelayCommit { ms: LONG_MS },
        Action::Cut,
        Action::DropResponse,
        Action::Garbage { text: "<html>".to_owned() },
        Action::EmptyBody,
        Action::Truncate { bytes: 5 },
        Action::ChangeRow,
        Action::DeleteRow,
        Action::FailWrite { after: 0 },
        Action::ForeignRecord { record: None },
        Action::MaxPage { limit: 1 },
        Action::RepeatPage,
    ]
}

/// What the contract makes of a rule: the class (`None` for success), the requests, and
/// whether the write is in the store (`None`: either, nobody can tell).
fn expected(action: &Action, verb: Verb) -> (Option<Class>, u32, Option<bool>) {
    let reads = verb.reads();
    let deletes = matches!(verb, Verb::Delete | Verb::DeleteIfMatch);
    let fine = (None, 1, Some(!reads));
    let again = |read: Class, write: Class, applied: Option<bool>| {
        if reads { (Some(read), TRIES, Some(false)) } else { (Some(write), 1, applied) }
    };
    let unknown = Class::UnknownOutcome;
    match action {
        // Asked for an hour of patience: not ours to wait out.
        Action::Status { retry_after: Some(_), .. } => (Some(Class::Unavailable), 1, Some(false)),
        Action::Status { status: 500, .. } => again(Class::Server, Class::Server, Some(false)),
        Action::Status { .. } => again(Class::Unavailable, Class::Unavailable, Some(false)),
        Action::Delay { .. } | Action::Hang { .. } => {
            again(Class::Timeout(Phase::Answer), unknown, None)
        }
        Action::DelayCommit { .. } if reads || verb == Verb::Create => fine,
        Action::DelayCommit { .. } => (Some(unknown), 1, None),
        Action::Cut => again(Class::Interrupted, unknown, Some(false)),
        Action::DropResponse => again(Class::Interrupted, unknown, Some(true)),
        // A 204 has no body to spoil.
        Action::Garbage { .. } | Action::EmptyBody | Action::Truncate { .. } if deletes => fine,
        Action::Garbage { .. } | Action::EmptyBody => (Some(Class::Protocol), 1, Some(!reads)),
        Action::Truncate { .. } => again(Class::Interrupted, unknown, Some(true)),
        Action::ChangeRow if verb == Verb::Update => (Some(Class::Server), 1, Some(false)),
        Action::ChangeRow if verb == Verb::DeleteIfMatch => {
            (Some(Class::Precondition), 1, Some(false))
        }
        Action::DeleteRow if verb == Verb::Update => (Some(Class::Server), 1, Some(false)),
        Action::DeleteRow if deletes => (Some(Class::NotFoundResource), 1, Some(true)),
        // NAPI alone has addresses, and tells an update that meets a write of its address so.
        Action::ChangeAddress if verb == Verb::Update => (Some(Class::Invalid), 1, Some(false)),
        Action::ChangeRow
        | Action::ChangeAddress
        | Action::DeleteRow
        | Action::ForeignRecord { .. }
        | Action::MaxPage { .. }
        | Action::FailWrite { .. }
        | Action::FailTask { .. }
        | Action::HangTask
        | Action::RepeatPage => fine,
    }
}

fn check(
    what: &str,
    outcome: Result<(), Error>,
    class: Option<Class>,
    requests: u32,
    log: &[Seen],
    reads: bool,
) {
    let got = outcome.as_ref().err().map(Error::class);
    assert_eq!(got, class, "{what}: {outcome:?}");
    assert_eq!(u32::try_from(log.len()).unwrap(), requests, "{what}: {outcome:?}");
    let ids: std::collections::BTreeSet<_> =
        log.iter().map(|seen| seen.headers.get("x-request-id").cloned()).collect();
    assert_eq!(ids.len(), 1, "{what}: one call, one request id");
    let Err(error) = outcome else { return };
    assert_eq!(error.attempts(), requests, "{what}: {error}");
    if !reads {
        assert!(!error.is_retryable(), "{what}: {error}");
    }
}

#[tokio::test]
async fn napi_client_against_every_rule() {
    for action in actions() {
        for verb in VERBS {
            let what = format!("{action:?} on {verb:?}");
            let server = Server::start(local(), Options::era(Era::Master)).await.unwrap();
            server.store().add_nic(NewNic::zone(MAC, VM, CN)).unwrap();
            // What has to be there first is asked for without any fault.
            let patient = Napi::new(http(&server.url(), LONG));
            let napi = Napi::new(http_under(&server.url(), &action));
            let etag = patient.get_nic(MAC.parse().unwrap()).await.unwrap().etag;
            server.store().log().clear();
            server.add_fault(Rule::any(action.clone()));
            let outcome = verb.run(&napi, etag).await;
            let (class, requests, applied) = expected(&action, verb);
            let log = server.requests();
            assert!(log.iter().all(|seen| seen.method == verb.method()), "{what}");
            if let Err(error) = &outcome
                && !verb.reads()
                && verb.applied(&server)
                && class != Some(Class::NotFoundResource)
            {
                assert!(error.may_have_applied(), "{what}: it did happen, {error}");
            }
            check(&what, outcome, class, requests, &log, verb.reads());
            if let Some(applied) = applied {
                assert_eq!(verb.applied(&server), applied, "{what}");
            }
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn the_pager_against_the_rules_of_lists() {
    let server = Server::start(local(), Options::era(Era::Master)).await.unwrap();
    for n in 0..1100 {
        server.store().add_nic(NewNic::zone(&format!("90b8d01{n:05}"), VM, CN)).unwrap();
    }
    let napi = Napi::new(http(&server.url(), LONG));
    let hasty = Napi::new(http(&server.url(), SHORT));
    let all_of = async |napi: &Napi| {
        server.store().log().clear();
        let outcome = napi.all_nics(NicList::Nics, &NicQuery::default()).await;
        (outcome, server.requests().len())
    };
    let all = || all_of(&napi);
    let (pages, requests) = all().await;
    assert_eq!((pages.unwrap().nics.len(), requests), (1100, 2));

    server.add_fault(Rule::any(Action::RepeatPage));
    let (outcome, requests) = all().await;
    assert_eq!((outcome.unwrap_err().class(), requests), (Class::Protocol, 2));
    server.store().faults().clear();

    // A page longer than what was asked for is no page.
    server.add_fault(Rule::any(Action::ForeignRecord { record: None }));
    let (outcome, requests) = all().await;
    assert_eq!((outcome.unwrap_err().class(), requests), (Class::Protocol, 1));
    server.store().faults().clear();

    // The second page fails for good: no half of a listing.
    let fault = Action::Status { status: 503, body: None, retry_after: None };
    server.add_fault(Rule::any(fault).after(1));
    let (outcome, requests) = all().await;
    assert_eq!((outcome.unwrap_err().class(), requests), (Class::Unavailable, 5));
    server.store().faults().clear();

    // Cut in the middle of the second page, once: asked for again and complete.
    server.add_fault(Rule::any(Action::Truncate { bytes: 100 }).after(1).times(1));
    let (outcome, requests) = all().await;
    assert_eq!((outcome.unwrap().nics.len(), requests), (1100, 3));
    server.store().faults().clear();

    // Too slow for ever: ever smaller pages, then the tries of the smallest, then an error.
    server.add_fault(Rule::any(Action::Delay { ms: LONG_MS }));
    let (outcome, requests) = all_of(&hasty).await;
    assert_eq!((outcome.unwrap_err().class(), requests), (Class::Timeout(Phase::Answer), 8));
}

#[tokio::test(start_paused = true)]
async fn a_page_has_the_cost_that_was_set() {
    // The client waits for 60 s: 500 records take 75 s, 250 half of it.
    let options = Options { record_cost: Duration::from_millis(150), ..Options::era(Era::Master) };
    let store = Store::new(options);
    for n in 0..1000 {
        store.add_nic(NewNic::zone(&format!("90b8d01{n:05}"), VM, CN)).unwrap();
    }
    let transport = Arc::new(InProcess::new(store.clone()));
    let napi = Napi::new(Http::with_transport("http://napi.test", "tests/1", transport).unwrap());
    let pages = napi.all_nics(NicList::Nics, &NicQuery::default()).await.unwrap();
    assert_eq!(pages.nics.len(), 1000);
    let limits: Vec<String> = store.log().all().into_iter().map(|seen| seen.query).collect();
    let asked = |limit: u32| {
        limits.iter().filter(|query| query.contains(&format!("limit={limit}&"))).count()
    };
    assert_eq!((asked(1000), asked(500)), (1, 1), "{limits:?}");
    assert!(asked(250) > 0, "{limits:?}");
}

#[tokio::test]
async fn vmapi_client_against_every_rule_it_shares() {
    for action in actions() {
        for verb in ["get", "list", "statuses", "put", "put all"] {
            let what = format!("{action:?} on {verb}");
            let server = vmapi::Server::start(local()).await.unwrap();
            server.store().set(VM, "running", Some(CN));
            server.add_fault(Rule::any(action.clone()));
            let client = Vmapi::new(http_under(&server.url(), &action));
            let record = json!({ "uuid": VM, "state": "stopped", "server_uuid": CN });
            let all = json!({ VM: &record });
            let outcome = match verb {
                "get" => client.get_vm(VM).await.map(drop),
                "list" => client.list_vms(&VmQuery::default()).await.map(drop),
                "statuses" => client.statuses(&[VM.to_owned()]).await.map(drop),
                "put" => client.put_vm(VM, record.as_object().unwrap()).await,
                _ => client.put_vms(CN, all.as_object().unwrap()).await,
            };
            let reads = !verb.starts_with("put");
            let class = match &action {
                Action::Status { status: 500, .. } => Some(Class::Server),
                Action::Status { .. } => Some(Class::Unavailable),
                Action::Delay { .. } | Action::Hang { .. } | Action::DelayCommit { .. }
                    if reads =>
                {
                    Some(Class::Timeout(Phase::Answer))
                }
                Action::Cut | Action::DropResponse | Action::Truncate { .. } if reads => {
                    Some(Class::Interrupted)
                }
                Action::Delay { .. }
                | Action::Hang { .. }
                | Action::DelayCommit { .. }
                | Action::Cut
                | Action::DropResponse
                | Action::Truncate { .. } => Some(Class::UnknownOutcome),
                Action::Garbage { .. } | Action::EmptyBody if reads => Some(Class::Protocol),
                Action::FailWrite { .. } if verb == "put all" => Some(Class::Server),
                _ => None,
            };
            let waits = matches!(action, Action::Status { retry_after: Some(_), .. });
            let once = !reads || waits || class.is_none() || class == Some(Class::Protocol);
            let requests = if once { 1 } else { TRIES };
            check(&what, outcome, class, requests, &server.requests(), reads);
            if matches!(action, Action::DropResponse) && !reads {
                assert_eq!(server.store().get(VM).unwrap()["state"], "stopped", "{what}");
            }
            server.stop().await;
        }
    }
}

#[tokio::test]
async fn a_service_that_is_away_is_asked_again_whatever_the_verb() {
    let nobody = rig::port::Port::local().unwrap();
    let napi = Napi::new(http(&nobody.url(), LONG));
    for verb in VERBS {
        let error = verb.run(&napi, Some("x".to_owned())).await.unwrap_err();
        assert_eq!((error.class(), error.attempts()), (Class::Connect, TRIES), "{verb:?}: {error}");
        assert!(!error.may_have_applied());
    }
}

#[tokio::test]
async fn vmapi_pages_go_on_after_the_last_one_seen() {
    let server = vmapi::Server::start(local()).await.unwrap();
    for n in 0..2300 {
        server.store().set(&format!("40000000-0000-4000-8000-{n:012}"), "running", Some(CN));
    }
    let vms = Vmapi::new(http(&server.url(), LONG)).list_vms(&VmQuery::default()).await.unwrap();
    assert_eq!((vms.len(), server.requests().len()), (2300, 3));
}
