// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The start method of `hub-node` in a mount namespace that imitates a node: `/usr` read-only, the services in the
//! order of the simulated boot. Skipped with a word where a user may not make namespaces.

use std::path::Path;
use std::time::Duration;

use simnode::{Node, NodeKind};
use testbed::process;

use super::{Bench, METHOD, STANDALONE, VMINFOD};

const LATE: Duration = Duration::from_secs(120);
const JAIL: [&str; 5] = ["-r", "-m", "-p", "-f", "--kill-child"];
/// vminfod of the kit: it serves and answers, unless this boot is to fail.
const OURS: &str = "#!/bin/sh\ncase $1 in\nserve) [ ! -f /var/fails ] || exit 1; exec sleep 60 ;;\n\
                    ping) [ ! -f /var/fails ] ;;\nesac\n";

/// Makes the root what a node's is, with this machine's programs in it, and runs a script there.
fn script(root: &Path, platform: &str, lines: &str) -> String {
    let root = root.display();
    format!(
        "set -e\nmount --make-rprivate /\ncd '{root}'\n\
         mkdir -p usr/bin usr/sbin usr/lib usr/lib64 bin sbin lib64 lib/x86_64-linux-gnu dev proc shim lib/svc/share etc/svc/volatile\n\
         mount --bind /usr/bin bin; mount --bind /usr/lib64 lib64\n\
         mount --bind /usr/lib/x86_64-linux-gnu lib/x86_64-linux-gnu\n\
         echo 'SMF_EXIT_OK=0 SMF_EXIT_ERR_FATAL=95' >lib/svc/share/smf_include.sh\n\
         printf '#!/bin/sh\\necho {platform}\\n' >shim/uname\n\
         printf '#!/bin/sh\\n[ \"$1 $2\" = \"-F lofs\" ] && exec /usr/bin/mount --bind \"$3\" \"$4\"\\n' >shim/mount\n\
         chmod 755 shim/*\nmount --bind usr usr\nfor it in bin sbin lib lib64; do mount --bind /usr/$it usr/$it; done\n\
         mount -o remount,bind,ro usr\nmount --rbind /dev dev\nmount -t proc proc proc\n\
         cat >script <<'THE_END'\nPATH=/shim:/usr/bin; export PATH\n{lines}\nTHE_END\nexec chroot . /bin/sh /script\n"
    )
}

/// Boots the node; `with` is done after the methods of hub-node and vminfod. Returns what they said.
async fn boot(node: &Node, extra: &str) -> String {
    let mut boot = node.begin_boot().unwrap();
    let mut lines =
        "touch /usr/vm/sbin/written 2>/dev/null && echo '/usr was written'\n".to_owned();
    while let Some(start) = node.next_start(&mut boot).unwrap() {
        let shown = start.service.ends_with("/hub-node") || start.service.ends_with("/vminfod");
        if shown {
            lines.push_str(&format!(
                "{} </dev/null || echo \"{} ended with $?\"\n",
                start.exec, start.service
            ));
        }
        node.ended(&start, true).unwrap();
    }
    let platform = format!("joyent_{}", node.running_platform().unwrap());
    let whole = script(&node.root(), &platform, &format!("{lines}{extra}"));
    let args = [&JAIL[..], &["sh", "-c", &whole]].concat();
    let args: Vec<String> = args.iter().map(|it| (*it).to_owned()).collect();
    let done = process::run(Path::new("/usr/bin/unshare"), &args, LATE).await.unwrap();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    format!("{}{}", done.stdout, done.stderr)
}

#[tokio::test]
async fn a_boot_lays_the_mounts_where_it_was_tried_and_not_after_one_that_failed() {
    let args = [&JAIL[..], &["true"]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let can = process::run(Path::new("/usr/bin/unshare"), &args, LATE).await;
    if can.as_ref().map_or(true, |can| can.code != Some(0)) {
        eprintln!("skipped: no mount namespace can be made here");
        return;
    }
    let bench = Bench::new(NodeKind::Standalone);
    let mut node = bench.node.clone();
    bench.put("bin/vminfod", OURS);
    node.put_image(VMINFOD, b"#!/bin/sh\necho 'the platform has started'\n", 0o555).unwrap();
    node.put_image(METHOD, format!("#!/bin/sh\n{VMINFOD}\n").as_bytes(), 0o555).unwrap();
    let manifest = super::deployed("smf/hub-node.xml.in").replace("@@FOLDER@@", STANDALONE);
    node.put("/opt/custom/smf/hub-node.xml", manifest.as_bytes(), 0o444).unwrap();
    let (ours, platforms) = ("the hub's vminfod is in its place", "the platform has started");
    let state = |name: &str| node.path(&format!("/var/db/hub/{name}")).exists();

    let said = boot(&node, "").await;
    assert!(
        said.contains("was not tried on joyent_20260601T000000Z") && said.contains(platforms),
        "{said}"
    );
    node.put("/var/db/hub/platforms", b"joyent_1\njoyent_20260601T000000Z\n", 0o644).unwrap();
    for _ in 0..2 {
        let said = boot(&node, "").await;
        assert!(said.contains(ours) && !said.contains(platforms), "{said}");
        assert!(!said.contains("ended with") && !said.contains("was written"), "{said}");
        assert!(!state("booting") && !state("failed"), "vminfod answered");
    }
    // Run again in the same boot, as SMF may do it, and after it was killed between two steps.
    let again = format!("{STANDALONE}/smf/hub-node start\n");
    let half = format!(
        "umount {METHOD}; echo x >/var/db/hub/booting; {again}cmp {METHOD} {STANDALONE}/smf/system-vminfod && rm /var/db/hub/booting\n"
    );
    let said = boot(&node, &format!("{again}{half}")).await;
    assert_eq!(said.matches(ours).count(), 3, "{said}");
    assert!(!state("booting") && !state("failed"), "{said}");
    // A boot at which vminfod does not answer, then the next ones.
    node.put("/var/fails", b"", 0o644).unwrap();
    let said = boot(&node, "").await;
    assert!(said.contains(ours) && said.contains("vminfod ended with 1"), "{said}");
    assert!(state("booting"));
    std::fs::remove_file(node.path("/var/fails")).unwrap();
    for _ in 0..2 {
        let said = boot(&node, "").await;
        assert!(said.contains("did not answer at") && said.contains(platforms), "{said}");
        assert!(state("failed") && !state("booting"));
    }
    std::fs::remove_file(node.path("/var/db/hub/failed")).unwrap();
    assert!(boot(&node, "").await.contains(ours));
    // A new platform image, and a kit that was half removed.
    node.assign_platform("20270101T000000Z").unwrap();
    let said = boot(&node, "").await;
    assert!(
        said.contains("was not tried on joyent_20270101T000000Z") && said.contains(platforms),
        "{said}"
    );
    node.assign_platform("20260601T000000Z").unwrap();
    std::fs::remove_file(node.path(&format!("{STANDALONE}/smf/system-vminfod"))).unwrap();
    let said = boot(&node, "").await;
    assert!(said.contains("a mount failed") && said.contains(platforms), "{said}");
    std::fs::remove_dir_all(node.path(STANDALONE)).unwrap();
    let said = boot(&node, "").await;
    assert!(said.contains("hub-node ended with 127") && said.contains(platforms), "{said}");
}
