// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The node's executables `zoneadm`, `sysevent` and `fswatcher` (`zfs`, `zonecfg`, `kstat` and those of SMF have
//! files of their own). Arguments, output and errors are those of the real ones.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon::command::Output;

use crate::agents::{apm, small};
use crate::getopt::{Ended, Failed, Parsed, Said};
use crate::life::{lofs, smf};
use crate::node::{Node, PLATFORM, TOOLS};
use crate::state::Zone;
use crate::streams::receive::{Flow, receive};
use crate::streams::send::{Then, send};
use crate::tap::Stream;
use crate::zonecfg::zonecfg;
use crate::{exec_kstat, exec_zfs, fswatcher, sysevent, zones};

/// The line of the global zone in a list of zones.
pub(crate) const GLOBAL: &str = "0:global:running:/::liveimg:shared:0\n";

/// So many bytes of a stream are read at once.
pub(crate) const PIECE: usize = 64 * 1024;

/// A zone's line in the zone index: name, state, zonepath, uuid, brand, IP type, debug id.
const INDEX_COLUMNS: usize = 7;

/// Returns the tool and the node's directory if the program was started as `NODE/bin/TOOL` or
/// `NODE/platform/TOOL`, by its path or by `PATH`.
pub fn as_tool(invoked: &Path) -> Option<(&'static str, PathBuf)> {
    let name = invoked.file_name()?.to_str()?;
    let tool = TOOLS.into_iter().chain(PLATFORM).find(|tool| *tool == name)?;
    let bin = match invoked.parent() {
        Some(bin) if bin != Path::new("") => bin.to_owned(),
        // A shell that found it by PATH passes the bare name.
        _ => {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).find(|bin| bin.join(name).is_file())?
        }
    };
    Some((tool, bin.parent()?.to_owned()))
}

