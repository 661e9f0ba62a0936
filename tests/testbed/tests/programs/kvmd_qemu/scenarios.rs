// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The scenario table (docs/contract/kvmd.md §6) as it stands, one row a scenario.

use rustix::process::Signal;

use super::guest;

/// Name (the instance's too), guest, more arguments for QEMU, what is done to it, our verdict, and
/// whether the shipped rule leaves a marker.
///
/// A machine is started paused and let go with `cont` when it is watched, so that no guest is faster
/// than its observer. Of what is done, `?X` waits for the event X, `armed` until the guest has armed
/// its power button (one pressed before goes unnoticed), capitals are signals, and the rest are
/// commands on the second monitor.
const TABLE: &str = "\
poweroff-pc               | off                |                                             | cont                                                      | guest/poweroff              | marked
poweroff-q35              | off                | -machine q35 -m 64                          | cont                                                      | guest/poweroff              | marked
s4                        | s4                 |                                             | cont                                                      | guest/hibernate             | marked
s3                        | s3                 |                                             | cont, ?SUSPEND, KILL                                      | unknown/abrupt              | -
reboot                    | reset-kbd          |                                             | cont, ?RESET, KILL                                        | unknown/abrupt              | -
kbd-no-reboot             | reset-kbd          | -no-reboot                                  | cont                                                      | guest/reset                 | marked
cf9-no-reboot             | reset-cf9          | -no-reboot                                  | cont                                                      | guest/reset                 | marked
triple-no-reboot          | reset-triple       | -no-reboot                                  | cont                                                      | guest/reset                 | marked
reboot-then-off           | reset-kbd, off     |                                             | cont                                                      | guest/poweroff              | marked
powerdown                 | button             |                                             | cont, armed, system_powerdown                             | host/powerdown              | -
powerdown-hmp             | button             |                                             | cont, armed, hmp:system_powerdown                         | host/powerdown              | -
powerdown-then-quit       | idle               |                                             | cont, system_powerdown, quit                              | host/quit                   | -
powerdown-then-term       | idle               |                                             | cont, system_powerdown, TERM                              | host/signal                 | -
powerdown-then-kill       | idle               |                                             | cont, system_powerdown, KILL                              | host/kill-after-powerdown   | -
powerdown-late-off        | late               |                                             | cont, system_powerdown                                    | host/powerdown              | -
powerdown-reboot-then-off | button-reset, late |                                             | cont, armed, system_powerdown                             | guest/poweroff              | -
quit                      | idle               |                                             | cont, quit                                                | host/quit                   | marked
quit-hmp                  | idle               |                                             | cont, hmp:quit                                            | host/quit                   | marked
term                      | idle               |                                             | cont, TERM                                                | host/signal                 | marked
int                       | idle               |                                             | cont, INT                                                 | host/signal                 | marked
hup                       | idle               |                                             | cont, HUP                                                 | host/signal                 | marked
term-twice                | idle               |                                             | cont, TERM, TERM                                          | host/signal                 | marked
kill                      | idle               |                                             | cont, KILL                                                | unknown/abrupt              | -
segv                      | idle               |                                             | cont, SEGV                                                | unknown/abrupt              | -
abrt                      | idle               |                                             | cont, ABORT                                               | unknown/abrupt              | -
sigquit                   | idle               |                                             | cont, QUIT                                                | unknown/abrupt              | -
debug-exit                | debug-exit         | -device isa-debug-exit,iobase=0xf4,iosize=4 | cont                                                      | unknown/abrupt              | -
system-reset              | idle               |                                             | cont, system_reset, ?RESET, KILL                          | unknown/abrupt              | -
system-reset-no-reboot    | idle               | -no-reboot                                  | cont, system_reset                                        | host/reset                  | marked
stop-then-quit            | idle               |                                             | cont, stop, quit                                          | host/quit                   | -
stop-then-term            | idle               |                                             | cont, stop, TERM                                          | host/signal                 | -
stop-cont-later-off       | late               |                                             | cont, stop, cont                                          | guest/poweroff              | -
stop-powerdown-cont       | button             |                                             | cont, armed, stop, system_powerdown, cont                 | host/powerdown              | -
migrated-then-quit        | idle               |                                             | cont, events:migrate, migrate, ?MIGRATION completed, quit | host/migrated               | -
migrated-then-term        | idle               |                                             | cont, events:migrate, migrate, ?MIGRATION completed, TERM | host/migrated               | -
migrated-silently         | idle               |                                             | cont, migrate, ?STOP, quit                                | host/quit                   | -
panic                     | panic              | -device pvpanic                             | cont                                                      | guest/panic                 | marked
panic-exit-failure        | panic              | -device pvpanic -action panic=exit-failure  | cont                                                      | guest/panic                 | marked
panic-pause               | panic              | -device pvpanic -action panic=pause         | cont, ?STOP, KILL                                         | guest/panic                 | -
crash-loaded              | crash-kernel       | -device pvpanic                             | cont, ?GUEST_CRASHLOADED, KILL                            | unknown/abrupt              | -
watchdog-shutdown         | watchdog-button    | -device ib700 -action watchdog=shutdown     | cont                                                      | watchdog/watchdog           | -
watchdog-poweroff         | watchdog           | -device ib700 -action watchdog=poweroff     | cont                                                      | watchdog/watchdog           | -
watchdog-pause            | watchdog           | -device ib700 -action watchdog=pause        | cont, ?STOP, KILL                                         | watchdog/watchdog           | -
watchdog-reset            | watchdog           | -device ib700 -action watchdog=reset        | cont, ?RESET, KILL                                        | unknown/abrupt              | -
no-shutdown-off           | off                | -no-shutdown                                | cont, ?STOP, quit                                         | guest/poweroff              | -
no-shutdown-term          | idle               | -no-shutdown                                | cont, TERM                                                | host/signal                 | marked
set-action-pause          | late               |                                             | set-action, cont, ?STOP, KILL                             | guest/poweroff              | -
powerdown-and-quit        | button             |                                             | cont, armed, both                                         | host/powerdown or host/quit | -
never-started             | idle               |                                             | quit                                                      | host/quit                   | marked";

