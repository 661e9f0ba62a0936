// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The packages of a recording of PAPI.

use std::net::{Ipv4Addr, SocketAddr};

use mocks::papi::Server;
use serde_json::Value;

use super::replay::World;
use crate::conform::transcript::{Group, UnknownStep};

pub(super) struct Packages(Server);

impl World for Packages {
    const KIND: &'static str = "papi";

    async fn begin(group: &Group) -> anyhow::Result<Self> {
        let server = Server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let made = group.world["base"]["requests"].as_array().filter(|_| group.has_base);
        let packages = made.into_iter().flatten().filter_map(|asked| asked["body"].as_object());
        packages.for_each(|package| server.store().put(package.clone()));
        Ok(Packages(server))
    }

    fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    async fn change(&mut self, change: &Value, _: &Group) -> anyhow::Result<()> {
        Err(UnknownStep(change.clone()).into())
    }
}
