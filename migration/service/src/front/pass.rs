// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What is not this service's goes to VMAPI, WebSockets such as its changefeed too. What would change a VM is judged
//! first.

use axum::body::HttpBody as _;
use axum::extract::Request;

use super::answer::{Answer, READ, whole};
use super::reading::change;
use super::shared::Front;
use super::upstream::is_web_socket;

impl Front {
    /// Answers what is not this service's.
    pub async fn pass(&self, request: Request) -> Answer {
        let path = request.uri().path().to_owned();
        if let Some((change, uuid)) = change(request.method(), &path) {
            return self.judge(change, uuid, request).await;
        }
        if is_web_socket(request.headers()) {
            let (parts, body) = whole(request, READ).await?;
            return self.upstream.connect(parts, body).await;
        }
        let (parts, body) = request.into_parts();
        match body.is_end_stream() {
            true => self.upstream.send(parts, bytes::Bytes::new()).await,
            false => self.upstream.pass(parts, body).await,
        }
    }
}
