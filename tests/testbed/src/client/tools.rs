// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

//! What `vmadm` and `vminfo` do with answers: they throw if a key is missing.

use serde_json::Value;

use super::thrown::Thrown;
use super::wire::get;

/// A plain request of the client library: 200 and JSON, or an error.
pub async fn fetch(base: &str, path: &str) -> Result<Value, Thrown> {
    let answer = get(base, path, "testbed - cn/1 (/usr/vm/sbin/vmadm)").await?;
    if answer.status != 200 {
        return Err(Thrown::Status(answer.status));
    }
    let text = answer.text().await?;
    serde_json::from_str(&text).map_err(|_| Thrown::Line(text))
}

/// `vmadm get UUID`: a 404 is told in zoneadm's words.
pub async fn vmadm_get(base: &str, uuid: &str) -> Result<Value, Thrown> {
    match fetch(base, &format!("/vms/{uuid}")).await {
        Err(Thrown::Status(404)) => {
            Err(Thrown::Message(format!("zoneadm: {uuid}: No such zone configured")))
        }
        other => other,
    }
}

struct Reader<'a>(&'a Value);

impl<'a> Reader<'a> {
    fn at(&self, path: &str) -> Result<&'a Value, Thrown> {
        let mut value = self.0;
        for key in path.split('.') {
            value = value.get(key).ok_or_else(|| Thrown::TypeError(format!("{key} of {path}")))?;
        }
        Ok(value)
    }

    fn list(&self, path: &str) -> Result<&'a [Value], Thrown> {
        let list = self.at(path)?.as_array().map(Vec::as_slice);
        list.ok_or_else(|| Thrown::TypeError(format!("length of {path}")))
    }

    fn plain(&self, path: &str) -> Result<String, Thrown> {
        let value = self.at(path)?;
        Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

/// `vminfo status` and `vminfo status -f`: the lines it prints.
pub fn vminfo_status(status: &Value) -> Result<String, Thrown> {
    let of = Reader(status);
    let rss = of.at("memory.rss")?.as_f64();
    let rss = rss.ok_or_else(|| Thrown::TypeError("toFixed of memory.rss".to_owned()))?;
    let mut lines = vec![
        format!("state: {} ({})", of.plain("state")?, of.plain("status")?),
        format!("pid: {}", of.plain("pid")?),
        format!("uptime: {}", of.plain("uptime")?),
        format!("rss: {:.2}mb", rss / f64::from(1 << 20)),
        format!("numVms: {}", of.plain("numVms")?),
        "queue".to_owned(),
        format!("  paused: {}", of.plain("queue.paused")?),
        format!("  idle: {}", of.plain("queue.idle")?),
        format!("  npending: {}", of.plain("queue.vasync_queue.npending")?),
        format!("  nqueued: {}", of.plain("queue.vasync_queue.nqueued")?),
        "fullRefresh".to_owned(),
        format!("  lastRefresh: {}", of.plain("lastRefresh")?),
    ];
    for error in of.list("refreshErrors")? {
        lines.push(format!(
            "    - {} ({})",
            Reader(error).plain("err")?,
            Reader(error).plain("ago")?
        ));
    }
    if status.get("refreshLog").is_some() {
        for entry in of.list("refreshLog")? {
            let entry = Reader(entry);
            let (cache, vms) = (entry.list("cacheChanges")?.len(), entry.list("vmChanges")?.len());
            let ago = entry.plain("endedAgo")?;
            lines.push(format!("    - {cache} cacheChanges / {vms} vmChanges - {ago} ago"));
        }
    }
    if status.get("fswatcher").is_some() {
        let actions = of.at("fswatcher.pending_actions")?.as_object();
        let actions =
            actions.ok_or_else(|| Thrown::TypeError("keys of pending_actions".to_owned()))?;
        lines.extend([
            "fswatcher".to_owned(),
            format!("  running: {}", of.plain("fswatcher.running")?),
            format!("  pid: {}", of.plain("fswatcher.watcher_pid")?),
            format!("  watching: {}", of.list("fswatcher.watching")?.len()),
            format!("  tryingToWatch: {}", of.list("fswatcher.not_yet_watching")?.len()),
            format!("  pendingActions: {}", actions.len()),
        ]);
    }
    let listeners = of.at("eventsListeners")?.as_object();
    let listeners =
        listeners.ok_or_else(|| Thrown::TypeError("keys of eventsListeners".to_owned()))?;
    lines.push(format!("eventsListeners: ({} listeners)", listeners.len()));
    for (uuid, one) in listeners {
        // A listener without a user agent makes the deployed tool throw here.
        let agent = one["userAgent"].as_str();
        let agent = agent.ok_or_else(|| Thrown::TypeError("replace of userAgent".to_owned()))?;
        lines.push(format!("  - {agent}"));
        lines.push(format!("    {uuid} created {} ago", Reader(one).plain("createdAgo")?));
        lines.push(String::new());
    }
    Ok(lines.join("\n") + "\n")
}
