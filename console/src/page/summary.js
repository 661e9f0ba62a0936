// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The tiles at the top: VMs by state, sums, and what needs a look. A tile filters the table.

import { ago, byId, el, tiles } from './dom.js';
import { ram, toggled } from './filter.js';
import { mebibytes } from './format.js';
import { read } from './source.js';
import { tone } from './vms.js';

let sysinfo = null;

/** Learns the node's names, once vminfod answers. */
export async function learn() {
  sysinfo ??= (await read('/ui/agents/vminfod/sysinfo')).value?.sysinfo ?? null;
}

/** Draws the tiles of `vms` (a map); `words(uuid)` are those of a row, `search` is the text and sets it. */
export function draw(vms, words, search, status, isKnown) {
  const states = new Map();
  const marked = new Map([['hidden', 0], ['held', 0], ['stale', 0]]);
  const sum = { memory: 0, quota: 0 };
  for (const vm of vms.values()) {
    states.set(vm.state, (states.get(vm.state) ?? 0) + 1);
    for (const word of words(vm)) marked.set(word, marked.get(word) + 1);
    sum.memory += vm.state === 'running' ? ram(vm) ?? 0 : 0;
    sum.quota += vm.quota ?? 0;
  }
  const terms = search.text().split(/\s+/);
  const filter = (key, value) => ({
    pressed: terms.includes(key ? `${key}=${value}` : value),
    press: () => search.set(toggled(search.text(), key, value)),
  });
  const every = { pressed: search.text() === '', press: () => search.set('') };
  const parts = tiles([
    // Before the first answer nothing is known.
    ['VMs', isKnown ? vms.size : null, '', every],
    ...[...states].sort().map(([state, count]) => [state, count, tone(state), filter('state', state)]),
    ...[...marked].map(([word, count]) => [word, isKnown ? count : null, count > 0 ? 'warn' : '', filter('', word)]),
    ['memory, running', isKnown ? mebibytes(sum.memory) : null, ''],
    ['quotas', isKnown ? mebibytes(sum.quota * 1024) : null, ''],
  ]);
  const focused = [...byId('summary').querySelectorAll('button')].indexOf(document.activeElement);
  const said = status.at ? ['vminfod’s status read ', ago(status.at), ' ago'] : ['vminfod’s status was not read yet'];
  const age = el('p', { class: 'soft age' }, ...said);
  byId('summary').replaceChildren(parts, age);
  byId('summary').querySelectorAll('button')[focused]?.focus();
  if (!sysinfo) return;
  byId('node').replaceChildren(sysinfo.Hostname ?? '', ' ', el('span', { class: 'soft uuid' }, sysinfo.UUID));
}
