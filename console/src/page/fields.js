// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The fields of one VM: the value, the source that gave it and when that was read, and the last change.

import { ago, el, table } from './dom.js';
import { clock, short } from './format.js';

const PRIVATE = new Set(['customer_metadata', 'internal_metadata']);

/**
 * A table of the plain fields; the others are folded. Metadata may hold secrets. `events` are the VM's, all
 * since `start`.
 */
export function parts(vm, why, events, start) {
  const last = new Map();
  for (const event of events) {
    for (const change of event.changes ?? []) last.set(change.prettyPath.split(/[.[]/)[0], [event, change]);
  }
  const rows = Object.entries(vm).filter(([, value]) => !isTree(value)).map(([name, value]) => [
    el('code', {}, name), short(value, 400), source(name, why), changed(last.get(name)),
  ]);
  const trees = Object.entries(vm).filter(([, value]) => isTree(value)).map(([name, value]) => {
    const secret = PRIVATE.has(name) ? ': may hold secrets' : '';
    const title = el('summary', {}, `${name} (${Object.keys(value).length})${secret} `,
      source(name, why), ' ', changed(last.get(name)));
    return el('details', { 'data-key': `field ${name}` }, title, el('pre', {}, JSON.stringify(value, null, 2)));
  });
  const known = start ? `Changes are known since ${clock(start)}.` : 'No change is known.';
  return [el('h3', {}, `Fields (${Object.keys(vm).length})`), el('p', { class: 'soft' }, known),
    table(['field', 'value', 'from', 'last change'], rows), ...trees];
}

function source(field, why) {
  const name = why?.value?.fields?.[field];
  if (!name) return el('span', { class: 'soft' }, '');
  const read = why.value.sources?.[name]?.read_ms_ago;
  const age = Number.isFinite(read) ? ['read ', ago(why.at - read), ' ago'] : ['never read'];
  return el('span', { class: 'soft source' }, `${name}, `, ...age);
}

function changed(last) {
  if (!last) return el('span', { class: 'soft' }, '');
  const [event, change] = last;
  const secret = /^(customer|internal)_metadata/.test(change.prettyPath);
  const from = !secret && change.action === 'changed' ? ` from ${short(change.oldValue, 60)}` : '';
  return el('span', {}, `${change.action} ${clock(event.date)}${from}`);
}

const isTree = (value) => typeof value === 'object' && value !== null;
