// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The table of VMs: search, order; a row that changed flashes.

import { ago, byId, el } from './dom.js';
import { parse, ram } from './filter.js';
import { mebibytes, short } from './format.js';

/** Rows drawn at once; more on request. */
const STEP = 200;
const FLASH_MS = 4000;

const time = (iso) => (iso ? ago(Date.parse(iso)) : '');
const quota = (vm) => (vm.quota === undefined ? '' : `${vm.quota} GiB`);
const address = (vm) => (vm.nics ?? []).map((nic) => nic.ip ?? nic.mac).join(' ');

const COLUMNS = [
  { name: 'alias', key: (vm) => vm.alias ?? '', show: named },
  { name: 'uuid', key: (vm) => vm.uuid, show: (vm) => el('code', { title: vm.uuid }, vm.uuid.slice(0, 8)) },
  { name: 'state', key: (vm) => vm.state, show: (vm) => el('span', { class: tone(vm.state) }, short(vm.state)) },
  { name: 'brand', key: (vm) => vm.brand, show: (vm) => short(vm.brand) },
  { name: 'memory', number: true, key: ram, show: (vm) => mebibytes(ram(vm)) },
  { name: 'quota', number: true, key: (vm) => vm.quota, show: quota },
  { name: 'addresses', key: address, show: (vm) => short(address(vm), 60) },
  { name: 'owner', key: (vm) => vm.owner_uuid ?? '', show: (vm) => el('code', { title: vm.owner_uuid }, (vm.owner_uuid ?? '–').slice(0, 8)) },
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
 * `words(vm)` returns the words that are shown beside the alias.
 */
export function table(open, words, searched) {
  const vms = new Map();
  const changed = new Map();
  let order = { column: COLUMNS[0], down: false };
  let limit = STEP;
  let drawing = false;

  const head = byId('vms').tHead.rows[0];
  const body = byId('vms').tBodies[0];
  const field = byId('search');
  for (const column of COLUMNS) {
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

  /** Draws in the next frame, once for all changes until then. */
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; drawNow(); });
  }

  function drawNow() {
    for (const [at, column] of COLUMNS.entries()) {
      const sorted = order.column === column ? (order.down ? 'descending' : 'ascending') : 'none';
      head.cells[at].setAttribute('aria-sort', sorted);
    }
    const all = [...vms.values()];
    const isField = (name) => ['type', 'ram'].includes(name) || all.some((vm) => name in vm);
    const { test, problem } = parse(search.text(), isField);
    const found = all.filter((vm) => test(vm, words(vm)));
    found.sort((a, b) => compare(order.column.key(a), order.column.key(b)) * (order.down ? -1 : 1));
    const focused = document.activeElement?.dataset?.uuid;
    body.replaceChildren(...found.slice(0, limit).map(row));
    if (focused) body.querySelector(`[data-uuid="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    byId('vms-count').textContent = found.length === vms.size ? `${vms.size}` : `${found.length} of ${vms.size}`;
    byId('more').hidden = found.length <= limit;
    const nothing = found.length === 0 && search.text() ? `Nothing matches${problem ? `: ${problem}` : '.'}` : '';
    if (byId('nothing').textContent !== nothing) byId('nothing').textContent = nothing;
  }

  function row(vm) {
    const isFresh = Date.now() - (changed.get(vm.uuid) ?? 0) < FLASH_MS;
    const marks = words(vm);
    const cells = COLUMNS.map((column) =>
      el('td', { 'data-label': column.name, class: column.number && 'number' }, column.show(vm, marks)));
    return el('tr', { tabindex: 0, 'data-uuid': vm.uuid, class: isFresh && 'changed' }, ...cells);
  }

  return {
    vms,
    search,
    draw,
    /** Replaces everything. */
    reset(list) {
      vms.clear();
      for (const vm of list) vms.set(vm.uuid, vm);
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

function compare(a, b) {
  if (typeof a === 'number' || typeof b === 'number') return (a ?? -Infinity) - (b ?? -Infinity) || 0;
  return String(a ?? '').localeCompare(String(b ?? ''), undefined, { numeric: true });
}
