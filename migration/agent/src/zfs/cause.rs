// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `zfs` means by its messages: the texts of illumos and of zfs-fuse in one table.

/// Why a command of `zfs` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
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

const TABLE: [(&str, Cause); 12] = [
    ("without the raw flag", Cause::Encrypted),
    ("is busy", Cause::Busy),
    // What was mounted there is unmounted a moment later than its command ends (zfs-fuse).
    ("directory is not empty", Cause::Busy),
    ("out of space", Cause::Full),
    ("no space left", Cause::Full),
    ("quota exceeded", Cause::Full),
    ("does not exist", Cause::Absent),
    ("no such pool or dataset", Cause::Absent),
    ("could not find any snapshots", Cause::Absent),
    ("invalid option", Cause::Unknown),
    ("invalid property", Cause::Unknown),
    // Without one of the others the reason is a word of the system, or none: "Device busy", "umount failed".
    ("cannot unmount", Cause::Busy),
];

/// Returns what a message means.
pub fn cause(message: &str) -> Cause {
    let message = message.to_ascii_lowercase();
    TABLE.iter().find(|(text, _)| message.contains(text)).map_or(Cause::Other, |(_, cause)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_kinds_of_zfs_are_known() {
        for (message, want) in [
            ("cannot destroy 'zones/a': dataset is busy", Cause::Busy),
            ("cannot unmount '/zones/a': Device busy", Cause::Busy),
            ("cannot unmount '/zones/a': umount failed: umount child process failed", Cause::Busy),
            ("cannot mount '/zones/a': directory is not empty", Cause::Busy),
            ("cannot receive new filesystem stream: out of space", Cause::Full),
            (
                "cannot receive incremental stream: destination zones/a space quota exceeded.",
                Cause::Full,
            ),
            ("cannot open 'zones/a': dataset does not exist", Cause::Absent),
            ("could not find any snapshots to destroy; check snapshot names.", Cause::Absent),
            (
                "cannot send a/b@1: encrypted dataset a/b may not be sent with properties without the raw flag",
                Cause::Encrypted,
            ),
            ("invalid option 'n'", Cause::Unknown),
            ("bad property list: invalid property 'receive_resume_token'", Cause::Unknown),
            ("internal error: Function not implemented", Cause::Other),
        ] {
            assert_eq!(cause(message), want, "{message}");
        }
    }
}
