// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `zfs` means by its messages: the texts of illumos and of zfs-fuse in one table.

/// Why a command of `zfs` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Something uses the dataset; it may be free in a moment.
    Busy,
    /// There is no room.
    Full,
    /// There is no such dataset or snapshot.
    Absent,
    /// This `zfs` or this pool does not know an option or a property.
    Unknown,
    /// The dataset is encrypted: it is sent alone and without properties.
    Encrypted,
    Other,
}

const TABLE: [(&str, Said); 11] = [
    ("without the raw flag", Said::Encrypted),
    ("is busy", Said::Busy),
    // What was mounted there is unmounted a moment later than its command ends (zfs-fuse).
    ("directory is not empty", Said::Busy),
    ("out of space", Said::Full),
    ("no space left", Said::Full),
    ("quota exceeded", Said::Full),
    ("does not exist", Said::Absent),
    ("no such pool or dataset", Said::Absent),
    ("could not find any snapshots", Said::Absent),
    ("invalid option", Said::Unknown),
    ("invalid property", Said::Unknown),
];

/// Returns what a message means.
pub fn said(message: &str) -> Said {
    let message = message.to_ascii_lowercase();
    TABLE.iter().find(|(text, _)| message.contains(text)).map_or(Said::Other, |(_, said)| *said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_kinds_of_zfs_are_known() {
        for (message, want) in [
            ("cannot destroy 'zones/a': dataset is busy", Said::Busy),
            ("cannot unmount '/zones/a': Device busy; mountpoint or dataset is busy", Said::Busy),
            ("cannot mount '/zones/a': directory is not empty", Said::Busy),
            ("cannot receive new filesystem stream: out of space", Said::Full),
            (
                "cannot receive incremental stream: destination zones/a space quota exceeded.",
                Said::Full,
            ),
            ("cannot open 'zones/a': dataset does not exist", Said::Absent),
            ("could not find any snapshots to destroy; check snapshot names.", Said::Absent),
            (
                "cannot send a/b@1: encrypted dataset a/b may not be sent with properties without the raw flag",
                Said::Encrypted,
            ),
            ("invalid option 'n'", Said::Unknown),
            ("bad property list: invalid property 'receive_resume_token'", Said::Unknown),
            ("internal error: Function not implemented", Said::Other),
        ] {
            assert_eq!(said(message), want, "{message}");
        }
    }
}
