// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The usage texts, which scripts may compare. Pure data.

const NOT_HERE: &str = "boot console create create-snapshot delete delete-snapshot destroy halt info \
    install kill reboot receive recv reprovision rollback-snapshot send snapshot start stop sysrq \
    update validate";

/// Returns true for a command of the shipped program that is not implemented here.
pub fn is_not_here(command: &str) -> bool {
    NOT_HERE.split_whitespace().any(|known| known == command)
}

/// The usage text of `vmadm` for a program at this path.
pub fn vmadm(program: &str) -> String {
    format!("Usage: {program} <command> [options]\n\n{VMADM}")
}

const VMADM: &str = "\
create [-f <filename>]
create-snapshot <uuid> <snapname>
console <uuid>
delete <uuid>
delete-snapshot <uuid> <snapname>
events [-fjr] [uuid]
get <uuid>
info <uuid> [type,...]
install <uuid>
kill [-s SIGNAL|-SIGNAL] <uuid>
list [-p] [-H] [-o field,...] [-s field,...] [field=value ...]
lookup [-j|-1] [-o field,...] [field=value ...]
reboot <uuid> [-F]
receive [-f <filename>]
reprovision <uuid> [-f <filename>]
rollback-snapshot <uuid> <snapname>
send <uuid> [target]
start <uuid> [option=value ...]
stop <uuid> [-F] [-t timeout]
sysrq <uuid> <nmi|screenshot>
update <uuid> [-f <filename>]
\x20-or- update <uuid> property=value [property=value ...]
validate create [-f <filename>]
validate update <brand> [-f <filename>]

For more detailed information on the use of this command,type 'man vmadm'.
";

/// The usage text of `vminfo`.
pub const VMINFO: &str = "\
Usage: vminfo [command] [args]

Commands
\x20 ping               get vminfod ping     (GET /ping)
\x20 status [-jf]       get vminfod status   (GET /status)
\x20 vms                get all vms          (GET /vms)
\x20 vm <uuid>          get vm info          (GET /vms/:uuid)
\x20 events [-jfr]      trace vminfod events (GET /events)
";
