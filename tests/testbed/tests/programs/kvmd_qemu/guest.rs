// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Guests of one sector: what the firmware starts at 0x7c00, written here byte by byte
//! (docs/contract/kvmd.md §13). None needs a disk, an operating system or an assembler.

use std::path::{Path, PathBuf};

/// `out` of a word to a port.
fn out_word(port: u16, value: u16) -> Vec<u8> {
    let ([p, q], [v, w]) = (port.to_le_bytes(), value.to_le_bytes());
    vec![0xba, p, q, 0xb8, v, w, 0xef] // mov dx, port; mov ax, value; out dx, ax
}

/// `out` of a byte to a port.
fn out_byte(port: u16, value: u8) -> Vec<u8> {
    let [p, q] = port.to_le_bytes();
    vec![0xba, p, q, 0xb0, value, 0xee] // mov dx, port; mov al, value; out dx, al
}

/// Sleeps for ever; interrupts only wake it to sleep again.
const IDLE: [u8; 3] = [0xf4, 0xeb, 0xfd]; // hlt; jmp back
/// The CMOS byte that survives a reset, and what a guest leaves there.
const NOTE: (u8, u8) = (0x50, 0x5a);

/// Goes to sleep state 5, 4 or 3 by the ACPI control port.
pub fn acpi(state: u8) -> Vec<u8> {
    let value = match state {
        5 => 0x2000,
        4 => 0x2800,
        _ => 0x2400,
    };
    [out_word(0x604, value), IDLE.to_vec()].concat()
}

pub fn idle() -> Vec<u8> {
    IDLE.to_vec()
}

/// Waits for the power button, as long as it takes, then does this.
pub fn on_button(then: &[u8]) -> Vec<u8> {
    let enable = out_word(0x602, 0x0100);
    // mov dx, 0x600; again: in ax, dx; test ah, 1; jz again
    let wait = vec![0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, 0x74, 0xfa];
    [enable, wait, then.to_vec()].concat()
}

/// Resets by the keyboard controller.
pub fn reset_kbd() -> Vec<u8> {
    [out_byte(0x64, 0xfe), IDLE.to_vec()].concat()
}

/// Resets by the chipset's reset port.
pub fn reset_cf9() -> Vec<u8> {
    [out_byte(0xcf9, 0x06), IDLE.to_vec()].concat()
}

/// Resets by a fault that has no handler: an empty interrupt table, then a breakpoint.
pub fn reset_triple() -> Vec<u8> {
    // cli; push cs; pop ds; lidt [0x7c00 + 9]; int3; then six zeros: limit and base
    vec![0xfa, 0x0e, 0x1f, 0x0f, 0x01, 0x1e, 0x09, 0x7c, 0xcc, 0, 0, 0, 0, 0, 0]
}

/// Does `first` in its first life and `later` after a reset.
pub fn twice(first: &[u8], later: &[u8]) -> Vec<u8> {
    let (index, value) = NOTE;
    // mov al, index; out 0x70, al; in al, 0x71; cmp al, value
    let look = vec![0xb0, index, 0xe6, 0x70, 0xe4, 0x71, 0x3c, value];
    // mov al, index; out 0x70, al; mov al, value; out 0x71, al
    let note = vec![0xb0, index, 0xe6, 0x70, 0xb0, value, 0xe6, 0x71];
    let skip = u8::try_from(note.len() + first.len()).expect("a short guest");
    let jump = vec![0x74, skip]; // je later
    [look, jump, note, first.to_vec(), later.to_vec()].concat()
}

/// Waits for `ticks` of the timer (18.2 a second), then does this.
pub fn after(ticks: u16, then: &[u8]) -> Vec<u8> {
    let [low, high] = ticks.to_le_bytes();
    // sti; mov cx, ticks; again: hlt; loop again
    [vec![0xfb, 0xb9, low, high, 0xf4, 0xe2, 0xfd], then.to_vec()].concat()
}

/// Tells pvpanic: 1 the kernel gave up, 2 a crash kernel runs.
pub fn panic(what: u8) -> Vec<u8> {
    [out_byte(0x505, what), IDLE.to_vec()].concat()
}

/// Starts the watchdog, lets it fire, and does this meanwhile.
pub fn watchdog(then: &[u8]) -> Vec<u8> {
    [out_byte(0x443, 0x0e), then.to_vec()].concat()
}

/// Ends QEMU by its debugging device.
pub fn debug_exit() -> Vec<u8> {
    [out_byte(0xf4, 3), IDLE.to_vec()].concat()
}

/// Writes the guest's disk.
pub fn disk(dir: &Path, name: &str, code: &[u8]) -> PathBuf {
    assert!(code.len() <= 510, "{name} is longer than a sector");
    let mut image = vec![0; 1 << 20];
    image[..code.len()].copy_from_slice(code);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let path = dir.join(format!("{name}.img"));
    std::fs::write(&path, image).expect("the guest's disk");
    path
}
