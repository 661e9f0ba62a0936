// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `deploy/package` makes: each file of the table with its mode, stripped programs, the same bytes twice, and for
//! apm what it, cn-agent and IMGAPI read.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::table::{Package, layout, packages};
use super::{deploy, run, text};

/// A build of the last commit, in the form of file names for apm.
pub const STAMP: &str = "main-20260102T030405Z-gabcdef0";

/// A package's file, and the folder below which its paths are once it is unpacked.
pub fn file(out: &Path, package: &Package, stamp: &str) -> PathBuf {
    match package.is_for_apm() {
        true => out.join(format!("{}-{stamp}.tgz", package.name)),
        false => out.join(format!("{}-{}.tar.gz", package.name, env!("CARGO_PKG_VERSION"))),
    }
}

/// Runs `deploy/package` on these programs.
pub fn packed(out: &Path, programs: &Path, stamp: &str) {
    let (package, stamp) = (deploy("package"), format!("BUILD_STAMP={stamp}"));
    let [package, out, programs] = [&*package, out, programs].map(|path| path.to_string_lossy());
    let made = run("env", &[&stamp, "bash", &package, &out, &programs]);
    assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
    let files: Vec<&str> = made.stdout.lines().collect();
    assert_eq!(files.len(), packages().len(), "{files:?}");
}

/// Makes a folder of programs that do nothing, one for each of the table.
pub fn stand_ins(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    let layout = layout();
    for name in layout.values().filter_map(|source| source.strip_prefix("bin/")) {
        std::fs::copy("/bin/true", dir.join(name)).unwrap();
    }
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap())
    };
    files.map(read).collect()
}

#[test]
fn the_same_input_gives_the_same_bytes_and_another_file_another_uuid() {
    let dir = tempfile::tempdir().unwrap();
    let programs = dir.path().join("programs");
    stand_ins(&programs);
    let (one, two, other) = (dir.path().join("1"), dir.path().join("2"), dir.path().join("3"));
    packed(&one, &programs, STAMP);
    packed(&two, &programs, STAMP);
    assert_eq!(contents(&one), contents(&two));
    std::fs::copy("/bin/echo", programs.join("net-agent")).unwrap();
    packed(&other, &programs, STAMP);
    for package in packages().iter().filter(|package| package.is_for_apm()) {
        let is_other = uuid(&one, package) != uuid(&other, package);
        assert_eq!(is_other, package.name == "net-agent", "{}", package.name);
        // What sdcadm takes for the date of the build is the last part but one.
        let name = file(&one, package, STAMP).file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(name.rsplit('-').nth(1), Some("20260102T030405Z"));
    }
    let bad = run(
        "env",
        &["BUILD_STAMP=today", "bash", &deploy("package").to_string_lossy(), "/nowhere", "/bin"],
    );
    assert_eq!(bad.code, Some(2), "{}", bad.stderr);
}

