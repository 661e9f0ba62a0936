// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The arguments of `vmadm`: nothing that was given is invented.

#![no_main]

use vminfod::cli::vmadm::nopt::parse;
use vminfod::cli::vmadm::options;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let args: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for (specs, shorts) in [
        (options::LIST, options::LIST_SHORTS),
        (options::LOOKUP, options::LOOKUP_SHORTS),
        (options::EVENTS, options::EVENTS_SHORTS),
        (options::PLAIN, options::PLAIN_SHORTS),
    ] {
        let parsed = parse(&args, specs, shorts);
        assert!(parsed.operands.iter().all(|operand| args.iter().any(|arg| arg.contains(operand))));
    }
});