/// What the test does to a QEMU, in order.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A command on the second monitor.
    Command(&'static str),
    /// Waits for an event.
    Event(&'static str),
    /// A signal to the process.
    Send(Signal),
    /// Waits until the guest has armed its power button.
    Armed,
}

pub struct Scenario {
    pub name: &'static str,
    /// The boot sector.
    pub guest: Vec<u8>,
    pub args: Vec<&'static str>,
    pub steps: Vec<Step>,
    pub ours: &'static str,
    pub shipped: bool,
}

pub fn all() -> Vec<Scenario> {
    let row = |line: &'static str| {
        let cells: Vec<&'static str> = line.split('|').map(str::trim).collect();
        let [name, guest, args, steps, ours, shipped] = cells[..] else { panic!("{line}") };
        Scenario {
            name,
            guest: guest_of(guest),
            args: args.split_whitespace().collect(),
            steps: steps.split(", ").map(step).collect(),
            ours,
            shipped: shipped == "marked",
        }
    };
    TABLE.lines().map(row).collect()
}

fn step(word: &'static str) -> Step {
    const SIGNALS: [(&str, Signal); 7] = [
        ("TERM", Signal::TERM),
        ("KILL", Signal::KILL),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("SEGV", Signal::SEGV),
        ("ABORT", Signal::ABORT),
        ("QUIT", Signal::QUIT),
    ];
    let signal = SIGNALS.iter().find(|(name, _)| *name == word);
    match (word.strip_prefix('?'), signal) {
        (Some(event), _) => Step::Event(event),
        (_, Some((_, signal))) => Step::Send(*signal),
        _ if word == "armed" => Step::Armed,
        _ => Step::Command(word),
    }
}

/// The guest of this name; `A, B` does A in its first life and B after a reset.
fn guest_of(name: &str) -> Vec<u8> {
    let off = guest::acpi(5);
    if let Some((first, later)) = name.split_once(", ") {
        return guest::twice(&guest_of(first), &guest_of(later));
    }
    match name {
        "off" => off,
        "s4" => guest::acpi(4),
        "s3" => guest::acpi(3),
        "late" => guest::after(30, &off),
        "button" => guest::on_button(&off),
        "button-reset" => guest::on_button(&guest::reset_kbd()),
        "reset-kbd" => guest::reset_kbd(),
        "reset-cf9" => guest::reset_cf9(),
        "reset-triple" => guest::reset_triple(),
        "idle" => guest::idle(),
        "debug-exit" => guest::debug_exit(),
        "panic" => guest::panic(1),
        "crash-kernel" => guest::panic(2),
        "watchdog" => guest::watchdog(&guest::idle()),
        "watchdog-button" => guest::watchdog(&guest::on_button(&off)),
        other => panic!("no guest {other}"),
    }
}
