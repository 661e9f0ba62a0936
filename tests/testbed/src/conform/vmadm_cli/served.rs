// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What a run talks to: a whole daemon on a recorded node, the recording itself, or nobody.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use daemon::Shutdown;
use futures_util::{StreamExt, stream};
use sdc_clients::http::Call;
use sdc_clients::vminfod::VmObject;
use serde_json::{Value, json as value};
use tokio::net::TcpListener;
use vm_model::js as json;
use vminfod::cli::supply::{FromDaemon, Supplied, Supplier, SupplyError};
use vminfod::config::Config;
use vminfod::node::Ctx;

use super::recording::{Case, Vms};
use crate::conform::vmload::recorded::Recorded;

/// Between recorded events.
const PACE: Duration = Duration::from_millis(5);

/// Something to ask, until it is dropped.
pub struct Served {
    address: SocketAddr,
    shutdown: Shutdown,
    node: Option<Node>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

impl Served {
    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The whole daemon on a recorded node.
    pub async fn daemon(node: Node) -> anyhow::Result<Served> {
        let ctx = node.recorded.ctx();
        let config = Config {
            root: ctx.root.dir().to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..Config::default()
        };
        let shutdown = Shutdown::new();
        let running = vminfod::serve(config, ctx.commands, shutdown.clone())
            .await
            .context("the daemon on the recorded node")?;
        let served = Served { address: running.address, shutdown, node: Some(node) };
        served.in_order().await
    }

    /// The same, or, where the daemon's order is another than that of the objects the runs were
    /// given (it lists VMs being received last), a way to it that sorts its list.
    async fn in_order(mut self) -> anyhow::Result<Served> {
        let order = self.node.as_ref().map(|node| node.order.clone()).unwrap_or_default();
        let direct = FromDaemon::new(&self.url(), "testbed")?;
        let vms = direct.objects(None).await?;
        if vms.iter().filter_map(|vm| vm.get("zonename")).eq(&order) {
            return Ok(self);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        self.address = listener.local_addr()?;
        let list = direct.clone();
        let app = Router::new()
            .route("/vms", get(|| async move { sorted(&list, &order).await }))
            .fallback(|path: axum::http::Uri| async move { passed_on(&direct, path.path()).await });
        spawn(listener, app, self.shutdown.clone());
        Ok(self)
    }

    /// What was recorded.
    pub async fn recorded(case: &Case, fixtures: &Path) -> anyhow::Result<Served> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let vms = match &case.vms {
            Vms::Down => {
                drop(listener);
                return Ok(Served { address, shutdown, node: None });
            }
            Vms::Objects(vms) => vms.clone(),
            Vms::Node(name) => expected(&fixtures.join(name))?,
        };
        let app = router(case, vms);
        spawn(listener, app, shutdown.clone());
        Ok(Served { address, shutdown, node: None })
    }
}

fn spawn(listener: TcpListener, app: Router, told: Shutdown) {
    tokio::spawn(async move {
        // Cancel-safe: the end of a case ends its server.
        tokio::select! {
            _ended = async { axum::serve(listener, app).await } => {}
            () = told.wait() => {}
        }
    });
}

async fn sorted(daemon: &FromDaemon, order: &[String]) -> Response {
    match daemon.objects(None).await {
        Ok(vms) => json::to_ascii(&by_name(vms, order)).into_response(),
        Err(error) => refused(&error),
    }
}

async fn passed_on(daemon: &FromDaemon, path: &str) -> Response {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match daemon.get(Call::get(&parts)).await {
        Ok(value) => json::to_ascii(&value).into_response(),
        Err(error) => refused(&error),
    }
}

fn refused(error: &SupplyError) -> Response {
    let status = match error {
        SupplyError::Status(status) => StatusCode::from_u16(*status).ok(),
        _ => None,
    };
    (status.unwrap_or(StatusCode::BAD_GATEWAY), error.to_string()).into_response()
}

fn by_name(mut vms: Vec<VmObject>, order: &[String]) -> Vec<VmObject> {
    vms.sort_by_key(|vm| {
        let name = vm.get("zonename").and_then(Value::as_str);
        order.iter().position(|known| Some(known.as_str()) == name)
    });
    vms
}

/// The objects of a recorded node without a daemon, in the order the runs were given them.
pub struct Direct {
    ctx: Ctx,
    order: Vec<String>,
}

impl Direct {
    /// What reads this node.
    pub fn new(node: &Node) -> Direct {
        Direct { ctx: node.recorded.ctx(), order: node.order.clone() }
    }
}

impl Supplier for Direct {
    fn objects<'a>(&'a self, only: Option<&'a str>) -> Supplied<'a> {
        Box::pin(async move { Ok(by_name(self.ctx.objects(only).await?, &self.order)) })
    }
}

fn router(case: &Case, vms: Value) -> Router {
    let (status, all, events) = (case.status.clone(), vms.clone(), lines(case, &vms));
    Router::new()
        .route("/ping", get(|| async { r#"{"ping":"pong"}"# }))
        .route("/status", get(|| async move { status.unwrap_or_else(|| value!({})).to_string() }))
        .route("/vms", get(|| async move { all.to_string() }))
        .route(
            "/vms/{name}",
            get(|extract::Path(name): extract::Path<String>| async move { one(&vms, &name) }),
        )
        .route("/events", get(|| async move { paced(events) }))
}

fn one(vms: &Value, name: &str) -> Response {
    let mut all = vms.as_array().into_iter().flatten();
    match all.find(|vm| vm["zonename"] == name) {
        Some(vm) => vm.to_string().into_response(),
        None => (StatusCode::NOT_FOUND, format!("VM Not Found: {name}")).into_response(),
    }
}

/// The lines of the stream, the first made of what was recorded of it.
fn lines(case: &Case, vms: &Value) -> Vec<String> {
    let ready = case.ready.clone().unwrap_or_else(|| value!({}));
    let first = value!({
        "type": "ready",
        "date": ready["date"],
        "uuid": ready["uuid"],
        "vms": vms.to_string(),
    });
    std::iter::once(first.to_string()).chain(case.events.iter().cloned()).collect()
}

/// One line after the other; the connection stays open.
fn paced(lines: Vec<String>) -> Body {
    let lines = stream::iter(lines).then(|line| async move {
        tokio::time::sleep(PACE).await;
        Ok::<Bytes, std::convert::Infallible>(Bytes::from(line + "\n"))
    });
    Body::from_stream(lines.chain(stream::pending()))
}

/// A recorded node on which nothing happens, its zones in the order of its objects.
pub struct Node {
    recorded: Recorded,
    order: Vec<String>,
}

impl Node {
    /// Brings the node in this directory to life.
    pub fn copy(dir: &Path) -> anyhow::Result<Node> {
        let vms = expected(dir)?;
        let names = vms.as_array().into_iter().flatten().filter_map(|vm| vm["zonename"].as_str());
        let order: Vec<String> = names.map(str::to_owned).collect();
        Ok(Node { recorded: Recorded::copy(dir)?.in_order(&order), order })
    }
}

fn expected(dir: &Path) -> anyhow::Result<Value> {
    let file = dir.join("expected/vms.json");
    let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(json::parse(&text)?)
}
