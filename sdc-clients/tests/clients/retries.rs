// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is sent again, how often and after which wait, and what never is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pretty_assertions::assert_eq;
use sdc_clients::http::Call;
use sdc_clients::retry::Policy;
use sdc_clients::{Class, Error, Http, Jitter, Phase};
use serde_json::json;

use super::http::method;
use crate::script::{Script, answer, raw};

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_sent_again() {
    for name in ["GET", "PUT"] {
        let tries = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&tries);
        let script = Script::new(move |request| {
            let n = count.fetch_add(1, Ordering::SeqCst);
            async move {
                if n < 3 {
                    return Err(Error::connect(&request.method, request.target(), "refused"));
                }
                Ok(answer(200, &json!({ "ok": true })))
            }
        });
        let reply = script.http().execute(Call::new(method(name), &["x"])).await.unwrap();
        assert_eq!(reply.attempts(), 4);
        let ids: std::collections::HashSet<_> = script
            .log
            .lock()
            .unwrap()
            .iter()
            .map(|(_, r)| r.headers["x-request-id"].to_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids.len(), 1, "one id for one logical call");
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_is_waited_out_for_reads_only() {
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let script = Script::new(move |_| {
        let n = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut answer = answer(if n == 0 { 503 } else { 200 }, &json!({ "message": "wait" }));
            answer.headers.insert("retry-after", "7".parse().unwrap());
            Ok(answer)
        }
    });
    let error = script.http().execute(Call::new(method("DELETE"), &["x"])).await.unwrap_err();
    assert_eq!(error.class(), Class::Unavailable);
    assert_eq!(script.count(), 1);

    tries.store(0, Ordering::SeqCst);
    script.http().execute(Call::get(&["x"])).await.unwrap();
    let times = script.times();
    let waited = times[2] - times[1];
    assert!(waited >= Duration::from_secs(7), "Retry-After is honoured, waited {waited:?}");
    assert!(waited <= Duration::from_millis(7_510), "plus jitter, waited {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_goes_to_the_caller() {
    let script = Script::new(|_| async {
        let mut answer = answer(429, &json!({}));
        answer.headers.insert("retry-after", "3600".parse().unwrap());
        Ok(answer)
    });
    let error = script.http().execute(Call::get(&["x"])).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3600)));
    assert_eq!(script.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_after_counts_against_the_policys_end() {
    let script = Script::new(|_| async {
        let mut answer = answer(503, &json!({}));
        answer.headers.insert("retry-after", "50".parse().unwrap());
        Ok(answer)
    });
    let http = script.http().retrying(Policy::napi(), Jitter::from_seed(1));
    http.execute(Call::get(&["x"])).await.unwrap_err();
    // A second wait would end after the policy's 90 s: the caller hears of it at once.
    let times = script.times();
    assert_eq!(times.len(), 2, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn retries_are_paid_from_a_budget() {
    let script = Script::new(|_| async { Ok(answer(503, &json!({}))) });
    let http = script.http().retrying(Policy::napi(), Jitter::from_seed(1));
    for _ in 0..200 {
        http.execute(Call::get(&["x"])).await.unwrap_err();
    }
    let retries = script.count() - 200;
    assert!(retries <= 20 + 20, "twenty saved and a tenth of 200 earned, was {retries}");
    assert!(retries >= 30, "the budget must be usable, was {retries}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_means_what_was_sent() {
    let script = Script::new(|_| std::future::pending());
    let http = script.http().without_retries();
    let read = http.execute(Call::get(&["x"])).await.unwrap_err();
    assert_eq!(read.class(), Class::Timeout(Phase::Answer));
    assert!(read.is_retryable());
    let write = http.execute(Call::new(method("PUT"), &["x"])).await.unwrap_err();
    assert_eq!(write.class(), Class::UnknownOutcome);
    assert!(write.may_have_applied() && !write.is_retryable());
    let elapsed = script.times()[1];
    assert!(elapsed >= Duration::from_secs(30) && elapsed < Duration::from_secs(31));
}

#[tokio::test]
async fn a_lost_answer_to_a_write_is_sent_once() {
    for name in ["PUT", "DELETE", "POST"] {
        let (base, heads) = raw(&[""]).await;
        let http = Http::new(&base, "t").unwrap();
        let error = http.execute(Call::new(method(name), &["x"])).await.unwrap_err();
        assert_eq!(error.class(), Class::UnknownOutcome, "{error}");
        assert!(error.may_have_applied());
        assert_eq!(heads.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_read_is_asked_for_again() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"a\": 1}";
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":";
    let (base, heads) = raw(Box::leak(Box::new(["", cut, ok]))).await;
    let quick = Policy { initial: Duration::from_millis(1), ..Policy::napi() };
    let http = Http::new(&base, "t").unwrap().retrying(quick, Jitter::from_seed(1));
    let reply = http.execute(Call::get(&["x"])).await.unwrap();
    assert_eq!(reply.object().unwrap()["a"], 1);
    assert_eq!(heads.lock().unwrap().len(), 3);
}
