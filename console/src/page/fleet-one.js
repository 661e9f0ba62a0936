// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// One node or one VM of the data centre, whole: where it is, its migration and what ended before, its volumes.

import { ago, byId, el, facts, link, note, redraw, table } from './dom.js';
import { bytes, clock, mebibytes, short, span } from './format.js';
import { ram } from './filter.js';
import * as migrations from './migrations.js';
import { whole as ofNode } from './fleet-nodes.js';
import * as place from './place.js';
import { read } from './source.js';
import * as volumes from './volumes.js';
import { tone } from './vms.js';

/** Between two readings of what stands behind an open VM. */
const REREAD_MS = 5000;
const HISTORY = ['ended', 'what', 'from', 'to', 'down', 'sent', 'by', 'error'];

/** What has ended, as a table; the VM's name first where `name` is given. */
export function ended(all, nodeName, name) {
  const rows = all.map((one) => [
    ...(name ? [one.vm_uuid ? link(one.vm_uuid, short(name(one.vm_uuid), 40)) : '–'] : []),
    clock(one.ended),
    el('b', { class: one.outcome === 'failed' ? 'bad' : '' }, `${short(one.what, 20)} ${short(one.outcome, 20)}`),
    nodeName(one.from ?? one.cn_uuids?.[0]), nodeName(one.to),
    Number.isFinite(one.downtime_ms) ? `${(one.downtime_ms / 1000).toFixed(1)} s` : '–',
    Number.isFinite(one.bytes) ? bytes(one.bytes) : '–',
    el('span', { title: one.program ?? '' }, short(one.by ?? '–', 40)), short(one.error ?? '–', 200),
  ]);
  return table(name ? ['vm', ...HISTORY] : HISTORY, rows);
}

