// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The commands of an operator, as scripts in the `bin` of the lab's node under the names that they
//! have on a real node. They add the lab's addresses and configurations.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

/// Where the lab's services are.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    /// The testbed program.
    pub program: &'a Path,
    /// The node's directory.
    pub node: &'a Path,
    /// vminfod's base URL.
    pub vminfod: String,
    pub kvmd: String,
    /// The mock NAPI's.
    pub napi: String,
    /// The mock VMAPI's.
    pub vmapi: String,
    /// The mock CNAPI's.
    pub cnapi: String,
    pub migrations: String,
    /// The mock IMGAPI's.
    pub imgapi: String,
    pub volapi: String,
}

/// Writes those of every node into its `bin`.
pub fn write(places: &Places<'_>) -> io::Result<()> {
    let testbed = quoted(&places.program.to_string_lossy());
    let node = quoted(&places.node.to_string_lossy());
    let agent = quoted(&places.node.join("net-agent.json").to_string_lossy());
    let vm_agent = quoted(&places.node.join("vm-agent.json").to_string_lossy());
    let curl = |url: &str| {
        format!(
            "path=$1\nshift\nexec curl -sS -H 'content-type: application/json' \"$@\" {}\"$path\" -w '\\n'",
            quoted(url)
        )
    };
    let config = quoted(&places.node.join("vminfod.json").to_string_lossy());
    let url = quoted(&places.vminfod);
    let reach = format!("export VMINFOD_CONFIG={config} VMINFOD_URL={url}\n");
    let vminfod = format!("{reach}exec {testbed} @vminfod \"$@\"");
    let vminfo = format!("{reach}exec {testbed} @vminfo \"$@\"");
    let config = quoted(&places.node.join("kvmd.json").to_string_lossy());
    let url = quoted(&places.kvmd);
    let kvmd = format!("export KVMD_CONFIG={config} KVMD_URL={url}\nexec {testbed} @kvmd \"$@\"");
    let config = quoted(&places.node.join("console.json").to_string_lossy());
    let console = format!(
        "case \"$1 $* \" in\n*' --config'*) ;;\nserve*|status*|ping*) set -- \"$@\" --config {config} ;;\nesac\n\
         exec {testbed} @console \"$@\""
    );
    // As on a real node: what reads is vminfod's own, what writes is the node's. vmadm knows no aliases.
    let vmadm = format!(
        "{reach}verb=$1\ncase $verb in\n\
         list|lookup|get|json|events|help) exec {testbed} @vmadm \"$@\" ;;\n\
         ''|-*|create|validate) ;;\n\
         *) case \" ${{*:2}} \" in\n\
         *' '????????-????-????-????-????????????' '*) ;;\n\
         *) echo \"Invalid or missing UUID for $verb\" >&2; exit 2 ;;\nesac ;;\nesac\ncase $verb in\n\
         start) verb=boot ;;\nstop) verb=halt ;;\n\
         create-snapshot) verb=snapshot ;;\nrollback-snapshot) verb=rollback ;;\nesac\n\
         shift\n\
         # A payload comes from standard input unless the arguments have one.\n\
         case $verb:$# in create:0|update:1)\n\
         if [ -t 0 ]; then echo \"vmadm $verb: no payload: give -f FILE, or one on stdin\" >&2; exit 2; fi\n\
         set -- \"$@\" -f - ;;\nesac\n\
         exec {testbed} vm --cn {node} \"$verb\" \"$@\""
    );
    // The lab's log of a daemon is beside its node, in lines that are not coloured. What a
    // daemon that is silent is looked at with works all the same.
    let svcs = format!(
        "[ \"$1\" = -L ] && [ -f {node}/\"$2\".log ] && exec echo {node}/\"$2\".log\n\
         if [ \"$1\" = -xv ] && [ -x {node}/bin/\"$2\" ]; then\n\
         state=online\n{node}/bin/\"$2\" ping >/dev/null 2>&1 || state='offline: nothing answers'\n\
         said=$({node}/platform/svcs -H -o state \"$2\" 2>/dev/null) && case $said in disabled|maintenance) state=$said ;; esac\n\
         printf 'svc:/lab/%s:default\\n State: %s\\n' \"$2\" \"$state\"\n\
         [ -f {node}/\"$2\".log ] && printf '   See: %s\\n' {node}/\"$2\".log\n\
         exit 0\nfi\n\
         echo 'svcs: in the lab, only -L or -xv, and the name of a daemon' >&2\nexit 1"
    );
    // Of what is not in this lab, it says that no configuration names it.
    let hub = format!(
        "case \"$1\" in\ncheck)\n\
         set -- \"$@\" --config {config}\nfor name in net-agent vm-agent migration-agent migration-service volapi; do\n\
         [ -f {node}/$name.json ] && set -- \"$@\" --config {node}/$name.json\ndone ;;\n\
         # As installed: the programs of ours lie beside it.\n\
         migrate|voladm|volapi|pkgadm|fleet) program=sdc-$1; shift; exec {node}/bin/$program \"$@\" ;;\nesac\n\
         exec {testbed} @hub \"$@\"",
        config = quoted(&places.node.join("vminfod.json").to_string_lossy()),
    );
    // What is done to a lab that is up is done by its own process.
    let broken = format!(
        "case \"$1\" in break|cure) verb=$1; shift; set -- \"$verb\" --cn {node} \"$@\" ;; esac\nexec {testbed} \"$@\""
    );
    let scripts = [
        ("svcs", svcs),
        ("svcadm", format!("exec {testbed} @svcadm {node} \"$@\"")),
        ("testbed", broken),
        ("hub", hub),
        ("bunyan", "exec cat".to_owned()),
        ("vmadm", vmadm),
        ("vminfod", vminfod),
        ("vminfo", vminfo),
        ("net-agent", configured(&testbed, "net-agent", &agent)),
        ("vm-agent", configured(&testbed, "vm-agent", &vm_agent)),
        ("kvmd", kvmd),
        ("console", console),
        ("sdc-napi", curl(&places.napi)),
        ("sdc-vmapi", curl(&places.vmapi)),
    ];
    put(places.node, &scripts)
}

