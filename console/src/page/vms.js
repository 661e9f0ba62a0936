// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The table of VMs: search, filters, order; a row that changed flashes.

import { byId, el, mebibytes, short, since } from './dom.js';

/** Rows drawn at once; more on request. */
const STEP = 200;

const memory = (vm) => vm.ram ?? vm.max_physical_memory;

const COLUMNS = [
  { name: 'alias', key: (vm) => vm.alias ?? '', show: (vm) => short(vm.alias ?? '–', 60) },
  { name: 'uuid', key: (vm) => vm.uuid, show: (vm) => el('code', { title: vm.uuid }, vm.uuid.slice(0, 8)) },
  { name: 'state', key: (vm) => vm.state, show: (vm) => el('span', { class: tone(vm.state) }, short(vm.state)) },
  { name: 'brand', key: (vm) => vm.brand, show: (vm) => short(vm.brand) },
  { name: 'memory', number: true, key: memory, show: (vm) => mebibytes(memory(vm)) },
  { name: 'quota', number: true, key: (vm) => vm.quota, show: (vm) => (vm.quota === undefined ? '' : `${vm.quota} GiB`) },
  { name: 'addresses', key: (vm) => address(vm), show: (vm) => short(address(vm), 60) },
  { name: 'age', number: true, key: (vm) => -Date.parse(vm.create_timestamp), show: (vm) => since(vm.create_timestamp) },
  { name: 'changed', number: true, key: (vm) => -Date.parse(vm.last_modified), show: (vm) => since(vm.last_modified) },
];

const address = (vm) => (vm.nics ?? []).map((nic) => nic.ip ?? nic.mac).join(' ');

/** The colour of a state. */
export const tone = (state) =>
  ({ running: 'good', failed: 'bad', incomplete: 'bad', stopped: 'soft' })[state] ?? 'warn';

/** Builds the table; calls `open(uuid)` for the chosen row. */
export function table(open) {
  const vms = new Map();
  const stale = new Set();
  const changed = new Map();
  let order = { column: COLUMNS[0], down: false };
  let limit = STEP;
  let drawing = false;

  const head = byId('vms').tHead.rows[0];
  const body = byId('vms').tBodies[0];
  for (const column of COLUMNS) {
    const sort = () => {
      order = { column, down: order.column === column && !order.down };
      draw();
    };
    head.append(el('th', { scope: 'col', class: column.number && 'number' },
      el('button', { type: 'button', onclick: sort }, column.name)));
  }
  for (const id of ['search', 'state', 'brand']) byId(id).addEventListener('input', () => { limit = STEP; draw(); });
  byId('more').addEventListener('click', () => { limit += STEP; draw(); });
  body.addEventListener('keydown', (event) => {
    const row = event.target.closest('tr');
    const next = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
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
    choices('state', [...vms.values()].map((vm) => vm.state));
    choices('brand', [...vms.values()].map((vm) => vm.brand));
    for (const [at, column] of COLUMNS.entries()) {
      const sorted = order.column === column ? (order.down ? 'descending' : 'ascending') : 'none';
      head.cells[at].setAttribute('aria-sort', sorted);
    }
    const found = [...vms.values()].filter(wanted());
    found.sort((a, b) => compare(order.column.key(a), order.column.key(b)) * (order.down ? -1 : 1));
    const focused = document.activeElement?.dataset?.uuid;
    body.replaceChildren(...found.slice(0, limit).map(row));
    if (focused) body.querySelector(`[data-uuid="${CSS.escape(focused)}"]`)?.focus();
    byId('vms-count').textContent = found.length === vms.size ? `${vms.size}` : `${found.length} of ${vms.size}`;
    byId('more').hidden = found.length <= limit;
  }

  function row(vm) {
    const fresh = Date.now() - (changed.get(vm.uuid) ?? 0) < 4000;
    const kind = [fresh && 'changed', stale.has(vm.uuid) && 'stale'].filter(Boolean).join(' ');
    const cells = COLUMNS.map((column) =>
      el('td', { 'data-label': column.name, class: column.number && 'number' }, column.show(vm)));
    return el('tr', { tabindex: 0, 'data-uuid': vm.uuid, class: kind || null }, ...cells);
  }

  function wanted() {
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = byId('state').value;
    const brand = byId('brand').value;
    return (vm) =>
      (!state || vm.state === state) && (!brand || vm.brand === brand) && words.every((word) => matches(vm, word));
  }

  return {
    vms,
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
    /** Marks the VMs whose last reading failed. */
    mark(uuids) {
      stale.clear();
      for (const uuid of uuids) stale.add(uuid);
      draw();
    },
  };
}

/** `field:value` searches one field, any other word the names and addresses. */
function matches(vm, word) {
  const [, field, value] = /^([a-z_]+):(.*)$/.exec(word) ?? [];
  if (field && field in vm) return short(vm[field], Infinity).toLowerCase().includes(value);
  const known = [vm.alias, vm.hostname, vm.uuid, vm.owner_uuid, vm.state, vm.brand];
  for (const nic of vm.nics ?? []) known.push(nic.mac, nic.ip, ...(nic.ips ?? []));
  return known.some((text) => text?.toLowerCase().includes(word));
}

function compare(a, b) {
  if (typeof a === 'number' || typeof b === 'number') return (a ?? -Infinity) - (b ?? -Infinity) || 0;
  return String(a ?? '').localeCompare(String(b ?? ''), undefined, { numeric: true });
}

function choices(id, values) {
  const select = byId(id);
  const known = [...select.options].slice(1).map((option) => option.value);
  const now = [...new Set(values.filter(Boolean))].sort();
  if (known.join() === now.join()) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...now.map((value) => el('option', { value }, value)));
  select.value = now.includes(chosen) ? chosen : '';
}
