// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node: its key, and what can be done with it. Its neighbour is honest.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use migration_core::intent::End;
use migration_core::protocol::{About, Doing, Order, What};
use migration_service::enrol::Authorities;
use sdc_clients::Http;
use sdc_clients::http::{Call, Duplex, Reply};
use sdc_clients::identity::Identity;
use serde::Serialize;
use serde_json::{Value, json};
use testbed::lab::{World, seed};
use testbed::moving::subject::VM;
use tokio::net::TcpStream;
use trust::exchange::Known;
use trust::{Admits, Held, Holder};
use uuid::Uuid;

use super::super::common::{centre::Centre, is_refused, status, until};

/// A hidden copy on the honest node, which a migration is to fill.
pub const COPY: Uuid = Uuid::from_u128(0x00c0_b1e5_0000_4000_8000_0000_0000_0001);
/// That migration.
pub const MIGRATION: Uuid = Uuid::from_u128(0x00c0_b1e5_0000_4000_8000_0000_0000_0002);

pub struct Compromised {
    pub cn: Uuid,
    /// Its own key and certificate.
    pub holder: Arc<Holder>,
    /// Where CNAPI has it.
    pub at: SocketAddr,
    /// The honest node.
    pub other: Uuid,
    pub other_at: SocketAddr,
    other_url: String,
    other_status: String,
    service_url: String,
    authorities: Authorities,
    /// A migration that it has nothing to do with.
    pub foreign: Uuid,
    /// The honest node to which that one goes.
    pub third: Uuid,
    third_world: World,
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("https://").parse().unwrap()
}

impl Compromised {
    /// Takes the second node of a data centre: its agent ends, and its key stays. The honest one gets the copy.
    pub async fn take(centre: &mut Centre) -> Compromised {
        let mut third = centre.lab.beside(2).await.unwrap();
        third.start_vminfod().await.unwrap();
        let vms = third.hub().unwrap().vms(true).await.unwrap().vms;
        seed::fill_right(&third, &vms).unwrap();
        third.start_agent().await.unwrap();
        third.start_migration_agent().await.unwrap();
        let to = third.node().cn_uuid();
        centre.good(&format!("sdc-migrate begin -y -n {to} {VM}")).await;
        let open = status(&centre.lab.migration_agent_status_url()).await["migrations"].clone();
        let foreign = open[0]["migration"].as_str().unwrap().parse().unwrap();
        centre.other.end("migration-agent", true).await.unwrap();
        let key = centre.lab.dir().join("cn2/migration-agent/trust/identity.json");
        let holder = Holder::new(Admits::Known);
        holder.hold(Held::read(&key).unwrap().unwrap()).unwrap();
        let file = centre.lab.authority_file();
        let node = Compromised {
            cn: centre.other.node().cn_uuid().parse().unwrap(),
            holder,
            at: address(&centre.other.migration_agent_url()),
            other: centre.lab.node().cn_uuid().parse().unwrap(),
            other_at: address(&centre.lab.migration_agent_url()),
            other_url: centre.lab.migration_agent_url(),
            other_status: centre.lab.migration_agent_status_url(),
            service_url: format!("https://{}", centre.lab.centre().migrations.trust),
            authorities: trust::read_private(&file).unwrap().unwrap(),
            foreign,
            third: third.node().cn_uuid().parse().unwrap(),
            third_world: third,
        };
        let image = testbed::moving::subject::payload().unwrap()["image_uuid"].clone();
        let copy = json!({
            "uuid": COPY, "brand": "joyent", "alias": "copy", "quota": 10, "ram": 256, "image_uuid": image,
            "delegate_dataset": true, "autoboot": false, "do_not_inventory": true,
        });
        centre.lab.waiting_verbs().create(copy.as_object().unwrap()).await.unwrap();
        node
    }

