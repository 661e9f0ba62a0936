// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! The rows: what was forged, what has to come of it, what came of it.

use sdc_clients::Error;
use sdc_clients::http::Reply;

/// Nobody may ask this.
pub const NOT_ALLOWED: &str = "403 NotAuthorized";
/// No order to receive is under way from this node.
pub const NOT_RECEIVING: &str = "409 NotReceiving";
/// It is no dataset of the VM.
pub const FOREIGN: &str = "409 ForeignDataset";
/// It was done.
pub const DONE: &str = "200";

/// All rows, and those that came through.
#[derive(Default)]
pub struct Rows {
    count: usize,
    through: Vec<String>,
}

impl Rows {
    /// Notes what came of a forgery.
    pub fn row(&mut self, name: &str, want: &str, got: &str) {
        self.count += 1;
        if got != want {
            self.through.push(format!("{name}: {got} instead of {want}"));
        }
    }

    /// Checks that nothing came through, of at least so many rows.
    pub fn are_all_refused(&self, least: usize) {
        assert!(self.through.is_empty(), "\n{}", self.through.join("\n"));
        assert!(self.count >= least, "{} rows", self.count);
    }
}

/// What was answered: the status, and the code of a refusal.
pub fn told(answer: &Result<Reply, Error>) -> String {
    match answer {
        Ok(_) => DONE.to_owned(),
        Err(error) => match (error.status(), error.code()) {
            (Some(status), code) => format!("{status} {}", code.unwrap_or_default()),
            (None, _) => "nothing".to_owned(),
        },
    }
}
