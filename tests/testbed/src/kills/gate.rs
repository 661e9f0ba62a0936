// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands that migration-agent runs to change its node. Each is a script that asks here before it runs the real
//! command, and says here when that has ended.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::points::{Points, normal};
use crate::faults::{Moment, Party};

/// The programs whose commands are points.
const PROGRAMS: [&str; 3] = ["zfs", "vmadm", "net-agent"];

/// Opens the gate of both nodes. Returns its address.
pub async fn open(points: Arc<Points>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A script that was killed has closed its connection.
            tokio::spawn(pass(stream, Arc::clone(&points)));
        }
    });
    Ok(address)
}

/// One command. Its first line is the number of its node and the command, its second one comes when it has ended.
async fn pass(stream: TcpStream, points: Arc<Points>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let Some(line) = lines.next_line().await? else { return Ok(()) };
    let Some((node, command)) = line.split_once(' ') else { return Ok(()) };
    let end = points.end_of(usize::from(node != "0"));
    let label = normal(&format!("{end} {command}"));
    if points.meet(&label, Moment::Before).await == Some(Party::Agent(end)) {
        return Ok(()); // It was killed before it could begin this.
    }
    let doing = points.does();
    write.write_all(b"go\n").await?;
    let ended = lines.next_line().await?;
    drop(doing);
    if ended.is_some() {
        points.meet(&label, Moment::After).await;
        write.write_all(b"go\n").await?;
    }
    Ok(())
}

/// Writes the scripts of a node. Returns `commands` for its migration-agent.
pub fn scripts(node: &Path, number: usize, gate: SocketAddr) -> io::Result<Value> {
    let dir = node.join("gate");
    std::fs::create_dir_all(&dir)?;
    let (host, port) = (gate.ip(), gate.port());
    for program in PROGRAMS {
        let real = node.join("bin").join(program);
        let real = real.display();
        let text = format!(
            "#!/bin/bash\n\
             case \"{program} $* \" in\n\
             'zfs get '*|'zfs list '*|'zfs holds '*|'zfs send '*' -n '*|'net-agent holds '*) exec {real} \"$@\" ;;\n\
             esac\n\
             exec 3<>/dev/tcp/{host}/{port} || exit 1\n\
             printf '%s\\n' \"{number} {program} $*\" >&3\n\
             read -r word <&3 && [ \"$word\" = go ] || exit 1\n\
             {real} \"$@\" 3>&-\n\
             status=$?\n\
             echo ended >&3\n\
             read -r word <&3\n\
             exit $status\n"
        );
        let file = dir.join(program);
        std::fs::write(&file, text)?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(json!({
        "zfs": dir.join("zfs"), "vmadm": dir.join("vmadm"), "net_agent": dir.join("net-agent"),
        "zpool": node.join("bin/zpool"), "zonecfg": node.join("bin/zonecfg"),
        "svcprop": node.join("bin/svcprop"),
    }))
}
