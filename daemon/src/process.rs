// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What the system says about this process. illumos has it in `/proc/self/psinfo` (`proc(5)`), Linux in
//! `/proc/self/stat`.

use std::fs::{read, read_dir};
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Memory and time that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory in core, in bytes.
    pub resident: u64,
    /// Time on a processor, in the program and in the system for it.
    pub cpu: Duration,
}

/// Returns what this process uses; zeros if the system does not say.
pub fn usage() -> Usage {
    let illumos = read("/proc/self/psinfo").ok().and_then(|bytes| of_psinfo(&bytes));
    let linux = || of_stat(&String::from_utf8_lossy(&read("/proc/self/stat").ok()?));
    illumos.or_else(linux).unwrap_or_default()
}

/// Returns the number of open descriptors, and their limit; none if the system does not say.
pub fn descriptors() -> (Option<u64>, Option<u64>) {
    // One of them reads the directory.
    let open = read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1));
    (open.map(|count| count as u64), getrlimit(Resource::Nofile).current)
}

/// Reads a 64-bit `psinfo_t`: `pr_rssize` in KiB at byte 56, `pr_time` in seconds and nanoseconds at byte 104.
fn of_psinfo(bytes: &[u8]) -> Option<Usage> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let nanos = u32::try_from(word(112)?).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Usage { resident: word(56)?.saturating_mul(1024), cpu: Duration::new(word(104)?, nanos) })
}

/// Reads `utime` and `stime` in ticks and `rss` in pages: the fields 14, 15 and 24. The second one is the
/// program's name in parentheses, which may hold blanks.
fn of_stat(line: &str) -> Option<Usage> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = Duration::from_secs(number(14)?.saturating_add(number(15)?));
    Some(Usage {
        resident: number(24)?.saturating_mul(page_size() as u64),
        cpu: ticks / u32::try_from(clock_ticks_per_second()).ok()?.max(1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_descriptors() {
        let Usage { resident, .. } = usage();
        assert!(resident > 100_000, "{resident}");
        // Other tests of this process open and close files meanwhile, so only a lower bound is certain.
        let files: Vec<_> = (0..64).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let (open, most) = descriptors();
        assert!(open >= Some(files.len() as u64) && most > open, "{open:?} of {most:?}");
    }

    #[test]
    fn reads_what_illumos_says() {
        let mut bytes = [0xff; 416];
        for (at, value) in [(56, 2048_u64), (104, 75), (112, 500_000_000)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let cpu = Duration::from_millis(75_500);
        assert_eq!(of_psinfo(&bytes), Some(Usage { resident: 2 << 20, cpu }));
        assert_eq!(of_psinfo(&bytes[..100]), None);
        assert_eq!(of_psinfo(&[0xff; 416]), None);
    }

    #[test]
    fn reads_what_linux_says() {
        let ticks = clock_ticks_per_second();
        let rest = format!("S 1 2 3 4 5 6 7 8 9 10 {ticks} {ticks} 0 0 20 0 5 0 99 4096 3 0");
        let page = page_size() as u64;
        let usage = Usage { resident: 3 * page, cpu: Duration::from_secs(2) };
        assert_eq!(of_stat(&format!("12 (a) b) {rest}")), Some(usage));
        assert_eq!(of_stat("12 (a) S 1"), None);
    }
}
