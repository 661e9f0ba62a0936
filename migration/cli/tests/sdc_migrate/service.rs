// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The service: answers by method and target, each answer once but for the last one.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A whole body; null is an empty one.
    Whole(u16, Value),
    /// Lines, then the end.
    Lines(Vec<Value>),
    /// Lines, then nothing for ever.
    Hangs(Vec<Value>),
}

/// The requests that came: method and target, and the body.
pub type Log = Arc<Mutex<Vec<(String, Value)>>>;

/// A service that plays a script.
#[derive(Default)]
pub struct Script {
    answers: BTreeMap<String, VecDeque<Answer>>,
}

impl Script {
    /// Adds an answer to requests such as `GET /migrations/U`.
    pub fn on(mut self, request: &str, answer: Answer) -> Script {
        self.answers.entry(request.to_owned()).or_default().push_back(answer);
        self
    }

    /// Serves for the rest of the test. Returns the address and the log.
    pub async fn serve(self) -> (String, Log) {
        let (answers, log) = (Arc::new(Mutex::new(self.answers)), Log::default());
        let noted = Arc::clone(&log);
        let app = Router::new().fallback(async move |request: Request| {
            let named = format!("{} {}", request.method(), request.uri());
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            noted.lock().unwrap().push((named.clone(), body));
            let mut answers = answers.lock().unwrap();
            let answer = answers.get_mut(&named).and_then(|queue| match queue.len() {
                0 | 1 => queue.front().cloned(),
                _ => queue.pop_front(),
            });
            let unknown =
                json!({"code": "NotScripted", "message": format!("not scripted: {named}")});
            respond(answer.unwrap_or(Answer::Whole(418, unknown)))
        });
        (serve(app).await, log)
    }
}

/// Serves an application for the rest of the test.
pub async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Makes a response.
pub fn respond(answer: Answer) -> Response {
    let text = |line: &Value| Ok::<_, Infallible>(Bytes::from(format!("{line}\n")));
    let lines = |lines: Vec<Value>| stream::iter(lines.iter().map(text).collect::<Vec<_>>());
    let body = match answer {
        Answer::Whole(status, value) => {
            let body = if value.is_null() { String::new() } else { value.to_string() };
            let built =
                Response::builder().status(status).header("content-type", "application/json");
            return built.body(Body::from(body)).unwrap();
        }
        Answer::Lines(all) => Body::from_stream(lines(all)),
        Answer::Hangs(all) => Body::from_stream(lines(all).chain(stream::pending())),
    };
    Response::builder().header("content-type", "application/x-json-stream").body(body).unwrap()
}

/// A recorded exchange of VMAPI.
pub struct Recorded {
    /// Method and target.
    pub request: String,
    pub answer: Answer,
    /// The answer's body.
    pub body: Value,
}

/// All recorded exchanges of these groups, by id.
pub fn recorded(groups: &[&str]) -> BTreeMap<String, Recorded> {
    let text = recordings::text("vmapi-transcripts.jsonl").unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_groups = lines.filter(|line| groups.iter().any(|group| line["group"] == *group));
    let found = of_groups.filter_map(|line| {
        let (request, response) = (&line["request"], &line["response"]);
        let status = u16::try_from(response["status"].as_u64()?).unwrap();
        let query = request["query"].as_str().unwrap_or_default();
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let (method, path) = (request["method"].as_str()?, request["path"].as_str()?);
        let stream = response["stream"].as_array();
        let answer = match stream {
            Some(lines) => Answer::Lines(lines.iter().map(|it| it["line"].clone()).collect()),
            None => Answer::Whole(status, response["body"].clone()),
        };
        let recorded = Recorded {
            request: format!("{method} {path}{query}"),
            answer,
            body: response["body"].clone(),
        };
        Some((line["id"].as_str()?.to_owned(), recorded))
    });
    found.collect()
}
