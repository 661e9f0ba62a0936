// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The shapes of all configurations, each kept once: a node has thousands of zones and a handful of
//! kinds of them.
//!
//! Must never keep a shape that no configuration has any more.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// So many are kept without looking whether they are still needed.
const FEW: usize = 64;

#[derive(Debug, Default)]
struct Shapes {
    known: HashSet<Arc<str>>,
    /// At how many to look whether all are still needed.
    full: usize,
}

static SHAPES: LazyLock<Mutex<Shapes>> = LazyLock::new(Mutex::default);

/// The one copy of this shape.
pub(super) fn shared(shape: &str) -> Arc<str> {
    // A panic while the lock was held cannot leave a half-made set: all steps are moves.
    SHAPES.lock().unwrap_or_else(PoisonError::into_inner).shared(shape)
}

impl Shapes {
    fn shared(&mut self, shape: &str) -> Arc<str> {
        if let Some(known) = self.known.get(shape) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.full {
            self.known.retain(|shape| Arc::strong_count(shape) > 1);
            // Where every configuration is of a kind of its own, not at every one of them.
            self.full = self.known.len() * 2 + FEW;
        }
        let shape: Arc<str> = shape.into();
        self.known.insert(Arc::clone(&shape));
        shape
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_copy_of_each_and_none_that_nobody_has() {
        let mut shapes = Shapes::default();
        let first = shapes.shared("a");
        assert!(Arc::ptr_eq(&first, &shapes.shared("a")));
        let held: Vec<_> = (0..100).map(|n| shapes.shared(&n.to_string())).collect();
        for n in 0..10_000 {
            shapes.shared(&format!("passing {n}"));
        }
        assert!(shapes.known.len() <= 2 * (held.len() + 1) + FEW, "{}", shapes.known.len());
        assert!(
            Arc::ptr_eq(&first, &shapes.shared("a")) && Arc::ptr_eq(&held[7], &shapes.shared("7"))
        );
    }
}
