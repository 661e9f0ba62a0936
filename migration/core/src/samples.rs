// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! A record for tests.

use serde_json::{Value, json};

use crate::record::Record;

/// Returns a paused record with these fields.
pub fn record(fields: Value) -> Record {
    let mut record = json!({
        "action": "begin", "automatic": false, "created_timestamp": "2026-02-01T10:00:00.000Z",
        "id": "09576635-e0bb-49d3-a242-a23a69c2c932", "num_sync_phases": 0, "phase": "begin",
        "progress_history": [], "source_server_uuid": "96c6fbfa-9615-4135-b135-0199b3500ce4",
        "target_server_uuid": "6cbd5b1a-34e3-4365-a31f-48bc755e87cf",
        "state": "paused", "vm_uuid": "0aa41ab0-2046-4d53-a82c-b9876136d4f1",
    });
    if let (Value::Object(record), Value::Object(fields)) = (&mut record, fields) {
        record.extend(fields);
    }
    Record::read(&record).expect("a record for tests")
}
