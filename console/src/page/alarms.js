// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The bar at the top: each state of the node that needs a person, in words, with the command that helps.
// The tab's title shows it too.

import { ago, byId, el } from './dom.js';
import { short } from './format.js';
import { command } from './needs.js';
import { NO_CONSOLE } from './source.js';

const JITTER_MS = 5000;
const TITLE = document.title;
const known = new Map();
let drawn = '';
let isQuiet = false;

/**
 * Replaces what `program` has to say, a list of `{ kind, title, text, since, command }`: `bad` or `warn`,
 * a few words, a sentence, since when (ms since 1970, or none), a command line.
 */
export function set(program, list) {
  const before = known.get(program) ?? [];
  known.set(program, list.map((alarm) => ({ ...alarm, since: steady(alarm, before) })));
  // What vminfod lacks, the agents lack too: it is told first, then what lasts longest.
  const hub = new Set(known.get('vminfod'));
  const isOfHub = (alarm) => Number(hub.has(alarm));
  const told = [...hub, ...[...known.values()].flat().filter((alarm) => !hub.has(alarm))];
  const all = told.filter(({ title }, at) => told.findIndex((one) => one.title === title) === at)
    .sort((a, b) => isMild(a) - isMild(b) || isOfHub(b) - isOfHub(a)
      || (a.since ?? Infinity) - (b.since ?? Infinity) || 0);
  const state = JSON.stringify(all);
  if (state === drawn) return;
  drawn = state;
  // On a phone the bar shows two or three, and no scroll bar.
  const count = el('p', { class: `alarm count ${all[0]?.kind}` }, `${all.length} things need a person`);
  byId('alarms').replaceChildren(...(all.length > 2 ? [count] : []), ...all.map(line));
  byId('alarms').hidden = all.length === 0;
  isQuiet = all.length === 0;
  const others = all.length > 1 ? ` and ${all.length - 1} more` : '';
  document.title = all.length > 0 ? `⚠ ${short(all[0].title, 60)}${others} – ${TITLE}` : TITLE;
  const said = all.map((alarm) => alarm.title).join('. ');
  if (byId('alarms-said').textContent !== said) byId('alarms-said').textContent = said;
}

/**
 * Says in one line that all is well, if nothing needs a person; `parts` are of what and since when, or null where that
 * is not known.
 */
export function well(parts) {
  byId('well').hidden = parts === null || !isQuiet;
  if (parts !== null) byId('well').replaceChildren('all well · ', ...parts);
}

const isMild = ({ kind }) => Number(kind !== 'bad');

/** A time that was computed from a span of time is not exact: the same one is kept. */
function steady({ title, since }, before) {
  const same = before.find((one) => one.title === title)?.since;
  return Math.abs(same - since) < JITTER_MS ? same : since;
}

function line({ kind, title, text, since, command: typed }) {
  const age = since ? [' (for ', ago(since), ')'] : [];
  const words = el('b', {}, title, ...age, ': ');
  const copied = ({ target }) => navigator.clipboard.writeText(typed)
    .then(() => { target.textContent = 'copied'; }, () => { target.textContent = 'not allowed'; });
  const copy = el('button', { type: 'button', 'aria-label': `copy ${typed}`, onclick: copied }, 'copy');
  return el('p', { class: `alarm ${kind}` }, words, `${short(text, 400)} `, el('code', {}, typed), ' ', copy);
}

/** The alarm of a node that runs another program of that name, such as the one that ours takes the place of. */
export const another = (name, { since }) => ({
  kind: 'bad', title: `This node runs another ${name}`, since, command: `svcprop -p start/exec ${name}`,
  text: 'It is not the one that this page can ask: an install of ours, or of upstream’s agents, decides which one runs.',
});

/** The alarm of a program that does not answer, or of console, through which it is asked. */
export function silent(name, source, text) {
  const who = source.error === NO_CONSOLE ? 'console' : name;
  const typed = command(`${who}-silent`) || `svcs -xv ${who}`;
  const title = `${who} does not answer`;
  return { kind: 'bad', title, since: source.since, text: `${source.error}. ${text}`, command: typed };
}
