// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A compromised node: whoever has its root has its agent's key, which is valid, and speaks the programs' own protocol.
//! Each row is one forged order, stream or answer, and what the real programs make of it over real sockets: the node
//! can lie about itself, and about nothing else.

mod answers; // what it answers
mod node; // the node
mod orders; // what it asks of agents
mod rows; // the rows, and what came through
mod service; // what it asks of the service
mod streams; // what it sends

use super::common::centre::Centre;

#[tokio::test] // M150, M40, M41, M46, M190
#[ignore = "minutes: `.ci/run` has it in its lane of programs"]
async fn a_node_with_a_valid_key_lies_about_itself_and_about_nothing_else() {
    let mut centre = Centre::start().await;
    let mut rows = rows::Rows::default();
    let node = node::Compromised::take(&mut centre).await;
    orders::of_services(&centre, &node, &mut rows).await;
    orders::of_agents(&centre, &node, &mut rows).await;
    let data_port = streams::all(&centre, &node, &mut rows).await;
    service::asked(&centre, &node, &mut rows).await;
    answers::to_an_agent(&centre, &node, data_port, &mut rows).await;
    answers::to_the_service(&mut centre, &node, &mut rows).await;
    answers::for_another_node(&mut centre, &node, &mut rows).await;
    service::revoked(&centre, &node, &mut rows).await;
    rows.are_all_refused(64);
    centre.stop().await;
}
