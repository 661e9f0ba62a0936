// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rules as tables: each guard alone, upkeep, the numbered requirements, races and defects, and
//! one property: no plan deletes what a second, independent reading of the rules protects.

// Blank lines keep the modules in layer order.

mod guards;

mod numbered;

mod property;

mod upkeep;

mod case;