/// Runs one of the node's executables.
pub fn run(tool: &str, node: &Path, args: Vec<OsString>) -> ExitCode {
    let said = command(tool, node, args).unwrap_or_else(|failed| Err(failed).into());
    let mut out = std::io::stdout().lock();
    let written = out.write_all(said.stdout.as_bytes()).and_then(|()| out.flush());
    if !said.stderr.is_empty() {
        let _ = writeln!(std::io::stderr(), "{}", said.stderr);
    }
    match written {
        Ok(()) => ExitCode::from(said.status),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns true for the verbs of `zfs` that write or read a stream.
pub(crate) fn is_stream(verb: &str) -> bool {
    matches!(verb, "send" | "receive" | "recv")
}

/// `zfs send` to stdout, `zfs receive` from stdin.
fn stream(node: &Node, args: &[String]) -> Ended {
    let (verb, args) =
        args.split_first().ok_or_else(|| Failed(2, "missing command".to_string()))?;
    if verb == "send" {
        let sent = send(node, args)?;
        let mut out = std::io::stdout().lock();
        out.write_all(&sent.bytes)
            .and_then(|()| out.flush())
            .map_err(|error| Failed(1, format!("warning: cannot send: {error}")))?;
        return match sent.then {
            Then::Ends(0, _) => Ok(String::new()),
            Then::Ends(status, text) => Err(Failed(status, text)),
            Then::Hangs => hang(),
        };
    }
    let Some(mut receiver) = receive(node, args)? else { return Ok(String::new()) };
    let mut piece = vec![0; PIECE];
    loop {
        let read = std::io::stdin().lock().read(&mut piece);
        match read.map_err(|error| Failed(1, format!("cannot receive: {error}")))? {
            0 => return receiver.finish().map(|()| String::new()),
            len => match receiver.push(piece.get(..len).unwrap_or_default())? {
                Flow::Reads => {}
                Flow::Hangs => hang(),
            },
        }
    }
}

/// Does nothing until the process is killed.
fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs a command in this process.
pub(crate) fn answer(node: &Node, tool: &str, args: &[String]) -> Output {
    let Said { stdout, status, mut stderr } = on_node(tool, node, args);
    if status != 0 {
        stderr.push('\n');
    }
    Output { status: status.into(), stdout: stdout.into_bytes(), stderr: stderr.into_bytes() }
}

fn command(tool: &str, dir: &Path, args: Vec<OsString>) -> Result<Said, Failed> {
    let bad = |arg: OsString| {
        Failed(2, format!("{tool}: argument is not UTF-8: {}", arg.to_string_lossy()))
    };
    let args: Vec<String> =
        args.into_iter().map(|arg| arg.into_string().map_err(bad)).collect::<Result<_, _>>()?;
    let node = Node::open(dir).map_err(|error| Failed(1, format!("{tool}: {error}")))?;
    if tool == "zfs" {
        node.wait_for_zfs();
    }
    Ok(match tool {
        "zfs" if args.first().is_some_and(|verb| is_stream(verb)) => stream(&node, &args).into(),
        "sysevent" => sysevent(&node, &args).into(),
        "fswatcher" => fswatcher(&args).into(),
        "kstat" => kstat(&node, &args).into(),
        "svcs" => smf::svcs(&node, &args).into(),
        "svcadm" => smf::svcadm(&node, &args).into(),
        "svcprop" => smf::svcprop(&node, &args).into(),
        "svccfg" => smf::svccfg(&node, &args).into(),
        "mount" => lofs::mount(&node, &args).into(),
        "umount" => lofs::umount(&node, &args).into(),
        "uname" => uname(&node, &args).into(),
        "apm" => apm::apm(&node, &args),
        "uuid" => small::uuid(&args).into(),
        "json" => small::json(&args).into(),
        "bootparams" => small::bootparams(&node).into(),
        "logadm" => small::logadm(&node, &args).into(),
        _ => on_node(tool, &node, &args),
    })
}

fn on_node(tool: &str, node: &Node, args: &[String]) -> Said {
    match tool {
        "zoneadm" => zoneadm(node, args).into(),
        "zonecfg" => zonecfg(node, args).into(),
        "zfs" => exec_zfs::zfs(node, args),
        // In process there are no scripts: this is what vminfod's command of this name prints.
        "kstat" => exec_kstat::of_script(node, args).into(),
        _ => Err(Failed(2, format!("{tool}: no such command on this node"))).into(),
    }
}

fn zoneadm(node: &Node, args: &[String]) -> Ended {
    let usage =
        || Failed(2, "usage: zoneadm [-z zonename] [-u uuid-match] subcommand [args]".to_string());
    let parsed = Parsed::read(args, "", "zu").map_err(|_| usage())?;
    let [verb, options @ ..] = parsed.operands.as_slice() else { return Err(usage()) };
    let (name, uuid) = (parsed.value('z'), parsed.value('u'));
    if verb == "list" {
        return list(node, name, uuid, options);
    }
    let name = name.or(uuid).ok_or_else(usage)?;
    if !rows(node, true)?.iter().any(|row| is_of(row, name)) {
        return Err(no_such_zone(name));
    }
    let done = match verb.as_str() {
        "boot" => node.zone_boot(name),
        "halt" => node.zone_halt(name, zones::CLEAN_EXIT),
        "shutdown" => node.zone_halt(name, 0),
        "reboot" => node.zone_reboot(name),
        "install" => node.zone_install(name, |zone| {
            let dataset = zone.zonepath.trim_start_matches('/').to_string();
            match node.datasets()?.get(&dataset) {
                Some(_) => Ok(()),
                None => node.zfs(|all| all.create(&dataset)),
            }
        }),
        "uninstall" => node.zone_uninstall(name),
        _ => return Err(usage()),
    };
    done.map(|()| String::new()).map_err(|error| Failed(1, format!("zoneadm: {error}")))
}

fn no_such_zone(name: &str) -> Failed {
    Failed(1, format!("zoneadm: {name}: No such zone configured"))
}

/// Returns true if the row is of the zone with this name or uuid.
fn is_of(row: &str, name: &str) -> bool {
    let mut columns = row.split(':').skip(1);
    columns.next() == Some(name) || columns.nth(2) == Some(name)
}

/// Returns the rows of the zones: those that the kernel has as it has them, with `all` the others too, as
/// the zone index has them. A line of the index that lacks columns is left out.
fn rows(node: &Node, all: bool) -> Result<Vec<String>, Failed> {
    let zones = node.zones().map_err(|error| Failed(1, format!("zoneadm: {error}")))?;
    let mut rows = vec![GLOBAL.trim_end().to_owned()];
    rows.extend(zones.listed(false).into_iter().map(Zone::line));
    if all {
        let index = std::fs::read_to_string(node.path("/etc/zones/index")).unwrap_or_default();
        let lines = index.lines().filter(|line| line.split(':').count() >= INDEX_COLUMNS);
        let is_up = |name: &str| zones.find(name).is_some_and(|zone| zone.state.is_active());
        let resting = lines.filter(|line| !line.split(':').next().is_none_or(is_up));
        rows.extend(resting.map(|line| format!("-:{line}")));
    }
    Ok(rows)
}

fn list(node: &Node, name: Option<&str>, uuid: Option<&str>, options: &[String]) -> Ended {
    let parsed = Parsed::read(options, "pciv", "")
        .map_err(|what| Failed(2, format!("zoneadm: list: {what}")))?;
    if let [operand, ..] = parsed.operands.as_slice() {
        return Err(Failed(2, format!("zoneadm: list: illegal option '{operand}'")));
    }
    let wanted = name.or(uuid);
    let mut lines = rows(node, wanted.is_some() || parsed.has('c') || parsed.has('i'))?;
    if let Some(wanted) = wanted {
        // zoneadm(8): the zone of the uuid is selected instead of the one of the name, if there is one.
        let has_uuid = |row: &&String| row.split(':').nth(4) == uuid;
        let of_uuid = lines.iter().find(has_uuid).filter(|_| uuid.is_some()).cloned();
        lines.retain(|row| of_uuid.as_ref().map_or_else(|| is_of(row, wanted), |it| it == row));
        if lines.is_empty() {
            return Err(no_such_zone(wanted));
        }
    }
    let shown = lines.iter().map(|line| match parsed.has('p') {
        true => line.as_str(),
        false => line.split(':').nth(1).unwrap_or(line),
    });
    Ok(shown.map(|line| format!("{line}\n")).collect())
}

/// `uname -v`: the platform image that runs.
fn uname(node: &Node, args: &[String]) -> Ended {
    match args {
        [option] if option == "-v" => Ok(format!("joyent_{}\n", node.running_platform()?)),
        _ => Err(Failed(2, "usage: uname [-snrvmapiX]".to_owned())),
    }
}

fn sysevent(node: &Node, args: &[String]) -> Ended {
    const USAGE: &str = "usage: sysevent [-hjr] [-c channel] [class] [subclass...]";
    let usage = |what: &str| Failed(1, format!("sysevent: {what}\n{USAGE}"));
    let parsed = Parsed::read(args, "hjr", "c").map_err(|what| usage(&what))?;
    if parsed.has('h') {
        return Ok(format!("{USAGE}\n"));
    }
    if !parsed.has('j') {
        return Err(usage("this node prints JSON only: give -j"));
    }
    let operands: Vec<&str> = parsed.operands.iter().map(String::as_str).collect();
    let stream = match (parsed.value('c'), operands.as_slice()) {
        (Some("com.sun:zones:status"), []) => Stream::Zones,
        (None, ["EC_zfs"] | ["EC_zfs", "ESC_ZFS_history_event", ..]) => Stream::Zfs,
        _ => Stream::Silent,
    };
    let followed = sysevent::follow(node, stream, parsed.has('r'));
    followed.map(|()| String::new()).map_err(|error| Failed(1, format!("sysevent: {error}")))
}

#[cfg(target_os = "linux")]
fn fswatcher(args: &[String]) -> Ended {
    use std::os::fd::AsFd;

    let usage = || Failed(2, "usage: fswatcher [-r] -j".to_string());
    let parsed = Parsed::read(args, "rj", "").map_err(|_| usage())?;
    // The plain-text output is not recorded.
    if !parsed.has('j') || !parsed.operands.is_empty() {
        return Err(usage());
    }
    let failed = |why: &dyn std::fmt::Display| Failed(1, format!("fswatcher: {why}"));
    let file = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().map(std::fs::File::from).map_err(|error| failed(&error))
    };
    let (mut input, mut output) =
        (file(std::io::stdin().as_fd())?, file(std::io::stdout().as_fd())?);
    let served = fswatcher::serve(&mut input, &mut output, parsed.has('r'));
    served.map(|()| String::new()).map_err(|fault| failed(&fault))
}

#[cfg(not(target_os = "linux"))]
fn fswatcher(_args: &[String]) -> Ended {
    Err(Failed(1, "fswatcher: this one needs inotify".to_string()))
}

/// The platform's `kstat`, which prints its empty list before it fails.
fn kstat(node: &Node, args: &[String]) -> Ended {
    let (status, text) = exec_kstat::kstat(node, args)?;
    if status == 0 {
        return Ok(text);
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
    Err(Failed(status, String::new()))
}
