// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Jobs: those of VMAPI, and the operations of migrations.

use mocks::workflow;
use pretty_assertions::assert_eq;

use super::*;

const JOB: &str = "11111111-2222-4333-8444-555555555555";

/// A record of this VM with one operation that has ended.
fn begun() -> Record {
    record(json!({"vm_uuid": VM, "state": "paused", "phase": "begin", "progress_history": [{
        "type": "progress", "phase": "begin", "state": "successful", "job_uuid": JOB,
        "started_timestamp": "2026-02-28T00:00:00.000Z",
        "finished_timestamp": "2026-02-28T00:00:01.000Z",
    }]}))
}

#[tokio::test] // M240
async fn a_job_that_is_no_operation_is_vmapis_and_lists_have_both() {
    let (mock, jobs) = (vmapi::Store::default(), workflow::Store::default());
    mock.keep_jobs(jobs.clone());
    let world = world_of(store::Store::in_memory().unwrap(), mock).await;
    world.keep(&begun()).await;
    let params = |vm: &str, task: &str| json!({"vm_uuid": vm, "task": task}).as_object().cloned();
    let add = |vm, task| jobs.add(task, &params(vm, task).unwrap())["uuid"].clone();
    let (theirs, other) = (add(VM, "reboot"), add(SERVER, "reboot"));
    let get = async |path: &str| {
        let request = Request::get(path).header("accept-encoding", "gzip").body(Body::empty());
        let answer = call(world.routes.clone(), request.unwrap()).await;
        (answer.status().as_u16(), read(answer).await)
    };
    // Byte for byte what VMAPI says.
    let direct = json!(jobs.get(theirs.as_str().unwrap()).unwrap());
    assert_eq!(get(&format!("/jobs/{}", theirs.as_str().unwrap())).await, (200, direct));
    for unknown in ["00000000-0000-4000-8000-00000000abcd", "no-uuid"] {
        assert_eq!(get(&format!("/jobs/{unknown}")).await.0, 404, "{unknown}");
        let asked = world.vmapi.requests().pop().unwrap().target();
        assert_eq!(asked, format!("/jobs/{unknown}"));
    }
    assert_eq!(get(&format!("/jobs/{JOB}")).await.1["name"], json!("migrate-begin"));
    let (ours, none) = (json!(JOB), Vec::<Value>::new());
    for (path, want) in [
        ("/jobs".to_owned(), vec![ours.clone(), other.clone(), theirs.clone()]),
        (format!("/jobs?vm_uuid={VM}"), vec![ours.clone(), theirs.clone()]),
        (format!("/vms/{VM}/jobs"), vec![ours.clone(), theirs.clone()]),
        (format!("/jobs?vm_uuid={VM}&task=migrate-begin"), vec![ours.clone()]),
        (format!("/jobs?vm_uuid={VM}&task=migrate-sync"), none.clone()),
        (format!("/jobs?vm_uuid={VM}&execution=succeeded"), vec![ours.clone()]),
        (format!("/jobs?vm_uuid={SERVER}&task=reboot"), vec![other.clone()]),
        ("/jobs?vm_uuid=nonsense".to_owned(), none),
    ] {
        let (status, body) = get(&path).await;
        let uuids: Vec<Value> =
            body.as_array().unwrap().iter().map(|it| it["uuid"].clone()).collect();
        assert_eq!((status, uuids), (200, want), "{path}");
    }
}