/// Writes those of a node with migration-agent: what the agent runs besides, and what an operator does.
pub fn write_migration(places: &Places<'_>) -> io::Result<()> {
    let testbed = quoted(&places.program.to_string_lossy());
    let config = |name: &str| places.node.join(format!("{name}.json"));
    let services = json!({
        "vmapi_url": places.migrations, "cnapi_url": places.cnapi, "poll": "250ms",
        "control_socket": places.node.join("migration-service/control.sock"),
    });
    std::fs::write(config("sdc-migrate"), format!("{services:#}\n"))?;
    let daemon = |name: &str| {
        let file = quoted(&config(name).to_string_lossy());
        configured(&testbed, name, &file)
    };
    let file = quoted(&config("sdc-migrate").to_string_lossy());
    let sdc_migrate =
        format!("export SDC_MIGRATE_CONFIG={file}\nexec {testbed} @sdc-migrate \"$@\"");
    // A pool as illumos makes it today: `zpool get PROPERTY POOL`.
    let zpool = "[ \"$1\" = get ] || { echo 'zpool: in the lab, only get' >&2; exit 2; }\n\
                 case $2 in *encryption*) value=disabled ;; *) value=active ;; esac\n\
                 printf 'NAME PROPERTY VALUE SOURCE\\nzones %s %s local\\n' \"$2\" \"$value\"";
    // SMF as it is where our vm-agent is installed, unless a test says which other one is.
    let svcprop = format!(
        "cat {}/vm-agent.start-exec 2>/dev/null ||\n\
         echo '/opt/smartdc/agents/lib/node_modules/vm-agent/smf/vm-agent\\ start'",
        quoted(&places.node.to_string_lossy())
    );
    let scripts = [
        ("svcprop", svcprop),
        ("migration-agent", daemon("migration-agent")),
        ("migration-service", daemon("migration-service")),
        ("sdc-migrate", sdc_migrate),
        ("zpool", zpool.to_owned()),
    ];
    put(places.node, &scripts)
}

/// Writes those of volumes. `vmapi` is what operators ask for VMs.
pub fn write_volumes(places: &Places<'_>, vmapi: &str) -> io::Result<()> {
    let testbed = quoted(&places.program.to_string_lossy());
    let file = |name: &str| places.node.join(format!("{name}.json"));
    let services = json!({
        "volapi_url": places.volapi, "vmapi_url": vmapi, "cnapi_url": places.cnapi, "imgapi_url": places.imgapi,
    });
    std::fs::write(file("sdc-voladm"), format!("{services:#}\n"))?;
    let config = quoted(&file("sdc-voladm").to_string_lossy());
    let command = |name: &'static str| {
        (name, format!("export SDC_VOLADM_CONFIG={config}\nexec {testbed} @{name} \"$@\""))
    };
    let daemon = quoted(&file("volapi").to_string_lossy());
    let volapi = ("volapi", configured(&testbed, "volapi", &daemon));
    put(places.node, &[volapi, command("sdc-voladm"), command("sdc-volapi"), command("sdc-pkgadm")])
}

/// Writes those of the feed, which is at these servers.
pub fn write_fleet(places: &Places<'_>, servers: &[String]) -> io::Result<()> {
    let testbed = quoted(&places.program.to_string_lossy());
    let file = |name: &str| places.node.join(format!("{name}.json"));
    let oneachnode = places.node.join("bin/sdc-oneachnode");
    // The lab has one server.
    let asked = json!({
        "nats": { "servers": servers }, "streams": { "replicas": 1, "bytes": 1 << 30 },
        "commands": { "sdc_oneachnode": oneachnode },
    });
    std::fs::write(file("sdc-fleet"), format!("{asked:#}\n"))?;
    let command = |name: &'static str| {
        let config = quoted(&file(name).to_string_lossy());
        configured(&testbed, name, &config)
    };
    let services = quoted(&file("sdc-migrate").to_string_lossy());
    let sdc_fleet = format!(
        "[ -f {services} ] && export SDC_MIGRATE_CONFIG={services}\n{}",
        command("sdc-fleet")
    );
    let node = quoted(&places.node.to_string_lossy());
    let scripts = [
        ("fleet-agent", command("fleet-agent")),
        ("sdc-fleet", sdc_fleet),
        ("sdc-oneachnode", format!("exec {testbed} @sdc-oneachnode {node} \"$@\"")),
    ];
    put(places.node, &scripts)
}

/// A program with its configuration of the lab. Without arguments it prints its help, as it does elsewhere: with the
/// configuration alone a daemon would start.
fn configured(testbed: &str, name: &str, config: &str) -> String {
    format!(
        "[ $# -gt 0 ] || exec {testbed} @{name}\nexec {testbed} @{name} --config {config} \"$@\""
    )
}

fn put(node: &Path, scripts: &[(&str, String)]) -> io::Result<()> {
    for (name, body) in scripts {
        let file = node.join("bin").join(name);
        std::fs::write(&file, format!("#!/bin/bash\n{body}\n"))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A word as the shell takes it literally.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
