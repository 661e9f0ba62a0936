// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The health of vminfod: what needs a person, sources, refreshes, listeners.

import { silent } from './alarms.js';
import { ago, byId, el, facts, note, redraw, table } from './dom.js';
import { clock, counted, milliseconds, short } from './format.js';
import { command, says } from './needs.js';

/** A full refresh comes every 5 minutes and may take minutes. */
const REFRESH_LATE_MS = 15 * 60000;
/** Errors told one by one. */
const TOLD = 3;

/** What needs a person. `stream` is null, or why there is no event stream. */
export function alarms(source, stream) {
  if (source.error) {
    const last = source.at ? `What is shown is as of ${clock(source.at)}.` : 'Nothing could be read yet.';
    return [silent('vminfod', source, last)];
  }
  const status = source.value;
  const all = [];
  const add = (kind, title, text, typed, since) => all.push({ kind, title, text, command: typed, since });
  if (!status.sources) {
    add('warn', 'This node runs another vminfod', 'It says nothing of its sources.', 'hub node status');
  }
  if (stream) add('warn', 'No event stream', `${stream} ${says('vminfod-no-stream')}`, command('vminfod-no-stream'));
  if (status.stale) {
    add('bad', 'vminfod’s view is stale', says('vminfod-stale'), command('vminfod-stale'));
  }
  const errors = Object.entries(status.errors ?? {});
  for (const [name, trouble] of errors.slice(0, TOLD)) {
    const [vm] = name.split(' ');
    const title = `${short(trouble.alias ?? name, 60)} cannot be read`;
    add('bad', title, `${trouble.message}.`, command('vminfod-unread-vm', { VM: vm }), at(source, trouble.since));
  }
  if (errors.length > TOLD) add('bad', `${errors.length - TOLD} more cannot be read`, '', command('vminfod-unread'));
  const incomplete = (status.incomplete ?? []).filter((name) => !status.errors?.[name]);
  if (incomplete.length > 0) {
    const isList = incomplete.includes('*');
    const some = counted(incomplete.length, 'VM is', 'VMs are');
    const title = isList ? 'The list of zones is not complete' : `${some} not shown whole`;
    const text = `Agents protect what may be theirs: ${incomplete.slice(0, TOLD).join(', ')}.`;
    add('warn', title, text, command('vminfod-incomplete'));
  }
  for (const [name, state] of Object.entries(status.sources ?? {})) {
    if (state !== 'running') add('bad', `Source ${name} is ${state}`, lost(name, status), command('vminfod-source-down'));
  }
  const refreshed = at(source, status.lastRefresh);
  if (source.at - refreshed > REFRESH_LATE_MS) {
    add('warn', 'No full refresh', says('vminfod-refresh-old'), command('vminfod-refresh-old'), refreshed);
  }
  return all;
}

function lost(name, status) {
  const zfs = name === 'zfs events' ? status.zfs?.changes : null;
  const text = zfs ?? 'sweeps find changes of zones and files within 10 s';
  return `It is started again by itself; ${text}.`;
}

/** The time (ms since 1970) of something that was this long ago when the status was read. */
const at = (source, text) => source.at - milliseconds(text);

/** Draws the panel. */
export function draw(source) {
  const state = byId('health-state');
  const age = source.at ? [source.error ? 'no answer, as of ' : 'read ', ago(source.at), ' ago'] : ['no answer yet'];
  state.replaceChildren(...age);
  state.className = `pill ${source.error ? 'bad' : 'good'}`;
  const status = source.value;
  if (!status) return;
  const parts = Object.entries(status.errors ?? {}).map(([vm, trouble]) => {
    const text = `keeps its last good object: ${short(trouble.message, 300)} (for `;
    return note('bad', short(trouble.alias ?? vm, 60), el('span', {}, text, ago(at(source, trouble.since)), ')'));
  });
  const journal = status.journal;
  const kept = journal ? `${journal.oldest}–${journal.newest}, ${Math.ceil(journal.bytes / 1024)} KiB` : '';
  const refreshed = status.lastRefresh ? el('span', {}, ago(at(source, status.lastRefresh)), ' ago') : 'none yet';
  parts.push(facts([
    ...Object.entries(status.sources ?? {}).map(([name, state]) => [name, coloured(state)]),
    ['up for', ago(at(source, status.uptime))],
    ['last full refresh', refreshed],
    ['datasets listed', el('span', {}, ago(at(source, status.zfs?.listedAgo)), ' ago')],
    ['memory', `${Math.round((status.memory?.rss ?? 0) / 1048576)} MiB`],
    ['changes without an event', String(status.counters?.unannounced ?? 0)],
    ['journal', kept],
  ]));
  const listeners = Object.values(status.eventsListeners ?? {});
  const rows = listeners.map((one) => [
    el('span', { title: one.userAgent }, short(one.userAgent || 'unnamed', 48)), ago(Date.parse(one.createdDate)),
  ]);
  parts.push(el('h3', {}, `Listeners (${listeners.length})`), table(['who', 'for'], rows));
  redraw(byId('health'), parts);
}

const coloured = (state) => el('span', { class: state === 'running' ? 'good' : 'bad' }, state);
