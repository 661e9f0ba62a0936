// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Chance that does not hang on who asks first.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Chance that hangs on what is asked and how often it was asked before, and not on who was first:
/// two readings that race within one moment do not change the rest of the world.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    asked: HashMap<String, u64>,
}

impl Dice {
    /// Dice of this seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, asked: HashMap::new() }
    }

    /// The dice for this question.
    pub fn of(&mut self, question: String) -> StdRng {
        let mut hasher = std::hash::DefaultHasher::new();
        let nth = self.asked.entry(question.clone()).or_default();
        (self.seed, question, *nth).hash(&mut hasher);
        *nth += 1;
        StdRng::seed_from_u64(hasher.finish())
    }
}
