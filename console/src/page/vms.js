// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The table of VMs: search, order; a row that changed flashes.

import { ago, byId, el } from './dom.js';
import { parse, ram, ranking } from './filter.js';
import { mebibytes, short } from './format.js';

/** Rows drawn at once; more on request. */
const STEP = 200;
const FLASH_MS = 4000;
/** So many rows are replaced one by one. */
const FEW = 8;
/** A drawing that takes longer than a frame makes the next one wait. */
const FRAME_MS = 16;

const time = (iso) => (iso ? ago(Date.parse(iso)) : '');
const quota = (vm) => (vm.quota === undefined ? '' : `${vm.quota} GiB`);
const address = (vm) => (vm.nics ?? []).map((nic) => nic.ip ?? nic.mac).join(' ');

export const COLUMNS = [
  { name: 'alias', key: (vm) => vm.alias ?? '', show: named },
  { name: 'uuid', key: (vm) => vm.uuid, show: (vm) => el('code', { title: vm.uuid }, vm.uuid.slice(0, 8)) },
  { name: 'state', key: (vm) => vm.state, show: (vm) => el('span', { class: tone(vm.state) }, short(vm.state)) },
  { name: 'brand', key: (vm) => vm.brand, show: (vm) => short(vm.brand) },
  { name: 'memory', number: true, key: ram, show: (vm) => mebibytes(ram(vm)) },
  { name: 'quota', number: true, key: (vm) => vm.quota, show: quota },
  { name: 'addresses', key: address, show: (vm) => short(address(vm), 60) },
  {
    name: 'owner', key: (vm) => vm.owner_uuid ?? '',
    show: (vm) => el('code', { title: vm.owner_uuid }, (vm.owner_uuid ?? '–').slice(0, 8)),
  },
  { name: 'age', number: true, key: (vm) => -Date.parse(vm.create_timestamp), show: (vm) => time(vm.create_timestamp) },
  { name: 'changed', number: true, key: (vm) => -Date.parse(vm.last_modified), show: (vm) => time(vm.last_modified) },
];

/** The alias, and what is special about the VM in a word each. */
function named(vm, words) {
  const marks = words.map((word) => el('span', { class: `word ${word}` }, word));
  return el('span', {}, short(vm.alias ?? '–', 60), ...marks);
}

/** The colour of a state. */
export const tone = (state) =>
  ({ running: 'good', failed: 'bad', incomplete: 'bad', stopped: 'soft' })[state] ?? 'warn';

/**
 * Builds the table; calls `open(uuid)` for the chosen row and `searched(text)` when the search changes.
 * `words(vm)` returns the words that are shown beside the alias; `columns` are others than those of a node, and
 * `id(vm)` is its name in the table where its uuid is not.
 */
