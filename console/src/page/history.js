// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The last events: those of vminfod's journal when the page is opened, then the live ones. Objects of VMs
// are not kept.

import { read } from './source.js';
import { lines } from './stream.js';

/** Events kept, of all VMs. */
const KEPT = 2000;
const LONGEST_MS = 20000;

let events = [];
let isKnown = false;
const names = new Map();

/** All events, oldest first. */
export const all = () => events;

/** Returns true once the stream was up: before, nothing is known. */
export const isFilled = () => isKnown;

/** The events of one VM, oldest first. */
export const of = (uuid) => events.filter((event) => event.uuid === uuid);

/** The alias that a VM had in its last event. */
export const alias = (uuid) => names.get(uuid);

/** Keeps a live event. */
export function keep(event) {
  events.push(light(event));
  if (events.length > KEPT) events.shift();
}

function light({ vm, ...event }) {
  if (vm?.alias) names.set(event.uuid, vm.alias);
  return event;
}

/** Forgets everything, then reads the journal up to the event `seq` of this epoch. */
export async function fill({ epoch, seq }) {
  [events, isKnown] = [[], true];
  const { value } = await read('/ui/agents/vminfod/status');
  const since = Math.max((value?.journal?.oldest ?? seq + 1) - 1, seq - KEPT, 0);
  if (value?.journal?.epoch !== epoch || since >= seq) return;
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), LONGEST_MS);
  const older = [];
  try {
    const query = `epoch=${encodeURIComponent(epoch)}&since=${since}`;
    const response = await fetch(`/ui/agents/vminfod/events?${query}`, { cache: 'no-store', signal: stop.signal });
    if (!response.ok) return;
    for await (const line of lines(response.body)) {
      const event = JSON.parse(line);
      if (event.type !== 'resume') older.push(light(event));
      if (event.seq >= seq && event.type !== 'resume') break;
    }
  } catch {
    // What came until then is shown.
  }
  clearTimeout(timer);
  stop.abort();
  events = [...older.filter((event) => event.seq <= seq), ...events].slice(-KEPT);
}
