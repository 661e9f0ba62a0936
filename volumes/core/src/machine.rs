// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The state of a volume, as its storage VM drives it (RFD 26 §Volume states; the table of the deployed
//! service).

use super::facts::VmState;
use super::volume::State;

/// What becomes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stays as it is.
    Stay,
    /// It stays ready for a while: its storage VM may only be rebooting.
    Degraded,
    Become(State),
    /// Its record goes.
    Remove,
}

/// Returns what becomes of a volume whose storage VM is in this state; `patience_over` once the VM has
/// been stopped for longer than a reboot takes.
pub fn next(volume: State, vm: VmState, patience_over: bool) -> Next {
    match (volume, vm) {
        (State::Creating | State::Failed, VmState::Running) => Next::Become(State::Ready),
        (State::Ready, VmState::Stopped) if !patience_over => Next::Degraded,
        (State::Ready, VmState::Stopped) => Next::Become(State::Failed),
        (
            State::Creating | State::Ready | State::RollingBack,
            VmState::Failed | VmState::Destroyed,
        )
        | (State::Deleting, VmState::Failed) => Next::Become(State::Failed),
        (State::Deleting, VmState::Destroyed) => Next::Remove,
        _ => Next::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // V26
    fn every_cell_of_the_table() {
        use Next::{Become, Remove, Stay};
        use State::{Creating, Deleting, Failed, Ready, RollingBack};
        use VmState as V;
        let states = [V::Running, V::Stopped, V::Failed, V::Destroyed, V::Provisioning, V::Other];
        let (ready, failed) = (Become(Ready), Become(Failed));
        let table = [
            (Creating, [ready, Stay, failed, failed, Stay, Stay]),
            (Ready, [Stay, failed, failed, failed, Stay, Stay]),
            (Failed, [ready, Stay, Stay, Stay, Stay, Stay]),
            (Deleting, [Stay, Stay, failed, Remove, Stay, Stay]),
            // The one that rolls back starts and stops the VM itself.
            (RollingBack, [Stay, Stay, failed, failed, Stay, Stay]),
        ];
        for (volume, row) in table {
            for (vm, expected) in states.into_iter().zip(row) {
                assert_eq!(next(volume, vm, true), expected, "{volume} {vm:?}");
            }
        }
    }

    #[test] // V27
    fn a_reboot_of_the_storage_vm_does_not_fail_the_volume() {
        assert_eq!(next(State::Ready, VmState::Stopped, false), Next::Degraded);
        assert_eq!(next(State::Ready, VmState::Failed, false), Next::Become(State::Failed));
    }
}
