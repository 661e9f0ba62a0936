// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Follows vminfod's events as long as the page is open: a snapshot, then every change. After a break
// it resumes after the last change it saw, or asks for a new snapshot where that is no longer possible.

const LONGEST_WAIT_MS = 30000;

/**
 * Calls `on.ready(vms, { epoch, seq })` for a snapshot, `on.event(event)` for each change and
 * `on.state(text, good)` when the connection changes. Never returns.
 */
export async function follow(on) {
  let place = null;
  let wait = 1000;
  for (;;) {
    try {
      const query = place ? `?epoch=${encodeURIComponent(place.epoch)}&since=${place.seq}` : '';
      const response = await fetch(`/ui/agents/vminfod/events${query}`, { cache: 'no-store' });
      if (response.status === 410) {
        place = null;
        continue;
      }
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      on.state('live', true);
      wait = 1000;
      for await (const line of lines(response.body)) {
        const event = JSON.parse(line);
        if (event.type === 'ready') {
          place = { epoch: event.epoch, seq: event.seq };
          on.ready(JSON.parse(event.vms), { ...place });
        } else if (event.type !== 'resume') {
          on.event(event);
        }
        if (place && Number.isFinite(event.seq)) place.seq = event.seq;
      }
      on.state('stream ended, reconnecting…', false);
    } catch (error) {
      on.state(`no connection (${error.message}), trying again…`, false);
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** The lines of a response as they come. */
export async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  // Pieces are joined once per line: a snapshot's line may be many megabytes.
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = value.split('\n');
    for (const [at, part] of parts.entries()) {
      pieces.push(part);
      if (at === parts.length - 1) break;
      const line = pieces.join('');
      pieces = [];
      if (line) yield line;
    }
  }
}
