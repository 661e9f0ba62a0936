// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

use serde_json::{Value, json};

use super::lines::*;

/// Lines of the real helper, each with a note on how it came about.
const SAMPLES: &str = include_str!("samples.jsonl");

fn samples() -> Vec<(String, Value)> {
    let lines = SAMPLES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|one| (one["note"].as_str().unwrap().to_owned(), one["line"].clone())).collect()
}

#[test]
fn a_command_is_a_key_a_verb_and_a_path() {
    assert_eq!(parse("1 WATCH /a"), Ok(Command::Watch(1, "/a")));
    assert_eq!(parse(" 2\tUNWATCH  /a "), Ok(Command::Unwatch(2, "/a")));
    assert_eq!(parse("18446744073709551615 STATUS"), Ok(Command::Status(u64::MAX)));
    assert_eq!(parse("3 WATCH /with a blank"), Ok(Command::Watch(3, "/with")));
    assert_eq!(parse("0 WATCH /a"), Err(Refusal::KeyZero));
    assert_eq!(parse("9 FROB"), Err(Refusal::Unknown(9, "FROB")));
    assert_eq!(parse("9 watch /a"), Err(Refusal::Unknown(9, "watch")));
    let invalid = [
        "",
        " ",
        "1",
        "WATCH /a",
        "-1 WATCH /a",
        "+1 STATUS",
        "1x STATUS",
        "1 WATCH",
        "1 UNWATCH",
        "1 STATUS /a",
        "18446744073709551616 STATUS",
        "\0",
        "\u{fffd}\u{fffd}",
    ];
    for line in invalid {
        assert_eq!(parse(line), Err(Refusal::Invalid), "{line:?}");
    }
}

#[test]
fn every_recorded_line_is_printed_alike() {
    let all = samples();
    assert_eq!(all.len(), 21);
    for (note, line) in all {
        let time: Time = serde_json::from_value(line["time"].clone()).unwrap();
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let (key, path) = (line["key"].as_u64().unwrap_or_default(), text("pathname"));
        let printed = match (text("type"), line["code"].as_u64()) {
            ("ready", _) => ready(time),
            ("event", _) => {
                let flags = u32::try_from(line["revents"].as_i64().unwrap()).unwrap();
                event(time, path, flags, line["final"] == true)
            }
            ("response", _) if line.get("data").is_some() => {
                let files = line["data"]["files"].as_array().unwrap();
                let files: Vec<&str> = files.iter().filter_map(Value::as_str).collect();
                status(time, key, &files, 12382)
            }
            ("response", Some(0)) => response(time, key, path, Ok(text("message").to_owned())),
            ("response", _) => response(time, key, path, Err(text("message").to_owned())),
            ("error", Some(1)) => refused(time, &Refusal::Invalid),
            ("error", Some(2)) => refused(time, &Refusal::KeyZero),
            ("error", Some(3)) => refused(time, &Refusal::Unknown(9, "FROB")),
            ("error", Some(4)) => {
                let path = text("message").split('\'').nth(1).unwrap();
                lost(time, path, 13)
            }
            other => panic!("{note}: {other:?}"),
        };
        assert_eq!(printed.to_string(), line.to_string(), "{note}");
    }
}

#[cfg(target_os = "linux")]
mod on_files {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::thread::JoinHandle;
    use std::time::Duration;

    use super::super::watcher::{Fault, serve};
    use super::*;

    const VM: &str = "3f5c1b9e-7a40-4d0e-9c1e-5b7a2f6d8c11";

