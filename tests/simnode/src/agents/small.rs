// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Small programs of the platform that the scripts of packages run, as far as those use them.

use std::io::Read;

use serde_json::Value;

use super::config_agent::fill;
use crate::files;
use crate::getopt::{Ended, Failed, Parsed};
use crate::node::Node;

/// `uuid -v4`.
pub(crate) fn uuid(args: &[String]) -> Ended {
    match args {
        [option] if option == "-v4" => Ok(format!("{}\n", uuid::Uuid::new_v4())),
        _ => Err(Failed(1, "usage: uuid -v4".to_owned())),
    }
}

/// `json -f FILE KEY…` and `json -a KEY…`, which reads stdin: the values of an object, or of each element of an array,
/// with blanks between them. What is missing is empty.
pub(crate) fn json(args: &[String]) -> Ended {
    let parsed =
        Parsed::read(args, "a", "f").map_err(|what| Failed(2, format!("json: error: {what}")))?;
    let mut text = String::new();
    let read = match parsed.value('f') {
        Some(file) => std::fs::read_to_string(file).map(|read| text = read),
        None => std::io::stdin().lock().read_to_string(&mut text).map(|_| ()),
    };
    read.map_err(|error| Failed(1, format!("json: error: {error}")))?;
    let input: Value = serde_json::from_str(&text)
        .map_err(|error| Failed(1, format!("json: error: input is not JSON: {error}")))?;
    let elements = match (parsed.has('a'), input) {
        (true, Value::Array(elements)) => elements,
        (_, single) => vec![single],
    };
    let keys: Vec<String> =
        parsed.operands.iter().map(|key| format!("{{{{{{{key}}}}}}}")).collect();
    let lines = elements.iter().map(|element| fill(&keys.join(" "), element) + "\n");
    Ok(lines.collect())
}

/// `bootparams`.
pub(crate) fn bootparams(node: &Node) -> Ended {
    let is_headnode = node.info().kind == crate::places::NodeKind::Headnode;
    Ok(if is_headnode { "headnode=true\n".to_owned() } else { String::new() })
}

/// `logadm -w ENTRY OPTION… LOG`: writes an entry of `/etc/logadm.conf`, at its end if it is new.
pub(crate) fn logadm(node: &Node, args: &[String]) -> Ended {
    let [option, entry, rest @ ..] = args else {
        return Err(Failed(2, "usage: logadm -w".to_owned()));
    };
    if option != "-w" || !rest.last().is_some_and(|log| log.starts_with('/')) {
        return Err(Failed(2, "logadm: this node knows logadm -w ENTRY OPTION… LOG".to_owned()));
    }
    let path = node.path("/etc/logadm.conf");
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let new = format!("{entry} {}", rest.join(" "));
    let mut lines: Vec<&str> = known.lines().collect();
    match lines.iter_mut().find(|line| line.split(' ').next() == Some(entry)) {
        Some(line) => *line = &new,
        None => lines.push(&new),
    }
    files::replace(&path, (lines.join("\n") + "\n").as_bytes())?;
    Ok(String::new())
}
