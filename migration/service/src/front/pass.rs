// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is not this service's goes to VMAPI, WebSockets such as its changefeed too. What would change a VM is judged
//! first.

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use daemon::http::Body;
use http::Response;

use super::answer::{READ, respond, whole};
use super::reading::change;
use super::shared::Front;
use super::upstream::is_web_socket;

/// Answers what is not this service's.
pub async fn on(State(front): State<Front>, request: Request) -> Response<Body> {
    let sent = async {
        let path = request.uri().path().to_owned();
        if let Some((change, uuid)) = change(request.method(), &path) {
            return front.judge(change, uuid, request).await;
        }
        let is_web_socket = is_web_socket(request.headers());
        if is_web_socket {
            let (parts, body) = whole(request, READ).await?;
            return front.upstream.connect(parts, body).await;
        }
        let (parts, body) = request.into_parts();
        match body.is_end_stream() {
            true => front.upstream.send(parts, bytes::Bytes::new()).await,
            false => front.upstream.pass(parts, body).await,
        }
    };
    respond(sent.await)
}