    /// A helper on a directory with the files of one VM.
    struct Scene {
        dir: tempfile::TempDir,
        stdin: UnixStream,
        stdout: BufReader<UnixStream>,
        helper: JoinHandle<Result<(), Fault>>,
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            ours.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let helper = std::thread::spawn(move || {
                let mut output = theirs.try_clone().unwrap();
                serve(&mut theirs, &mut output, true)
            });
            let stdout = BufReader::new(ours.try_clone().unwrap());
            let mut scene = Self { dir, stdin: ours, stdout, helper };
            for name in [
                "/tmp/.sysinfo.json",
                &xml(),
                &config("metadata"),
                &config("tags"),
                &config("routes"),
            ] {
                scene.write(name, "{\"a\": 1}");
            }
            assert_eq!(scene.line()["type"], "ready");
            scene
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name.trim_start_matches('/'))
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file =
                fs::File::options().create(true).truncate(false).write(true).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn replace(&self, name: &str, text: &str) {
            self.write("/tmp/new", text);
            fs::rename(self.path("/tmp/new"), self.path(name)).unwrap();
        }

        /// Sends a command; paths are those of the node.
        fn say(&mut self, command: &str) {
            let root = self.dir.path().to_str().unwrap();
            writeln!(self.stdin, "{}", command.replace(" /", &format!(" {root}/"))).unwrap();
        }

        /// The next line, with the node's paths.
        fn line(&mut self) -> Value {
            let mut line = String::new();
            self.stdout.read_line(&mut line).unwrap();
            let root = self.dir.path().to_str().unwrap();
            serde_json::from_str(&line.replace(root, ""))
                .unwrap_or_else(|e| panic!("{line:?}: {e}"))
        }

        fn answer(&mut self, command: &str) -> Value {
            self.say(command);
            self.line()
        }

        fn watch(&mut self, name: &str) {
            assert_eq!(self.answer(&format!("77 WATCH {name}"))["result"], "SUCCESS", "{name}");
        }

        /// Asserts that the next line is the recorded one with this note, but for time and pid.
        #[track_caller]
        fn is(&mut self, note: &str) {
            let all = samples();
            let (_, recorded) = all.iter().find(|(known, _)| known.starts_with(note)).expect(note);
            let mut line = self.line();
            line["time"] = recorded["time"].clone();
            if let Some(pid) = line.pointer_mut("/data/pid") {
                assert_eq!(*pid, json!(std::process::id()));
                *pid = recorded["data"]["pid"].clone();
            }
            assert_eq!(line.to_string(), recorded.to_string(), "{note}");
        }

        /// Asserts that nothing more was printed, by the barrier that STATUS is.
        #[track_caller]
        fn is_silent(&mut self) -> Vec<String> {
            let status = self.answer("99 STATUS");
            assert_eq!(status["key"], 99, "{status}");
            serde_json::from_value(status["data"]["files"].clone()).unwrap()
        }

