// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The platform's `svcs`, `svcadm`, `svcprop` and `svccfg`, as far as our scripts and programs use them. No process is
//! started or ended: an instance is in the state in which SMF would have it.

use super::manifest::split;
use super::repository::{Named, Repository, fmri};
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;

fn unknown(command: &str, pattern: &str) -> Failed {
    Failed(1, format!("{command}: Pattern '{pattern}' doesn't match any instances"))
}

/// Returns the only instance that a pattern names.
fn one(all: &Repository, command: &str, pattern: &str) -> Result<Named, Failed> {
    let mut named = all.named(pattern);
    match (named.pop(), named.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(unknown(command, pattern)),
        (Some(_), false) => {
            Err(Failed(1, format!("{command}: Pattern '{pattern}' matches multiple instances")))
        }
    }
}

/// `svcs [-H] -o COLUMNS FMRI...` with the columns `state` and `fmri`, and `svcs -L FMRI`.
pub(crate) fn svcs(node: &Node, args: &[String]) -> Ended {
    let usage = |what: &str| {
        Failed(2, format!("svcs: {what}\nUsage: svcs [-aHpv] [-o col[,col ... ]] [<service> ...]"))
    };
    let parsed = Parsed::read(args, "aHL", "o").map_err(|what| usage(&what))?;
    let all = node.repository()?;
    let mut lines = Vec::new();
    let columns = parsed.value('o').unwrap_or("state,fmri");
    if !parsed.has('H') && !parsed.has('L') {
        lines.push(columns.to_uppercase().replace(',', " "));
    }
    for pattern in &parsed.operands {
        let named = all.named(pattern);
        if named.is_empty() {
            return Err(unknown("svcs", pattern));
        }
        for one in named {
            if parsed.has('L') {
                let name = fmri(&one).trim_start_matches("svc:/").replace('/', "-");
                lines.push(format!("/var/svc/log/{name}.log"));
                continue;
            }
            let column = |column: &str| match column {
                "state" | "sta" => {
                    Ok(all.instance(&one).map_or_else(String::new, |it| it.state.clone()))
                }
                "fmri" => Ok(fmri(&one)),
                other => Err(usage(&format!("unknown column {other}"))),
            };
            lines.push(columns.split(',').map(column).collect::<Result<Vec<_>, _>>()?.join(" "));
        }
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// `svcadm restart|refresh|clear|enable|disable [-rst] FMRI...`.
pub(crate) fn svcadm(node: &Node, args: &[String]) -> Ended {
    let usage = || Failed(2, "Usage: svcadm [-v] [-Z | -z zone ] [cmd [args ... ]]".to_owned());
    let (verb, rest) = args.split_first().ok_or_else(usage)?;
    let parsed = Parsed::read(rest, "rst", "").map_err(|_| usage())?;
    if parsed.operands.is_empty() {
        return Err(usage());
    }
    for pattern in &parsed.operands {
        let done = node.change_repository(|all| {
            let named = one(all, "svcadm", pattern)?;
            match verb.as_str() {
                "restart" => all.restart(&named),
                "refresh" => {}
                "clear" => all.clear(&named),
                "enable" => all.enable(&named, true, parsed.has('t')),
                "disable" => all.enable(&named, false, parsed.has('t')),
                _ => return Err(usage()),
            }
            let state = all.instance(&named).map(|it| it.state.clone()).unwrap_or_default();
            match (verb.as_str(), parsed.has('s'), state.as_str()) {
                ("enable", true, "maintenance") => {
                    let why =
                        format!("svcadm: Instance \"{}\" is in maintenance state.", fmri(&named));
                    Err(Failed(3, why))
                }
                _ => Ok(()),
            }
        })?;
        done?;
    }
    Ok(String::new())
}

/// `svcprop -p PROPERTY FMRI`.
pub(crate) fn svcprop(node: &Node, args: &[String]) -> Ended {
    let usage =
        || Failed(2, "Usage: svcprop [-afqtv] [-p prop] ... {FMRI | pattern}...".to_owned());
    let parsed = Parsed::read(args, "", "p").map_err(|_| usage())?;
    let (Some(property), [pattern]) = (parsed.value('p'), parsed.operands.as_slice()) else {
        return Err(usage());
    };
    let all = node.repository()?;
    let (service, instance) = one(&all, "svcprop", pattern)?;
    let it = all.service(&service);
    let value = match property {
        "general/enabled" => {
            all.instance(&(service.clone(), instance)).map(|it| it.is_enabled().to_string())
        }
        property => it.and_then(|it| it.described.properties.get(property)).map(|it| escaped(it)),
    };
    value.map(|value| value + "\n").ok_or_else(|| {
        Failed(1, format!("svcprop: Couldn't find property '{property}' for instance '{pattern}'."))
    })
}

/// A value as svcprop prints it: a space has a backslash before it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

/// `svccfg import FILE...`, `svccfg delete [-f] FMRI`, `svccfg -s FMRI setprop P = [TYPE:] V`.
pub(crate) fn svccfg(node: &Node, args: &[String]) -> Ended {
    let usage = || Failed(2, "Usage:\tsvccfg [-v] [-s FMRI] [-f file] [command [args]]".to_owned());
    let parsed = Parsed::read(args, "v", "s").map_err(|_| usage())?;
    let (verb, rest) = parsed.operands.split_first().ok_or_else(usage)?;
    match verb.as_str() {
        "import" | "apply" if !rest.is_empty() => {
            for file in rest {
                let (place, text) = read(node, file)?;
                let fault = |why: String| {
                    Failed(1, format!("svccfg: couldn't parse document {file}: {why}"))
                };
                node.change_repository(|all| match verb.as_str() {
                    "import" => all.import(&text, &place).map(|_| all.settle()),
                    _ => all.apply(&text).map(|()| all.settle()),
                })?
                .map_err(fault)?;
            }
        }
        "validate" => {
            let [file] = rest else { return Err(usage()) };
            let (_, text) = read(node, file)?;
            super::manifest::read(&text, "manifest").map_err(|why| {
                Failed(1, format!("svccfg: couldn't parse document {file}: {why}"))
            })?;
        }
        "delete" => {
            let (force, pattern) = match rest {
                [flag, pattern] if flag == "-f" => (true, pattern),
                [pattern] => (false, pattern),
                _ => return Err(usage()),
            };
            node.change_repository(|all| {
                let services = all.services_named(pattern);
                let [service] = services.as_slice() else {
                    return Err(Failed(
                        1,
                        format!(
                            "svccfg: Pattern '{pattern}' doesn't match any instances or services"
                        ),
                    ));
                };
                let is_up = all
                    .named(pattern)
                    .iter()
                    .any(|named| all.instance(named).is_some_and(|it| it.state == "online"));
                if is_up && !force {
                    let why =
                        format!("svccfg: svc:/{service} has running instances; use -f to force");
                    return Err(Failed(1, why));
                }
                all.delete(service);
                all.settle();
                Ok(())
            })??;
        }
        "setprop" => {
            let (Some(entity), [property, equals, value @ ..]) = (parsed.value('s'), rest) else {
                return Err(usage());
            };
            let value = value.strip_prefix(&["astring:".to_owned()]).unwrap_or(value);
            let [value] = value else { return Err(usage()) };
            if equals != "=" {
                return Err(usage());
            }
            let (value, entity) = (value.trim_matches('"'), split(entity).0);
            let known = node.change_repository(|all| {
                let services = all.services_named(entity);
                services.first().is_some_and(|service| all.set(service, property, value))
            })?;
            if !known {
                let why =
                    format!("svccfg: Pattern '{entity}' doesn't match any instances or services");
                return Err(Failed(1, why));
            }
        }
        _ => return Err(usage()),
    }
    Ok(String::new())
}

/// Returns the place on the node and the text of a file, which is named by its path here or on the node.
fn read(node: &Node, file: &str) -> Result<(String, String), Failed> {
    let (root, given) = (node.root(), std::path::Path::new(file));
    let (place, path) = match given.strip_prefix(&root) {
        Ok(below) => (format!("/{}", below.display()), given.to_owned()),
        Err(_) if node.path(file).exists() => (file.to_owned(), node.path(file)),
        Err(_) => (file.to_owned(), given.to_owned()),
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failed(1, format!("svccfg: couldn't read {file}: {error}")))?;
    Ok((place, text))
}
