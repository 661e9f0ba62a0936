// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The scenario table (docs/contract/kvmd.md §6) as it stands, one row a scenario.

use rustix::process::Signal;

use super::guest;

/// What the test does to a QEMU, in order.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A command on the second monitor.
    Command(&'static str),
    /// Waits for an event.
    Event(&'static str),
    /// A signal to the process.
    Send(Signal),
    /// Waits until the guest has armed its power button: one pressed before goes unnoticed.
    Armed,
}

use Step::{Armed, Command, Event, Send};

/// A row.
pub struct Scenario {
    /// Its name, the instance's too.
    pub name: &'static str,
    /// The boot sector.
    pub guest: Vec<u8>,
    /// More arguments for QEMU.
    pub args: &'static [&'static str],
    /// What is done to it once it runs.
    pub steps: &'static [Step],
    /// Our verdict.
    pub ours: &'static str,
    /// The shipped rule's.
    pub shipped: bool,
}

const CONT: Step = Command("cont");
const DOWN: Step = Command("system_powerdown");
const QUIT: Step = Command("quit");
const TERM: Step = Send(Signal::TERM);
const KILL: Step = Send(Signal::KILL);
const WATCHDOG: &str = "ib700";

/// Every row. A machine is started paused and let go with `cont` when it is watched, so that no
/// guest is faster than its observer.
#[allow(clippy::too_many_lines)] // A table.
pub fn all() -> Vec<Scenario> {
    let row = |name, guest, args, steps, ours, shipped| Scenario {
        name,
        guest,
        args,
        steps,
        ours,
        shipped,
    };
    let off = guest::acpi(5);
    let late = guest::after(30, &off);
    let button = guest::on_button(&off);
    vec![
        row("poweroff-pc", off.clone(), &[], &[CONT], "guest/poweroff", true),
        row(
            "poweroff-q35",
            off.clone(),
            &["-machine", "q35", "-m", "64"],
            &[CONT],
            "guest/poweroff",
            true,
        ),
        row("s4", guest::acpi(4), &[], &[CONT], "guest/hibernate", true),
        row("s3", guest::acpi(3), &[], &[CONT, Event("SUSPEND"), KILL], "unknown/abrupt", false),
        row(
            "reboot",
            guest::reset_kbd(),
            &[],
            &[CONT, Event("RESET"), KILL],
            "unknown/abrupt",
            false,
        ),
        row("kbd-no-reboot", guest::reset_kbd(), &["-no-reboot"], &[CONT], "guest/reset", true),
        row("cf9-no-reboot", guest::reset_cf9(), &["-no-reboot"], &[CONT], "guest/reset", true),
        row(
            "triple-no-reboot",
            guest::reset_triple(),
            &["-no-reboot"],
            &[CONT],
            "guest/reset",
            true,
        ),
        row(
            "reboot-then-off",
            guest::twice(&guest::reset_kbd(), &off),
            &[],
            &[CONT],
            "guest/poweroff",
            true,
        ),
        row("powerdown", button.clone(), &[], &[CONT, Armed, DOWN], "host/powerdown", false),
        row(
            "powerdown-hmp",
            button.clone(),
            &[],
            &[CONT, Armed, Command("hmp:system_powerdown")],
            "host/powerdown",
            false,
        ),
        row("powerdown-then-quit", guest::idle(), &[], &[CONT, DOWN, QUIT], "host/quit", false),
        row("powerdown-then-term", guest::idle(), &[], &[CONT, DOWN, TERM], "host/signal", false),
        row(
            "powerdown-then-kill",
            guest::idle(),
            &[],
            &[CONT, DOWN, KILL],
            "host/kill-after-powerdown",
            false,
        ),
        row("powerdown-late-off", late.clone(), &[], &[CONT, DOWN], "host/powerdown", false),
        row(
            "powerdown-reboot-then-off",
            guest::twice(&guest::on_button(&guest::reset_kbd()), &late),
            &[],
            &[CONT, Armed, DOWN],
            "guest/poweroff",
            false,
        ),
        row("quit", guest::idle(), &[], &[CONT, QUIT], "host/quit", true),
        row("quit-hmp", guest::idle(), &[], &[CONT, Command("hmp:quit")], "host/quit", true),
        row("term", guest::idle(), &[], &[CONT, TERM], "host/signal", true),
        row("int", guest::idle(), &[], &[CONT, Send(Signal::INT)], "host/signal", true),
        row("hup", guest::idle(), &[], &[CONT, Send(Signal::HUP)], "host/signal", true),
        row("term-twice", guest::idle(), &[], &[CONT, TERM, TERM], "host/signal", true),
        row("kill", guest::idle(), &[], &[CONT, KILL], "unknown/abrupt", false),
        row("segv", guest::idle(), &[], &[CONT, Send(Signal::SEGV)], "unknown/abrupt", false),
        row("abrt", guest::idle(), &[], &[CONT, Send(Signal::ABORT)], "unknown/abrupt", false),
        row("sigquit", guest::idle(), &[], &[CONT, Send(Signal::QUIT)], "unknown/abrupt", false),
        row(
            "debug-exit",
            guest::debug_exit(),
            &["-device", "isa-debug-exit,iobase=0xf4,iosize=4"],
            &[CONT],
            "unknown/abrupt",
            false,
        ),
        row(
            "system-reset",
            guest::idle(),
            &[],
            &[CONT, Command("system_reset"), Event("RESET"), KILL],
            "unknown/abrupt",
            false,
        ),
        row(
            "system-reset-no-reboot",
            guest::idle(),
            &["-no-reboot"],
            &[CONT, Command("system_reset")],
            "host/reset",
            true,
        ),
        row(
            "stop-then-quit",
            guest::idle(),
            &[],
            &[CONT, Command("stop"), QUIT],
            "host/quit",
            false,
        ),
        row(
            "stop-then-term",
            guest::idle(),
            &[],
            &[CONT, Command("stop"), TERM],
            "host/signal",
            false,
        ),
        row(
            "stop-cont-later-off",
            late.clone(),
            &[],
            &[CONT, Command("stop"), CONT],
            "guest/poweroff",
            false,
        ),
        row(
            "stop-powerdown-cont",
            button.clone(),
            &[],
            &[CONT, Armed, Command("stop"), DOWN, CONT],
            "host/powerdown",
            false,
        ),
        row(
            "migrated-then-quit",
            guest::idle(),
            &[],
            &[
                CONT,
                Command("events:migrate"),
                Command("migrate"),
                Event("MIGRATION completed"),
                QUIT,
            ],
            "host/migrated",
            false,
        ),
        row(
            "migrated-then-term",
            guest::idle(),
            &[],
            &[
                CONT,
                Command("events:migrate"),
                Command("migrate"),
                Event("MIGRATION completed"),
                TERM,
            ],
            "host/migrated",
            false,
        ),
        row(
            "migrated-silently",
            guest::idle(),
            &[],
            &[CONT, Command("migrate"), Event("STOP"), QUIT],
            "host/quit",
            false,
        ),
        row("panic", guest::panic(1), &["-device", "pvpanic"], &[CONT], "guest/panic", true),
        row(
            "panic-exit-failure",
            guest::panic(1),
            &["-device", "pvpanic", "-action", "panic=exit-failure"],
            &[CONT],
            "guest/panic",
            true,
        ),
        row(
            "panic-pause",
            guest::panic(1),
            &["-device", "pvpanic", "-action", "panic=pause"],
            &[CONT, Event("STOP"), KILL],
            "guest/panic",
            false,
        ),
        row(
            "crash-loaded",
            guest::panic(2),
            &["-device", "pvpanic"],
            &[CONT, Event("GUEST_CRASHLOADED"), KILL],
            "unknown/abrupt",
            false,
        ),
        row(
            "watchdog-shutdown",
            guest::watchdog(&button),
            &["-device", WATCHDOG, "-action", "watchdog=shutdown"],
            &[CONT],
            "watchdog/watchdog",
            false,
        ),
        row(
            "watchdog-poweroff",
            guest::watchdog(&guest::idle()),
            &["-device", WATCHDOG, "-action", "watchdog=poweroff"],
            &[CONT],
            "watchdog/watchdog",
            false,
        ),
        row(
            "watchdog-pause",
            guest::watchdog(&guest::idle()),
            &["-device", WATCHDOG, "-action", "watchdog=pause"],
            &[CONT, Event("STOP"), KILL],
            "watchdog/watchdog",
            false,
        ),
        row(
            "watchdog-reset",
            guest::watchdog(&guest::idle()),
            &["-device", WATCHDOG, "-action", "watchdog=reset"],
            &[CONT, Event("RESET"), KILL],
            "unknown/abrupt",
            false,
        ),
        row(
            "no-shutdown-off",
            off.clone(),
            &["-no-shutdown"],
            &[CONT, Event("STOP"), QUIT],
            "guest/poweroff",
            false,
        ),
        row(
            "no-shutdown-term",
            guest::idle(),
            &["-no-shutdown"],
            &[CONT, TERM],
            "host/signal",
            true,
        ),
        row(
            "set-action-pause",
            late,
            &[],
            &[Command("set-action"), CONT, Event("STOP"), KILL],
            "guest/poweroff",
            false,
        ),
        row(
            "powerdown-and-quit",
            button,
            &[],
            &[CONT, Armed, Command("both")],
            "host/powerdown|host/quit",
            false,
        ),
        row("never-started", guest::idle(), &[], &[QUIT], "host/quit", true),
    ]
}