        fn end(self) -> Result<(), Fault> {
            self.stdin.shutdown(std::net::Shutdown::Write).unwrap();
            self.helper.join().unwrap()
        }
    }

    fn xml() -> String {
        format!("/etc/zones/{VM}.xml")
    }

    fn config(name: &str) -> String {
        format!("/zones/{VM}/config/{name}.json")
    }

    fn lastexited() -> String {
        format!("/zones/{VM}/lastexited")
    }

    #[test]
    fn answers_are_as_recorded() {
        let mut scene = Scene::new();
        scene.say("1 WATCH /tmp/.sysinfo.json");
        scene.is("answer to: 1 WATCH");
        scene.say(&format!("2 WATCH {}", xml()));
        scene.is("answer to: 2 WATCH");
        scene.say(&format!("3 WATCH {}", xml()));
        scene.is("WATCH of a path already watched");
        scene.say(&format!("4 WATCH {}", lastexited()));
        scene.is("WATCH of a missing file");
        scene.watch(&config("tags"));
        scene.say(&format!("5 UNWATCH {}", config("tags")));
        scene.is("UNWATCH ok");
        scene.say(&format!("6 UNWATCH {}", config("tags")));
        scene.is("UNWATCH of a path not watched");
        scene.say("7 STATUS");
        scene.is("answer to: 7 STATUS");
        scene.say("garbage");
        scene.is("code 1");
        scene.say("0 STATUS");
        scene.is("code 2");
        scene.say("9 FROB");
        scene.is("code 3");
        scene.end().unwrap();
    }

    #[test]
    fn events_are_as_recorded() {
        let mut scene = Scene::new();
        scene.watch(&xml());
        scene.write(&xml(), "{\"a\": 2}");
        scene.is("content changed in place");

        scene.write(&lastexited(), "a long line");
        scene.watch(&lastexited());
        // In one step: as two they may make two events, as on a real node.
        let file = fs::File::options().write(true).open(scene.path(&lastexited())).unwrap();
        file.set_len(5).unwrap();
        scene.is("truncated and rewritten");

        scene.watch(&config("metadata"));
        scene.replace(&config("metadata"), "{}");
        scene.is("atomic replace");
        // The watch goes on with the new file.
        scene.write(&config("metadata"), "{\"a\": 3}");
        assert_eq!(scene.line()["changes"], json!(["FILE_MODIFIED"]));

        scene.watch("/tmp/.sysinfo.json");
        scene.replace("/tmp/.sysinfo.json", "{}");
        scene.is("sysinfo cache rewritten");

        fs::remove_file(scene.path(&xml())).unwrap();
        scene.is("deleted");

        scene.watch(&config("routes"));
        fs::rename(scene.path(&config("routes")), scene.path("/tmp/away")).unwrap();
        scene.is("file renamed away");

        // The way in which the simulated node unmounts a dataset.
        let zonepath = format!("/zones/{VM}");
        for name in [config("metadata"), lastexited()] {
            scene.say(&format!("5 UNWATCH {name}"));
            assert_eq!(scene.line()["result"], "SUCCESS");
        }
        scene.watch(&zonepath);
        scene.watch(&config("tags"));
        fs::rename(scene.path(&zonepath), scene.path("/zones/unmounted")).unwrap();
        scene.is("filesystem unmounted");
        assert_eq!(scene.line()["changes"], json!(["FILE_EXCEPTION", "FILE_RENAME_FROM"]));
        assert_eq!(scene.is_silent(), ["/tmp/.sysinfo.json"]);
        scene.end().unwrap();
    }

    #[test]
    fn a_deletion_ends_the_watch_even_if_the_path_exists_again() {
        let mut scene = Scene::new();
        scene.watch(&xml());
        // A move from another file system.
        fs::remove_file(scene.path(&xml())).unwrap();
        scene.write(&xml(), "{}");
        scene.is("deleted");
        assert!(scene.is_silent().is_empty());
    }

    #[test]
    fn directories_tell_what_comes_and_goes_in_them() {
        let mut scene = Scene::new();
        scene.watch("/etc/zones");
        scene.write("/etc/zones/index", "");
        assert_eq!(scene.line()["changes"], json!(["FILE_MODIFIED"]));
        scene.write("/etc/zones/index", "not a change of the directory");
        scene.is_silent();
        fs::remove_dir_all(scene.path("/etc/zones")).unwrap();
        // Its files go first.
        let mut line = scene.line();
        while line["final"] == false {
            line = scene.line();
        }
        // The directory may be gone before the helper examines it after the change before: then the
        // line of that change is the last one, or says that the directory was lost.
        let is_deleted = line["changes"].as_array().is_some_and(|changes| {
            changes.starts_with(&[json!("FILE_DELETE"), json!("FILE_EXCEPTION")])
        });
        let is_lost = line["type"] == "error" || line["changes"] == json!(["FILE_MODIFIED"]);
        assert!(is_deleted || is_lost, "{line}");
        assert!(scene.is_silent().is_empty(), "nothing is watched any more");
    }

    #[test]
    fn times_count_and_other_attributes_do_not() {
        let mut scene = Scene::new();
        scene.watch(&xml());
        let file = fs::File::options().write(true).open(scene.path(&xml())).unwrap();
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        assert_eq!(scene.is_silent().len(), 1);
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        scene.is("content changed in place");
    }

    #[test]
    fn a_symbolic_link_is_followed() {
        let mut scene = Scene::new();
        std::os::unix::fs::symlink(scene.path(&config("tags")), scene.path("/tmp/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", scene.path("/tmp/dangling")).unwrap();
        scene.watch("/tmp/link");
        scene.write(&config("tags"), "{\"b\": 1}");
        assert_eq!(scene.line()["pathname"], "/tmp/link");
        assert_eq!(scene.answer("8 WATCH /tmp/dangling")["result"], "FAIL");
        let answer = scene.answer(&format!("8 WATCH {}/below", xml()));
        assert_eq!(answer["message"], "stat(2) failed with errno 20: Not a directory");
    }

    #[test]
    fn garbage_is_answered_and_harms_nothing() {
        let mut scene = Scene::new();
        scene.watch(&xml());
        let long = vec![b'x'; 200_000];
        for garbage in [&b"\0\xff\xfe"[..], b"", b"1", b"99999999999999999999999 STATUS", &long] {
            scene.stdin.write_all(garbage).unwrap();
            scene.stdin.write_all(b"\n").unwrap();
            scene.is("code 1");
        }
        assert_eq!(scene.is_silent(), [xml()]);
        scene.end().unwrap();
    }

    #[test]
    fn changes_come_before_the_answer_to_a_later_command() {
        let mut scene = Scene::new();
        for round in 0..200 {
            let name = format!("/etc/zones/{round}.xml");
            scene.write(&name, "");
            scene.watch(&name);
        }
        for round in 0..200 {
            scene.write(&format!("/etc/zones/{round}.xml"), "news");
        }
        scene.say("5 STATUS");
        let events = (0..200).map(|_| scene.line()).filter(|line| line["type"] == "event").count();
        assert_eq!((events, scene.line()["key"].as_u64()), (200, Some(5)));
    }

    #[test]
    fn lost_events_end_the_helper() {
        let mut scene = Scene::new();
        let name = |nth: u32| format!("/etc/zones/{nth}.xml");
        for nth in 0..2_000 {
            fs::write(scene.path(&name(nth)), "").unwrap();
            scene.watch(&name(nth));
        }
        // Nobody reads: the helper waits for its reader while the queue fills up.
        for nth in (0..2_000).cycle().take(22_000) {
            fs::write(scene.path(&name(nth)), "news").unwrap();
        }
        let mut rest = Vec::new();
        while !scene.helper.is_finished() {
            scene.stdout.read_until(b'\n', &mut rest).unwrap();
        }
        assert!(matches!(scene.end(), Err(Fault::Overflow)));
    }

    #[test]
    fn five_thousand_vms_are_watched() {
        const VMS: u64 = 5_000;
        // Two for each VM, one for the XMLs.
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap();
        if most.trim().parse::<u64>().unwrap() < VMS * 2 + 1_000 {
            eprintln!("skipped: fs.inotify.max_user_watches is only {most}");
            return;
        }
        let mut scene = Scene::new();
        let names = ["metadata", "routes", "tags"];
        for vm in 0..VMS {
            let config = scene.path(&format!("/zones/{vm}/config"));
            fs::create_dir_all(&config).unwrap();
            names
                .iter()
                .for_each(|name| fs::write(config.join(format!("{name}.json")), "").unwrap());
            fs::write(scene.path(&format!("/zones/{vm}/lastexited")), "").unwrap();
            fs::write(scene.path(&format!("/etc/zones/{vm}.xml")), "").unwrap();
        }
        let root = scene.dir.path().to_str().unwrap().to_owned();
        let mut stdin = scene.stdin.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            let mut key = 0;
            for vm in 0..VMS {
                let mut say = |path: String| {
                    key += 1;
                    writeln!(stdin, "{key} WATCH {root}{path}").unwrap();
                };
                names.iter().for_each(|name| say(format!("/zones/{vm}/config/{name}.json")));
                say(format!("/zones/{vm}/lastexited"));
                say(format!("/etc/zones/{vm}.xml"));
            }
        });
        for _ in 0..VMS * 5 {
            let line = scene.line();
            assert_eq!(line["result"], "SUCCESS", "{line}");
        }
        writer.join().unwrap();
        scene.write("/zones/4999/config/tags.json", "{}");
        assert_eq!(scene.line()["pathname"], "/zones/4999/config/tags.json");
        assert_eq!(scene.is_silent().len(), 25_000);
    }
}
