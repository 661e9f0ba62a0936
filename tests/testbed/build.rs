// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Passes the name of the cargo profile on to `testbed bench`, which prints it, and links so that a start is cheap.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // cargo tells build scripts only "debug" or "release"; the name is in TARGET/PROFILE/build/….
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let profile = out.split('/').rev().skip_while(|part| *part != "build").nth(1);
    // The folder of the profile `dev` has another name.
    let profile = if profile == Some("debug") { Some("dev") } else { profile };
    println!("cargo::rustc-env=BUILD_PROFILE={}", profile.unwrap_or("unknown"));

    // Each `zfs` and `zoneadm` of a simulated node is a start of this executable. Linked to run at any address, each
    // start first adds that address to 330,000 pointers and so copies a thousand pages: more than half of its cost.
    let target = ["OS", "ENV"]
        .map(|part| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default());
    if target == ["linux", "gnu"] {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}