    /// The service's port, and both of an honest node's agent.
    fn ports(&self) -> [(SocketAddr, Identity); 3] {
        let agent = Identity::Agent(self.third);
        let orders = address(&self.third_world.migration_agent_url());
        let streams = self.third_world.migration_data_address();
        [(address(&self.service_url), Identity::Service), (orders, agent), (streams, agent)]
    }

    /// Connections of this key that it keeps open, one to each port.
    pub async fn kept(&self) -> Vec<(&'static str, Box<dyn Duplex>)> {
        let names = [
            "a kept connection to the service",
            "a kept connection to an agent",
            "a kept stream to an agent",
        ];
        let mut kept = Vec::new();
        for (name, (at, to)) in names.into_iter().zip(self.ports()) {
            let stream = TcpStream::connect(at).await.unwrap();
            kept.push((name, trust::connect(&self.holder, stream, to).await.unwrap()));
        }
        kept
    }

    /// Whether a new connection of this key to each port is refused.
    pub async fn refused(&self) -> Vec<(&'static str, bool)> {
        let names = [
            "a new connection to the service",
            "a new connection to an agent",
            "a new stream to an agent",
        ];
        let mut refused = Vec::new();
        for (name, (at, to)) in names.into_iter().zip(self.ports()) {
            refused.push((name, is_refused(&self.holder, at, to).await));
        }
        refused
    }

    /// Asks with this key, or with no certificate of the data centre's.
    fn http(&self, url: &str, to: Identity, holder: &Arc<Holder>) -> Http {
        let transport = Arc::new(trust::Client::new(holder));
        let http = Http::with_transport(url, "compromised", transport).unwrap();
        http.without_retries().to_peer(to)
    }

    /// The honest node's agent, asked by the compromised node.
    pub fn agent(&self) -> Http {
        self.agent_as(&self.holder)
    }

    pub fn agent_as(&self, holder: &Arc<Holder>) -> Http {
        self.http(&self.other_url, Identity::Agent(self.other), holder)
    }

    /// The service, asked by the compromised node.
    pub fn service(&self) -> Http {
        self.http(&self.service_url, Identity::Service, &self.holder)
    }

    /// Another program's key: what an honest one does is done with it.
    pub fn honest(&self, name: Identity) -> Arc<Holder> {
        let (holder, authority) = (Holder::new(Admits::Known), &self.authorities.all[0]);
        let revoked = vec![authority.list(&[], holder.now()).unwrap()];
        let known = Known { roots: vec![authority.certificate.clone()], revoked };
        holder.hold(authority.equip(name, known, holder.now()).unwrap()).unwrap();
        holder
    }

    /// Orders the honest node's agent as the service does, and returns how that goes.
    pub async fn ordered(&self, about: About, order: What) -> Doing {
        let service = self.agent_as(&self.honest(Identity::Service));
        let given = Order { about, wait_ms: 20_000, order, instead: None };
        let call = Call::new(Method::POST, &["orders"]).json(&given);
        service.execute(call).await.unwrap().json("how an order goes").unwrap()
    }

    /// Asks the honest agent one of an agent's questions.
    pub async fn ask(
        &self,
        route: &str,
        body: &impl Serialize,
    ) -> Result<Reply, sdc_clients::Error> {
        self.agent().execute(Call::new(Method::POST, &[route]).json(body)).await
    }

    /// What the honest agent shows of itself.
    pub async fn status(&self) -> Value {
        status(&self.other_status).await
    }

    /// Waits until the honest agent has refused so many streams for this reason.
    pub async fn has_refused(&self, reason: &str, count: u64) {
        until(reason, async || self.status().await["refused_streams"][reason] == count).await;
    }
}

/// The copy on the honest node, at this revision.
pub fn about(revision: u64) -> About {
    About { migration: MIGRATION, revision, nonce: None, vm: COPY, end: End::Target }
}

/// Its root dataset.
pub fn root() -> String {
    format!("zones/{COPY}")
}
