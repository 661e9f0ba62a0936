// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Follows the feed of the data centre as long as the page is open: a line for each node and VM, then each line that
// changes. After a break it begins anew: what is gone meanwhile is not in the new lines.

import { lines } from './stream.js';

const LONGEST_WAIT_MS = 10000;
/** console says every 5 s that it is there; silence for longer is a connection that nobody has closed. */
const SILENCE_MS = 20000;

/**
 * Calls `on.begin()` before the lines of a connection, `on.line(line)` for each, and `on.state(text, isGood)` when the
 * connection changes. Never returns.
 */
export async function follow(on) {
  let wait = 500;
  for (;;) {
    const stop = new AbortController();
    let timer = null;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
    };
    try {
      alive();
      const response = await fetch('/ui/fleet/feed', { cache: 'no-store', signal: stop.signal });
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      on.begin();
      on.state('live', true);
      wait = 500;
      for await (const line of lines(response.body)) {
        alive();
        on.line(JSON.parse(line));
      }
      on.state('stream ended, reconnecting…', false);
    } catch (error) {
      on.state(`no connection (${error.message}), trying again…`, false);
    }
    clearTimeout(timer);
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}
