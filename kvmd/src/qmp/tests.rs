// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! Lines that QEMU sends, and lines that it should not.

use proptest::prelude::*;

use super::*;

fn event(line: &str) -> Event {
    match parse_line(line.as_bytes()) {
        Ok(Message::Event(event)) => event,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_protocols_shapes() {
    let greeting = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}"#;
    assert_eq!(
        parse_line(greeting.as_bytes()).unwrap(),
        Message::Greeting { version: Some("7.2.22".into()) }
    );
    let shutdown = r#"{"timestamp": {"seconds": 2, "microseconds": 5}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-shutdown"}}"#;
    let shutdown = event(shutdown);
    assert_eq!((shutdown.name, shutdown.at_us), (EventName::Shutdown, Some(2_000_005)));
    assert_eq!(
        (shutdown.data.guest, shutdown.data.reason.as_deref()),
        (Some(true), Some("guest-shutdown"))
    );
    assert_eq!(event(r#"{"event":"STOP"}"#).data, EventData::default());
    assert_eq!(event(r#"{"event":"VNC_CONNECTED","data":{"a":[]}}"#).name, EventName::Other);
    assert_eq!(parse_line(br#"{"return": {}}"#).unwrap(), Message::Return { status: None });
    let status = br#"{"return":{"status":"paused","running":false},"id":{"a":1}}"#;
    assert_eq!(parse_line(status).unwrap(), Message::Return { status: Some("paused".into()) });
    let error = br#"{"id":1,"error":{"class":"GenericError","desc":"no"}}"#;
    assert_eq!(parse_line(error).unwrap(), Message::Error { class: "GenericError".into() });
    assert_eq!(parse_line(b"{\"x\":1}").unwrap(), Message::Other);
}

#[test]
fn wrong_types_count_as_absent() {
    let odd = event(r#"{"event":"SHUTDOWN","timestamp":"soon","data":{"guest":"yes","reason":7}}"#);
    assert_eq!((odd.name, odd.at_us, odd.data), (EventName::Shutdown, None, EventData::default()));
    assert_eq!(
        event(r#"{"event":"SHUTDOWN","data":[true,"host-signal"]}"#).data,
        EventData::default()
    );
    assert_eq!(event(r#"{"\u0065vent":"SHUT\u0044OWN"}"#).name, EventName::Shutdown);
}

#[test]
fn hostile_lines_are_errors() {
    let deep = "[".repeat(200_000);
    for line in ["", "null", "7", "[]", "{", "\u{0}", r#"{"event":7}"#, &deep] {
        assert!(parse_line(line.as_bytes()).is_err(), "{:.40} was taken", line);
    }
    assert!(parse_line(b"{\"event\":\"\xff\"}").is_err());
    let long_word = format!(r#"{{"event":"RESET","data":{{"reason":"{}"}}}}"#, "x".repeat(129));
    assert_eq!(event(&long_word).data.reason, None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _either = parse_line(&bytes);
    }
}
