// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A configuration as it is kept between readings: what was put in comes out.

#![no_main]

use vminfod::load::{PackedXml, zone_xml};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(xml) = zone_xml::parse(bytes) {
        assert_eq!(PackedXml::from(&xml).unpack(), xml);
    }
});
