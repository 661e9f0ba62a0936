// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The live list of changes, newest first, the last 300.

import { byId, clock, el, short } from './dom.js';

const KEPT = 300;
/** Changes shown of one event before "and n more". */
const SHOWN = 8;
const PRIVATE = /^(customer_metadata|internal_metadata)\b/;

/** Builds the list; `name(event)` returns the alias of a VM, `open(uuid)` shows it. */
export function list(name, open) {
  const all = byId('events');
  const pause = byId('pause');
  let held = null;

  function toggle() {
    held = held ? (held.forEach(add), null) : [];
    pause.setAttribute('aria-pressed', String(held !== null));
    pause.textContent = held ? 'continue' : 'pause';
  }
  pause.addEventListener('click', toggle);

  function add(event) {
    byId('events-empty').hidden = true;
    all.prepend(entry(event, name, open));
    while (all.children.length > KEPT) all.lastElementChild.remove();
  }

  return {
    toggle,
    /** Adds one change, or keeps it for later while paused. */
    push(event) {
      if (!held) return add(event);
      held.push(event);
      if (held.length > KEPT) held.shift();
      pause.textContent = `continue (${held.length})`;
    },
  };
}

function entry(event, name, open) {
  const time = clock(event.date);
  const title = el('button', { type: 'button', class: 'name', onclick: () => open(event.uuid) }, short(name(event), 50));
  const kind = { create: 'added', delete: 'removed' }[event.type] ?? '';
  const item = el('li', {}, el('span', { class: 'soft' }, `${time} `), title, ' ', el('b', { class: kind }, event.type));
  const changes = event.changes ?? [];
  if (changes.length > 0) {
    const shown = changes.slice(0, SHOWN).map((change) => el('li', {}, ...sentence(change)));
    if (changes.length > SHOWN) shown.push(el('li', { class: 'soft' }, `and ${changes.length - SHOWN} more`));
    item.append(el('ul', {}, ...shown));
  }
  return item;
}

function sentence(change) {
  const path = el('code', {}, change.prettyPath);
  if (PRIVATE.test(change.prettyPath)) return [path, ` ${change.action}`];
  const before = el('span', { class: 'removed mono' }, short(change.oldValue, 60));
  const after = el('span', { class: 'added mono' }, short(change.newValue, 60));
  if (change.action === 'added') return [path, ' + ', after];
  if (change.action === 'removed') return [path, ' − ', before];
  return [path, ' ', before, ' → ', after];
}