export function table(open, words, searched, columns = COLUMNS, id = (vm) => vm.uuid) {
  const vms = new Map();
  const keys = new Map(columns.map((column) => [column, new WeakMap()]));
  const changed = new Map();
  let order = { column: columns[0], down: false };
  let limit = STEP;
  let drawing = false;
  /** Before the first list nothing is known. */
  let isListed = false;
  let [cost, last] = [0, 0];
  /** By what the map is in order: one that nearly is, is sorted in a moment. */
  let sorted = null;
  const rows = new WeakMap();

  const head = byId('vms').tHead.rows[0];
  const body = byId('vms').tBodies[0];
  const field = byId('search');
  for (const column of columns) {
    const sort = () => {
      order = { column, down: order.column === column && !order.down };
      draw();
    };
    head.append(el('th', { scope: 'col', class: column.number && 'number' },
      el('button', { type: 'button', onclick: sort }, column.name)));
  }
  const search = {
    text: () => field.value.trim(),
    set(text) {
      field.value = text;
      limit = STEP;
      searched(search.text());
      draw();
    },
  };
  field.addEventListener('input', () => {
    limit = STEP;
    searched(search.text());
    draw();
  });
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowDown' || !body.rows[0]) return;
    body.rows[0].focus();
    event.preventDefault();
  });
  byId('more').addEventListener('click', () => { limit += STEP; draw(); });
  body.addEventListener('keydown', (event) => {
    const row = event.target.closest('tr');
    const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling ?? field }[event.key];
    if (next) { next.focus(); event.preventDefault(); }
    if (event.key === 'Enter' && row) {
      // Else the same key press would reach the dialog's button and close it.
      event.preventDefault();
      open(row.dataset.uuid);
    }
  });
  body.addEventListener('click', (event) => {
    const row = event.target.closest('tr');
    if (row) open(row.dataset.uuid);
  });

  /** Draws in the next frame, once for all changes until then; half of the time is left for other work. */
  function draw() {
    if (drawing) return;
    drawing = true;
    setTimeout(() => requestAnimationFrame(() => {
      drawing = false;
      const began = performance.now();
      drawNow();
      last = performance.now();
      cost = last - began;
    }), cost > FRAME_MS ? Math.max(0, cost - (performance.now() - last)) : 0);
  }

  /** By what a VM is sorted: a VM that changes is another object. */
  function key(vm) {
    const known = keys.get(order.column);
    if (!known.has(vm)) known.set(vm, sortable(order.column.key(vm)));
    return known.get(vm);
  }

  function drawNow() {
    for (const [at, column] of columns.entries()) {
      const sorted = order.column === column ? (order.down ? 'descending' : 'ascending') : 'none';
      head.cells[at].setAttribute('aria-sort', sorted);
    }
    const all = [...vms.values()];
    const isField = (name) => ['type', 'ram'].includes(name) || all.some((vm) => name in vm);
    const { test, problem } = parse(search.text(), isField);
    const found = search.text() ? all.filter((vm) => test(vm, words(vm))) : all;
    const sign = order.down ? -1 : 1;
    const rank = ranking(search.text());
    found.sort((a, b) => rank(a) - rank(b) || compare(key(a), key(b)) * sign);
    if (found === all && sorted !== order) {
      sorted = order;
      vms.clear();
      for (const vm of all) vms.set(id(vm), vm);
    }
    const focused = document.activeElement?.dataset?.uuid;
    show(found.slice(0, limit).map(row));
    if (focused) body.querySelector(`[data-uuid="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    const count = found.length === vms.size ? `${vms.size}` : `${found.length} of ${vms.size}`;
    byId('vms-count').textContent = isListed ? count : '–';
    byId('more').hidden = found.length <= limit;
    const nothing = found.length === 0 && search.text() ? `Nothing matches${problem ? `: ${problem}` : '.'}` : '';
    if (byId('nothing').textContent !== nothing) byId('nothing').textContent = nothing;
  }

  /** Puts the rows into the table; where a few are others, these alone. */
  function show(wanted) {
    const now = [...body.rows];
    const others = wanted.map((one, at) => at).filter((at) => wanted[at] !== now[at]);
    const isSmall = now.length === wanted.length && others.length <= FEW
      && others.every((at) => !wanted[at].isConnected);
    if (isSmall) for (const at of others) now[at].replaceWith(wanted[at]);
    else body.replaceChildren(...wanted);
  }

  function row(vm) {
    const isFresh = Date.now() - (changed.get(id(vm)) ?? 0) < FLASH_MS;
    const marks = words(vm);
    const known = rows.get(vm);
    if (known && !isFresh && known.marks === marks.join() && !known.isFresh) return known.row;
    const made = draft(vm, marks, isFresh);
    rows.set(vm, { row: made, marks: marks.join(), isFresh });
    return made;
  }

  function draft(vm, marks, isFresh) {
    const cells = columns.map((column) =>
      el('td', { 'data-label': column.name, class: column.number && 'number' }, column.show(vm, marks)));
    return el('tr', { tabindex: 0, 'data-uuid': id(vm), class: isFresh && 'changed' }, ...cells);
  }

  return {
    vms,
    search,
    draw,
    /** Replaces everything. */
    reset(list) {
      sorted = null;
      isListed = true;
      vms.clear();
      for (const vm of list) vms.set(id(vm), vm);
      draw();
    },
    /** All of them are in the map. */
    listed() {
      isListed = true;
      draw();
    },
    /** Applies one change. */
    apply(event) {
      if (event.type === 'delete') {
        vms.delete(event.uuid);
        changed.delete(event.uuid);
      } else if (event.vm) {
        vms.set(event.uuid, event.vm);
        changed.set(event.uuid, Date.now());
      }
      draw();
    },
  };
}

/** Numbers as they are; texts so that `web-9` is before `web-10`. Made once for each VM: ten thousand are sorted. */
export const sortable = (value) => (typeof value === 'number'
  ? value
  : String(value ?? '').toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, '0')));

function compare(a, b) {
  if (typeof a === 'number' && typeof b === 'number') return a - b || 0;
  if (typeof a === 'number' || typeof b === 'number') return typeof a === 'number' ? 1 : -1;
  return a < b ? -1 : Number(a > b);
}
