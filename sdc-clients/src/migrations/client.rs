// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The routes other than the watch.

use std::time::Duration;

use ::http::Method;
use serde_json::{Map, Value};

use super::ended::{Ended, HistoryQuery};
use super::types::{Answer, Estimate, Migration, MigrationQuery, Options, Signs, Verification};
use crate::error::Error;
use crate::http::{Call, Http, LIST_TIMEOUT, Reply};

/// A data centre with many migrations, each with its history.
const LIST_CAP: usize = 256 << 20;

/// The answer to `finalize` waits until the hidden source is deleted; the service gives up before this.
const ACTION_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// A client of migration-service.
#[derive(Debug, Clone)]
pub struct Migrations {
    http: Http,
}

impl Migrations {
    /// A client that speaks through `http`.
    pub fn new(http: Http) -> Migrations {
        Migrations { http }
    }

    /// Returns the migrations that match, the newest first, or an error. Aborted ones are listed for
    /// the state `aborted` alone.
    pub async fn list(&self, query: &MigrationQuery) -> Result<Vec<Migration>, Error> {
        let call = Call::get(&["migrations"]).timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
        let reply = self.http.execute(query.apply(call)).await?;
        reply.json("an array of migrations")
    }

    /// Returns what has ended, the newest first.
    pub async fn history(&self, query: &HistoryQuery) -> Result<Vec<Ended>, Error> {
        let call = Call::get(&["migrations"]).timeout(LIST_TIMEOUT).body_cap(LIST_CAP);
        self.http.execute(query.apply(call)).await?.json("an array of what has ended")
    }

    /// Returns the migration of a VM.
    pub async fn get(&self, vm: &str) -> Result<Migration, Error> {
        let call = Call::get(&["migrations", vm]).query("format", "raw");
        let reply = self.http.execute(call).await?;
        let migration: Migration = reply.json("a migration")?;
        if migration.vm_uuid != vm {
            return Err(reply.unexpected(&format!("the migration of {vm}")));
        }
        Ok(migration)
    }

    /// Removes the record of a VM's migration, and nothing else: the last resort.
    pub async fn remove(&self, vm: &str) -> Result<(), Error> {
        self.http.execute(Call::new(Method::DELETE, &["migrations", vm])).await?;
        Ok(())
    }

    /// Asks for an action, such as `begin` or `switch`. It goes on after the answer, but for those that
    /// the answer waits for: `finalize`, `schedule`, `unschedule`, and `abort` where there is no target.
    pub async fn act(&self, vm: &str, action: &str, options: &Options) -> Result<Answer, Error> {
        let reply = self.migrate(vm, action, options).await?;
        match reply.body() {
            [] | b"null" => Ok(Answer::default()),
            _ => reply.json("the answer to a migration action"),
        }
    }

    /// Returns the bytes that the VM's datasets use.
    pub async fn estimate_size(&self, vm: &str, cn: Option<&str>) -> Result<u64, Error> {
        let options = Options { override_server_uuid: cn.map(str::to_owned), ..Options::default() };
        let reply = self.migrate(vm, "estimate", &options).await?;
        let size = reply.object()?.get("size").and_then(Value::as_u64);
        size.ok_or_else(|| reply.unexpected("a size"))
    }

    /// Returns what a migration would take from now on; also while one runs.
    pub async fn estimate(&self, vm: &str, cn: Option<&str>) -> Result<Estimate, Error> {
        self.estimated(estimate(vm, cn)).await
    }

    /// The same with the target that a migration has, or would get if it began now. An error tells all that stands
    /// against a begin. A service that does not know this tells no target.
    pub async fn plan(&self, vm: &str, cn: Option<&str>) -> Result<Estimate, Error> {
        self.estimated(estimate(vm, cn).query("with_target", "true")).await
    }

    async fn estimated(&self, call: Call) -> Result<Estimate, Error> {
        self.http.execute(call.json(&Map::new())).await?.json("an estimate")
    }

    /// Returns the settings; with a node, its own values.
    pub async fn settings(&self, cn: Option<&str>) -> Result<Map<String, Value>, Error> {
        self.http.execute(Call::get(&settings_path(cn))).await?.json("settings")
    }

    /// Changes the settings that are named and returns all; with a node, its own values, where null removes
    /// one.
    pub async fn set(
        &self,
        cn: Option<&str>,
        values: &Map<String, Value>,
    ) -> Result<Map<String, Value>, Error> {
        let call = Call::new(Method::PUT, &settings_path(cn)).json(values);
        self.http.execute(call).await?.json("settings")
    }

    /// Makes the record of a VM's migration from what its nodes have; `other` is one whose agent does not answer, and
    /// `really` says that it is seen to be off.
    pub async fn adopt(
        &self,
        vm: &str,
        other: Option<&str>,
        really: bool,
    ) -> Result<Migration, Error> {
        let call = Call::new(Method::POST, &["migrations", vm, "adopt"]).query_opt("other", other);
        let call = call.query_opt("really", really.then_some("true"));
        let call = call.timeout(LIST_TIMEOUT).json(&Map::new());
        self.http.execute(call).await?.json("a migration")
    }

    /// Returns the last signs of life of both nodes of a migration.
    pub async fn signs(&self, vm: &str) -> Result<Signs, Error> {
        self.http.execute(Call::get(&["migrations", vm, "signs"])).await?.json("signs of life")
    }

    /// Compares the two copies of a VM.
    pub async fn verify(&self, vm: &str) -> Result<Verification, Error> {
        let call = Call::get(&["migrations", vm, "verify"]).timeout(LIST_TIMEOUT);
        self.http.execute(call).await?.json("a verification")
    }

    async fn migrate(&self, vm: &str, action: &str, options: &Options) -> Result<Reply, Error> {
        let call = Call::new(Method::POST, &["vms", vm]).query("action", "migrate");
        let call = options.apply(call.query("migration_action", action)).timeout(ACTION_TIMEOUT);
        self.http.execute(call.json(&Map::new())).await
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }
}

fn estimate(vm: &str, cn: Option<&str>) -> Call {
    let call = Call::new(Method::POST, &["vms", vm]).query("action", "migrate");
    let call = call.query("migration_action", "estimate").query("format", "rfd34");
    call.query_opt("override_server_uuid", cn).timeout(LIST_TIMEOUT)
}

fn settings_path(cn: Option<&str>) -> Vec<&str> {
    std::iter::once("settings").chain(cn).collect()
}