/** The view; `centre` is what the page knows. */
export function view(centre) {
  const box = byId('vm');
  let shown = null;
  let [copies, history] = [null, null];

  async function reread() {
    const asked = shown;
    if (!asked?.vm) return;
    const uuid = encodeURIComponent(asked.vm);
    const [found, past] = await Promise.all([
      read(`/ui/fleet/vms/${uuid}`),
      centre.hasMigrations() ? read(`/ui/agents/migrations/history?vm=${uuid}`) : { value: null },
    ]);
    if (asked !== shown) return;
    [copies, history] = [found, past];
    draw();
  }
  setInterval(reread, REREAD_MS);

  function draw() {
    if (!shown) return;
    byId('vm-title').textContent = short(shown.cn ? centre.nodeName(shown.cn) : centre.name(shown.vm), 80);
    redraw(byId('vm-body'), shown.cn ? nodeParts(shown.cn) : vmParts(shown.vm));
  }

  function nodeParts(cn) {
    const node = centre.nodes.get(cn);
    if (!node) return [note('bad', 'Unknown', 'The feed has no heartbeat of this node.')];
    const find = () => { box.close(); centre.search(`node=${node.name}`); };
    const button = el('button', { type: 'button', onclick: find }, 'its VMs');
    return [...ofNode(node, centre.needsOf(node)), el('p', {}, button)];
  }

  function vmParts(uuid) {
    const all = copies?.value ?? [];
    const asks = copies === null;
    const none = asks ? el('p', { class: 'soft' }, 'Asking…') : note('bad', 'Gone', 'No node has this VM.');
    const two = `${all.length} nodes have this VM, and more than one shows it: one of the copies must not run.`;
    const visible = all.filter(({ vm }) => !vm.do_not_inventory).length;
    const migration = centre.migrations.find((one) => one.vm_uuid === uuid);
    return [
      ...(visible > 1 ? [note('bad', 'On two nodes', two)] : []),
      ...(all.length === 0 ? [none] : all.map(copy)),
      ...(migration ? [
        el('h3', {}, `Its migration: ${migration.phase} ${migration.state}`),
        ...migrations.whole(migration, centre.name),
      ] : []),
      ...(centre.volumesStatus ? volumes.vm(uuid, centre.volumesStatus, centre.volumes) : []),
      ...past(),
      // A name that a node made up is part of no command.
      ...(/^[0-9a-f-]{36}$/.test(uuid)
        ? [el('p', { class: 'soft' }, 'All of its life, on a headnode: ', el('code', {}, `sdc-fleet story ${uuid}`))]
        : []),
    ];
  }

  function copy({ cn, vm, position }) {
    const node = centre.nodes.get(cn);
    const show = { type: 'button', class: 'name', onclick: () => one.openNode(cn) };
    const open = el('button', show, short(centre.nodeName(cn), 60));
    const changed = vm.last_modified ? el('span', {}, ago(Date.parse(vm.last_modified)), ' ago') : '–';
    const object = el('pre', {}, JSON.stringify(vm, null, 2));
    const hidden = vm.do_not_inventory ? ' (hidden: the copy of a migration)' : '';
    const nics = (vm.nics ?? []).map((nic) => `${nic.ip ?? '–'} ${nic.mac ?? ''}`).join(', ');
    return el('div', {}, facts([
      ['node', el('span', {}, open, hidden)], ['heard', node ? el('span', {}, ago(node.heard), ' ago') : '–'],
      ['state', el('span', { class: tone(vm.state) }, short(vm.state ?? '–'))], ['brand', short(vm.brand ?? '–')],
      ['memory', mebibytes(ram(vm)) || '–'], ['quota', Number.isFinite(vm.quota) ? `${vm.quota} GiB` : '–'],
      ['addresses', short(nics || '–', 200)], ['owner', el('code', {}, vm.owner_uuid ?? '–')],
      ['uuid', el('code', {}, vm.uuid ?? '–')], ['changed', changed], ['feed', short(position, 80)],
    ]), el('details', { 'data-key': `object ${cn}` }, el('summary', {}, 'the whole object'), object));
  }

  function past() {
    if (!centre.hasMigrations()) return [];
    const title = el('h3', {}, 'What has ended');
    if (history?.error) return [title, el('p', { class: 'bad' }, short(history.error, 200))];
    const all = history?.value ?? [];
    const none = history ? 'No migration of it has ended.' : 'Asking…';
    if (all.length === 0) return [title, el('p', { class: 'soft' }, none)];
    return [title, ended(all, centre.nodeName, null), ...all.filter((it) => it.steps?.length > 0).map(steps)];
  }

  function steps(one) {
    const took = ({ began, ended: at }) => (began && at ? span(Date.parse(at) - Date.parse(began)) : '–');
    const rows = one.steps.map((step) => [
      short(step.phase, 20), short(step.state, 20), clock(step.began) || '–', took(step),
      short(step.error ?? '–', 200),
    ]);
    return el('details', { 'data-key': `steps ${one.id}` },
      el('summary', {}, `the steps of ${short(one.what, 20)}, ${clock(one.ended)}`),
      table(['phase', 'state', 'began', 'took', 'error'], rows));
  }

  box.addEventListener('close', () => {
    shown = null;
    place.set('vm', '');
    place.set('node', '');
  });
  byId('vm-close').addEventListener('click', () => box.close());

  function show(wanted) {
    [shown, copies, history] = [wanted, null, null];
    draw();
    if (!box.open) box.showModal();
    reread();
  }

  const one = {
    openVm(uuid) {
      place.set('node', '');
      place.set('vm', uuid, true);
      show({ vm: uuid });
    },
    openNode(cn) {
      place.set('vm', '');
      place.set('node', cn, true);
      show({ cn });
    },
    close: () => box.close(),
    /** What the page knows of this VM or node has changed. */
    changed(key) {
      if (!shown || (shown.cn ?? shown.vm) !== key) return;
      if (shown.vm) reread();
      else draw();
    },
  };
  return one;
}
