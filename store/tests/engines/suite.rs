// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What holds for every engine: each case of `writes` and `searches` is a test of each engine.

pub use crate::searches::*;
pub use crate::writes::*;

/// Makes a test of each case for one engine.
macro_rules! suite {
    ($test:meta, $open:path) => {
        suite!(@ $test, $open, a_hundred_concurrent_increments_lose_nothing
            a_batch_happens_whole_or_not_at_all transfers_between_two_buckets_keep_the_sum
            etags_change_with_each_write_and_never_come_back a_write_finds_what_it_expects_or_fails
            records_are_found_by_their_fields pages_follow_each_other_whatever_is_written_between
            any_unicode_comes_back_as_it_was a_stopped_holder_changes_nothing_when_it_wakes
            what_is_too_large_or_wrong_is_refused a_new_version_has_new_indices_and_old_programs_are_refused
            a_record_that_cannot_be_read_is_named pages_are_bounded_in_bytes);
    };
    (@ $test:meta, $open:path, $($case:ident)*) => {
        $(
            #[$test]
            async fn $case() {
                if let Some((store, _guard)) = $open().await {
                    crate::suite::$case(store).await;
                }
            }
        )*
    };
}
pub(crate) use suite;