#[test]
fn the_lines_that_a_platform_loses_are_its_own_of_the_places_that_ours_take() {
    let gone = text("platform.gone");
    let platform = packages().into_iter().find(|it| it.name == "platform").unwrap();
    let ours: Vec<String> = platform.files().into_iter().map(|file| file.place).collect();
    let listed = super::paths::platform();
    assert_eq!(gone.lines().count(), 5);
    for line in gone.lines() {
        let ["f", place, _, "root", "bin"] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert!(
            listed.contains(&format!("/{place}")) && ours.iter().any(|it| it == place),
            "{line}"
        );
    }
    // And no other place of ours is one of the platform's.
    for place in ours.iter().filter(|place| !gone.contains(&format!(" {place} "))) {
        assert!(
            !listed.contains(&format!("/{place}")),
            "{place} is the platform's, and does not go"
        );
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The uuid of a package's image by its manifest, which fits the file beside it.
fn uuid(out: &Path, package: &Package) -> String {
    let tarball = file(out, package, STAMP);
    let manifest = json(&out.join(format!("{}-{STAMP}.imgmanifest", package.name)));
    let sum = run("sha1sum", &[&tarball.to_string_lossy()]).stdout;
    assert!(sum.starts_with(manifest["files"][0]["sha1"].as_str().unwrap()), "{manifest}");
    assert_eq!(manifest["files"][0]["size"], tarball.metadata().unwrap().len());
    assert_eq!((&manifest["v"], &manifest["type"]), (&Value::from(2), &Value::from("other")));
    assert_eq!(manifest["published_at"], "2026-01-02T03:04:05Z");
    assert_eq!(manifest["tags"]["smartdc_service"], "true");
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("unpacked");
    extract(&tarball, &root);
    let folders: Vec<_> =
        std::fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(folders, [&*package.name], "a package is one folder");
    let folder = root.join(&package.name);
    let said = json(&folder.join("package.json"));
    let uuid = std::fs::read_to_string(folder.join("image_uuid")).unwrap();
    assert_eq!(manifest["uuid"], uuid.trim_end());
    assert_eq!((&said["name"], &said["version"]), (&manifest["name"], &manifest["version"]));
    let commands = said["bin"].as_object().unwrap();
    let named = package.files().into_iter().filter(|it| it.place.starts_with("bin/"));
    assert_eq!(commands.len(), named.count(), "{said}");
    let scripts = said["scripts"].as_object().unwrap();
    for path in commands.values().chain(scripts.values()) {
        let mode = folder.join(path.as_str().unwrap()).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o555, 0o555, "{path}");
    }
    uuid
}

#[test]
fn the_packages_have_each_file_of_the_table_with_its_mode_and_stripped_programs() {
    let programs = Path::new(env!("CARGO_BIN_EXE_testbed")).parent().unwrap().to_owned();
    let named = layout();
    let named = named.values().filter_map(|source| source.strip_prefix("bin/"));
    let missing: Vec<&str> = named.filter(|name| !programs.join(name).exists()).collect();
    if !missing.is_empty() {
        eprintln!(
            "skipped: {missing:?} are not built here (cargo build --workspace --bins builds them)"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    packed(&out, &programs, STAMP);
    let shell = "set -e; cd \"$1\"; sha256sum -c *.sha256";
    let done = run("bash", &["-c", shell, "-", &out.to_string_lossy()]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    for package in packages() {
        let tarball = file(&out, &package, STAMP);
        let (root, kept) = (dir.path().join(&package.name), dir.path().join("symbols"));
        extract(&tarball, &root);
        // Its programs are stripped; those with symbols are beside it.
        let name = tarball.to_string_lossy().replace(".tgz", "").replace(".tar.gz", "");
        extract(Path::new(&format!("{name}-symbols.tgz")), &kept);
        is_as_the_table_says(&package, &root, &kept, &programs);
        if !package.is_for_apm() {
            lists_itself(&package, &root);
        }
        std::fs::remove_dir_all(root).unwrap();
        std::fs::remove_dir_all(kept).unwrap();
    }
}

fn extract(file: &Path, into: &Path) {
    std::fs::create_dir(into).unwrap();
    let done = run("tar", &["-xzf", &file.to_string_lossy(), "-C", &into.to_string_lossy()]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

/// Where a file of the package is in its tarball.
fn inside(package: &Package, place: &str) -> String {
    match (package.is_for_apm(), &*package.kind) {
        (true, _) => format!("{}/{place}", package.name),
        // It is copied over the root of the origin.
        (false, "zone") => format!("root{}", package.path(place)),
        (false, _) => package.path(place)[1..].to_owned(),
    }
}

fn is_as_the_table_says(package: &Package, root: &Path, kept: &Path, programs: &Path) {
    let size = |path: &Path| path.metadata().unwrap().len();
    for row in package.files() {
        let place = inside(package, &row.place);
        let file = root.join(&place);
        let stat = file.symlink_metadata().unwrap_or_else(|error| panic!("{place}: {error}"));
        if row.mode == "link" {
            let to = std::fs::read_link(&file).unwrap();
            assert_eq!(format!("-> {}", to.display()), row.source);
            continue;
        }
        assert_eq!(format!("0{:o}", stat.permissions().mode() & 0o7777), row.mode, "{place}");
        if let Some(name) = row.source.strip_prefix("bin/") {
            let symbols = kept.join(place.strip_prefix("root/").unwrap_or(&place));
            assert_eq!(size(&symbols), size(&programs.join(name)), "{place}");
            assert!(size(&file) < size(&programs.join(name)), "{place} is not stripped");
            if name == "vminfod" {
                let version = run(&file.to_string_lossy(), &["--version"]);
                let said =
                    concat!("vminfod ", env!("CARGO_PKG_VERSION"), " (built without a commit)");
                assert_eq!(version.stdout.trim(), said);
            }
        } else if let Some(command) = row.source.strip_prefix("run/") {
            let printed = std::fs::read_to_string(&file).unwrap();
            let name = command.split(' ').next().unwrap();
            assert!(printed.contains(name) && printed.lines().count() > 20, "{place}: {printed}");
        } else {
            let source = deploy(row.source.trim_start_matches("deploy/"));
            assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(source).unwrap(), "{place}");
        }
    }
}

/// The list in an image of a zone, and in the tree of a platform, is what is in it.
fn lists_itself(package: &Package, root: &Path) {
    let name = &package.name;
    let list = match name.as_str() {
        "platform" => "usr/share/hub/platform.manifest".to_owned(),
        _ => format!("{name}/share/{name}.manifest"),
    };
    let list = root.join(inside(package, &list));
    let listed = std::fs::read_to_string(list).unwrap();
    for line in listed.lines().filter(|line| !line.starts_with("link ")) {
        let [mode, place, size, sum] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line:?}")
        };
        let file = root.join(place);
        let stat = file.metadata().unwrap();
        assert_eq!(format!("0{:o}", stat.permissions().mode() & 0o7777), mode, "{place}");
        assert_eq!(stat.len().to_string(), size, "{place}");
        assert!(run("sha256sum", &[&file.to_string_lossy()]).stdout.starts_with(sum), "{place}");
    }
    assert_eq!(listed.lines().count(), package.files().len(), "{}", package.name);
}

#[test]
fn an_image_of_a_zone_is_two_folders_with_what_others_make_and_nothing_in_usr() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    stand_ins(&at("programs"));
    for (file, content) in [
        ("scripts/lib/util.sh", "util"),
        ("scripts/setup.sh", "not ours"),
        ("agent/agent.js", "agent"),
        ("registrar/main.js", "registrar"),
        ("nats-server", "an illumos program"),
    ] {
        std::fs::create_dir_all(at(file).parent().unwrap()).unwrap();
        std::fs::write(at(file), content).unwrap();
    }
    let given = [
        ("SDC_SCRIPTS", "scripts"),
        ("CONFIG_AGENT", "agent"),
        ("REGISTRAR", "registrar"),
        ("NATS_SERVER", "nats-server"),
    ];
    let inputs = given.map(|(key, path)| format!("{key}={}", at(path).display()));
    let stamp = format!("BUILD_STAMP={STAMP}");
    let package = deploy("package").to_string_lossy().into_owned();
    let pack = |inputs: &[String], out: &str| {
        let [out, programs] = [at(out), at("programs")].map(|it| it.to_string_lossy().into_owned());
        let mut args = vec![&*stamp];
        args.extend(inputs.iter().map(String::as_str));
        args.extend(["bash", &package, &out, &programs]);
        let made = run("env", &args);
        assert_eq!(made.code, Some(0), "{}{}", made.stdout, made.stderr);
        made.stderr
    };
    let said = pack(&[], "without");
    assert!(
        said.contains("feed: the image lacks SDC_SCRIPTS CONFIG_AGENT REGISTRAR NATS_SERVER"),
        "{said}"
    );
    assert_eq!(pack(&inputs, "with"), "");
    for package in packages().iter().filter(|package| package.kind == "zone") {
        let root = at(&package.name);
        extract(&file(&at("with"), package, STAMP), &root);
        let mut top: Vec<_> =
            std::fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name()).collect();
        top.sort();
        assert_eq!(top, ["root", "site"], "{}", package.name);
        let below: Vec<_> = std::fs::read_dir(root.join("root"))
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        assert_eq!(below, ["opt"], "{}: in a zone all else is the platform's", package.name);
        let read =
            |path: &str| std::fs::read_to_string(root.join("root/opt/smartdc").join(path)).ok();
        assert_eq!(read("boot/lib/util.sh").as_deref(), Some("util"));
        assert_eq!(
            read("boot/setup.sh"),
            Some(text("zone/setup.sh")),
            "ours, not that of sdc-scripts"
        );
        assert_eq!(read("config-agent/agent.js").as_deref(), Some("agent"));
        let has_server = read("feed/bin/nats-server").is_some();
        assert_eq!(has_server, package.name == "feed");
    }
}
