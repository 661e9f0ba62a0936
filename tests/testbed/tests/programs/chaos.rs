// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A few seeds of chaos; `testbed chaos` runs hundreds.

use testbed::churn::chaos::{Options, run_seeds};

use super::common::program;

#[test]
fn after_chaos_an_old_and_a_fresh_daemon_show_what_the_node_says() {
    for (simulated, seeds) in [(false, 2), (true, 10)] {
        for lost_events in [false, true] {
            let options = Options { seeds, from: 1, lost_events, simulated };
            assert_eq!(run_seeds(options, &program()), 0, "the failing seeds are printed");
        }
    }
}
