// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The health of vminfod: sources, stale VMs, refreshes, listeners.

import { brief, byId, el, facts, short, table } from './dom.js';

/** Draws `/status`. */
export function draw(status) {
  const parts = [];
  for (const [vm, trouble] of Object.entries(status.errors ?? {})) {
    parts.push(el('p', { class: 'note bad' },
      el('b', {}, short(vm, 60)), ` keeps its last good object: ${short(trouble.message, 300)} (since ${trouble.since})`));
  }
  const sources = Object.entries(status.sources ?? {});
  parts.push(facts([
    ...sources.map(([name, state]) => [name, el('span', { class: state === 'running' ? 'good' : 'bad' }, state)]),
    ['up for', brief(status.uptime)],
    ['last full refresh', status.lastRefresh ? `${brief(status.lastRefresh)} ago` : 'none yet'],
    ['memory', `${Math.round((status.memory?.rss ?? 0) / 1048576)} MiB`],
    ['changes without an event', String(status.counters?.unannounced ?? 0)],
    ['journal', status.journal ? `${status.journal.oldest}–${status.journal.newest}, ${Math.ceil(status.journal.bytes / 1024)} KiB` : ''],
  ]));
  const listeners = Object.values(status.eventsListeners ?? {});
  const rows = listeners.map((listener) => [
    el('span', { title: listener.userAgent }, short(listener.userAgent || 'unnamed', 48)), brief(listener.createdAgo),
  ]);
  parts.push(el('h3', {}, `Listeners (${listeners.length})`), table(['who', 'for'], rows));
  byId('health').replaceChildren(...parts);
}
