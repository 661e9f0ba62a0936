// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// All fields of one VM. Metadata may hold secrets and is folded away.

import { byId, el, facts, short } from './dom.js';

const PRIVATE = new Set(['customer_metadata', 'internal_metadata']);

/** Shows one VM; `null` if it is gone. */
export function fill(vm) {
  byId('vm-title').textContent = vm ? short(vm.alias ?? vm.uuid, 80) : 'This VM is gone';
  if (!vm) return;
  const parts = [facts(Object.entries(vm).filter(([, value]) => !isTree(value)).map(([name, value]) => [name, short(value, 400)]))];
  for (const [name, value] of Object.entries(vm).filter(([, value]) => isTree(value))) {
    const text = el('pre', {}, JSON.stringify(value, null, 2));
    const size = `${name} (${Object.keys(value).length})`;
    parts.push(PRIVATE.has(name)
      ? el('details', {}, el('summary', {}, `${size}: may hold secrets`), text)
      : el('details', { open: Object.keys(value).length > 0 }, el('summary', {}, size), text));
  }
  byId('vm-body').replaceChildren(...parts);
}

const isTree = (value) => typeof value === 'object' && value !== null;
