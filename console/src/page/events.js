// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The live list of changes, newest first, the last 300.

import { byId, el } from './dom.js';
import { clock, short } from './format.js';

const KEPT = 300;
/** Changes shown of one event before "and n more". */
const SHOWN = 8;
const PRIVATE = /^(customer_metadata|internal_metadata)\b/;

/** Builds the list; `name(uuid)` returns the alias of a VM, `open(uuid)` shows it. */
export function list(name, open) {
  const all = byId('events');
  const empty = byId('events-empty');
  const pause = byId('pause');
  let held = null;

  function toggle() {
    held = held ? (held.forEach(add), null) : [];
    pause.setAttribute('aria-pressed', String(held !== null));
    pause.textContent = held ? 'continue' : 'pause';
  }
  pause.addEventListener('click', toggle);

  function add(event) {
    empty.hidden = true;
    const { uuid } = event;
    const title = el('button', { type: 'button', class: 'name', onclick: () => open(uuid) }, short(name(uuid), 50));
    all.prepend(entry(event, title));
    while (all.children.length > KEPT) all.lastElementChild.remove();
  }

  return {
    toggle,
    /** Replaces all entries by these events, oldest first. */
    fill(events) {
      all.replaceChildren();
      empty.textContent = 'Nothing has changed since vminfod started.';
      empty.hidden = events.length > 0;
      events.slice(-KEPT).forEach(add);
    },
    /** Adds one change, or keeps it for later while paused. */
    push(event) {
      if (!held) return add(event);
      held.push(event);
      if (held.length > KEPT) held.shift();
      pause.textContent = `continue (${held.length})`;
    },
  };
}

/** One event as an item of a list, with the title of its VM or none. */
export function entry(event, title) {
  const kind = { create: 'added', delete: 'removed' }[event.type] ?? '';
  const time = el('time', { class: 'soft', datetime: event.date }, clock(event.date));
  const item = el('li', {}, time, ' ', title, title && ' ', el('b', { class: kind }, event.type));
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
