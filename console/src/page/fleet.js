// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The page of the data centre: the feed fills grid and table, migration-service and volapi the panels below.

import * as alarms from './alarms.js';
import { ago, byId, el, redraw, tiles } from './dom.js';
import { follow } from './feed.js';
import { parse, toggled } from './filter.js';
import { counted, short, span } from './format.js';
import * as ofNodes from './fleet-nodes.js';
import { ended, view } from './fleet-one.js';
import * as migrations from './migrations.js';
import * as place from './place.js';
import { programs, read, watch } from './source.js';
import { COLUMNS, table, tone } from './vms.js';
import * as volumes from './volumes.js';

const MIGRATIONS_MS = 3000;
/** What is drawn of the whole: figures, alarms, panels. */
const DRAW_MS = 250;

/** The nodes by uuid, and the nodes that show a VM, by its uuid. */
const nodes = new Map();
const shownOn = new Map();
let feed = {
  lost: null, command: null, since: null, text: 'connecting…', isGood: false, isComplete: false, hole: null,
};
let [list, past, status, records] = [null, null, null, null];
/** What a connection has not said again is gone. */
let unsaid = null;
/** The nodes that are not heard. */
let unheard = '';
let drawing = null;
let drawn = [];

const nodeName = (cn) => (cn ? nodes.get(cn)?.name ?? cn.slice(0, 8) : '–');
const copyOf = (uuid) => [...(copies.get(uuid) ?? [])].map((id) => vms.vms.get(id)).find((vm) => vm);
const name = (uuid) => copyOf(uuid)?.alias ?? uuid?.slice(0, 8) ?? '–';
const copies = new Map();
const id = (vm) => `${vm.cn} ${vm.uuid}`;
const twice = (cn) => [...isTwice].filter((uuid) => shownOn.get(uuid).has(cn))
  .map((uuid) => ({ uuid, name: name(uuid) }));
const isTwice = new Set();
const needsOf = (node) => ofNodes.needs(node, twice(node.cn));

function words(vm) {
  return [vm.do_not_inventory && 'hidden', isTwice.has(vm.uuid) && 'twice', !isHeard(vm) && 'stale'].filter(Boolean);
}

/** Of a node that is not heard nobody knows what its VMs do. */
const isHeard = (vm) => {
  const node = nodes.get(vm.cn);
  return !node || ofNodes.isUp(node);
};
const state = {
  ...COLUMNS.find((column) => column.name === 'state'),
  show: (vm) => el('span', { class: isHeard(vm) ? tone(vm.state) : 'soft' }, short(vm.state), isHeard(vm) ? '' : '?'),
};
const columns = [
  COLUMNS[0],
  { name: 'node', key: (vm) => vm.node, show: (vm) => short(vm.node, 40) },
  ...COLUMNS.slice(1).filter((column) => column.name !== 'quota')
    .map((column) => (column.name === 'state' ? state : column)),
];
const vms = table((key) => one.openVm(key.split(' ')[1]), words, (text) => {
  place.set('q', text);
  later();
}, columns, id);
const centre = {
  nodes, nodeName, name, needsOf,
  get migrations() { return list ?? []; },
  get volumes() { return records ?? []; },
  get volumesStatus() { return status; },
  hasMigrations: () => list !== null,
  search: (text) => vms.search.set(text),
};
const one = view(centre);
const grid = ofNodes.grid((cn) => one.openNode(cn), needsOf);

/** Draws figures and alarms soon, once for all that changes until then. */
function later() {
  drawing ??= setTimeout(() => {
    drawing = null;
    draw();
  }, DRAW_MS);
}

/** The search, for what is no VM: an object with the words of it. */
function finds() {
  const fields = (key) => ['node', 'state', 'alias', 'uuid', 'owner_uuid', 'version', 'phase'].includes(key);
  const { test } = parse(vms.search.text(), fields);
  return (object, said = []) => test(object, said);
}

function draw() {
  const find = finds();
  const asNode = ({ cn: uuid, name: node, version, ...one }) => (
    { uuid, alias: node, node, version, state: ofNodes.isUp(one) ? 'up' : 'down' });
  grid.filter((node) => node && find(asNode(node), needsOf(node).map((need) => need.words)));
  grid.order(nodes);
  drawFigures();
  const quiet = [...nodes.values()].filter((node) => !ofNodes.isUp(node)).map((node) => node.cn).join();
  if (quiet !== unheard) {
    unheard = quiet;
    vms.draw();
  }
  const lost = feed.lost ?? (feed.isGood ? null : feed.text);
  const silent = lost === null ? [] : [{
    kind: 'bad', title: 'The feed does not answer', since: feed.since, command: feed.command,
    text: `${short(lost, 200)}. What is shown is as old as that.`,
  }];
  alarms.set('nodes', feed.isComplete || lost === null ? ofNodes.alarms(nodes.values(), needsOf) : []);
  alarms.set('feed', silent);
  const pill = byId('stream');
  pill.className = `pill ${lost === null ? 'good' : 'bad'}`;
  pill.replaceChildren(...(lost === null ? [feed.text] : ['no feed for ', ago(feed.since)]));
  byId('centre').classList.toggle('old', lost !== null);
  drawServices(find);
}

function drawFigures() {
  const all = [...nodes.values()];
  const count = (test) => (feed.isComplete ? all.filter(test).length : null);
  const needing = count((node) => needsOf(node).length > 0);
  const of = (state) => {
    let sum = 0;
    for (const vm of vms.vms.values()) sum += Number(vm.state === state && !vm.do_not_inventory && isHeard(vm));
    return feed.isComplete ? sum : null;
  };
  let shown = 0;
  for (const vm of vms.vms.values()) shown += Number(!vm.do_not_inventory);
  const oldest = Math.max(0, ...all.map((node) => Date.now() - node.heard));
  const isWell = feed.isComplete && feed.isGood && feed.lost === null && all.length > 0;
  const many = (count, one) => counted(count, one).replace(count, count.toLocaleString('en'));
  const heard = `${many(all.length, 'node')} heard within ${span(oldest)} · ${many(shown, 'VM')}`;
  alarms.well(isWell ? [heard] : null);
  const tile = (key, value) => {
    const text = vms.search.text();
    const pressed = text.split(/\s+/).includes(`${key}=${value}`);
    return { pressed, press: () => vms.search.set(toggled(text, key, value)) };
  };
  const ill = status ? (status.degraded ?? []).length : null;
  const hole = `What happened before is not completely known: ${feed.hole}.`;
  const moving = (state) => (list === null ? null : list.filter((it) => it.state === state).length);
  redraw(byId('figures'), [tiles([
    ['nodes', feed.isComplete ? all.length : null, ''],
    ['need a person', needing, needing > 0 ? 'bad' : ''],
    ['not heard', count((node) => !ofNodes.isUp(node)), '', tile('state', 'down')],
    ['VMs', feed.isComplete ? shown : null, ''],
    ['running', of('running'), '', tile('state', 'running')],
    ['stopped', of('stopped'), '', tile('state', 'stopped')],
    ['migrations run', moving('running'), ''],
    ['migrations failed', moving('failed'), moving('failed') > 0 ? 'bad' : '', tile('state', 'failed')],
    ['volumes degraded', ill, ill > 0 ? 'bad' : ''],
  ]), feed.hole ? el('p', { class: 'age warn' }, hole) : ''].filter(Boolean));
}

/** Draws the panels of the services if something of them is new. */
function drawServices(find) {
  const now = [list, past, status, records, vms.search.text(), nodes.size, vms.vms.size];
  if (now.every((one, at) => one === drawn[at])) return;
  drawn = now;
  if (list !== null) {
    const fits = ({ vm_uuid: uuid, state, phase, owner_uuid, ...it }) => find(
      { uuid, alias: name(uuid), state, phase, owner_uuid },
      [nodeName(it.source_server_uuid), nodeName(it.target_server_uuid)]);
    const found = list.filter(fits);
    const old = (past ?? []).filter(({ vm_uuid: uuid = '', outcome: state, owner_uuid, ...it }) => find(
      { uuid, alias: uuid ? name(uuid) : '', state, owner_uuid },
      [it.what, it.by ?? '', nodeName(it.from), nodeName(it.to)]));
    byId('migrations-count').textContent = ofAll(found, list);
    redraw(byId('migrations-body'), [
      ...migrations.parts(found, null, name),
      el('h3', {}, `What has ended (${old.length})`),
      old.length === 0 ? el('p', { class: 'soft' }, past === null ? '–' : 'Nothing.') : ended(old, nodeName, name),
    ]);
    alarms.set('migrations', migrations.alarms(list, null, name));
  }
  if (status) {
    const all = records ?? [];
    const found = all.filter((it) => find({ uuid: it.uuid, alias: it.name, state: it.state, owner_uuid: it.owner_uuid },
      [name(it.vm_uuid), where(it.vm_uuid)]));
    byId('volumes-count').textContent = ofAll(found, all);
    redraw(byId('volumes-body'), volumes.parts(status, found, name, null, where));
    alarms.set('volumes', volumes.alarms(status, all, name));
  }
}

const ofAll = (found, all) => (
  found.length === all.length ? `${all.length}` : `${found.length} of ${all.length}`);

const where = (uuid) => nodeName(copyOf(uuid)?.cn);

function put(cn, vm) {
  const known = { ...vm, cn, node: nodeName(cn) };
  const key = id(known);
  if (!copies.has(vm.uuid)) copies.set(vm.uuid, new Set());
  copies.get(vm.uuid).add(key);
  show(vm.uuid, cn, !vm.do_not_inventory);
  // A snapshot is no change: nothing of it flashes.
  if (unsaid) vms.vms.set(key, known);
  else vms.apply({ type: 'modify', uuid: key, vm: known });
}

function remove(cn, uuid) {
  const key = `${cn} ${uuid}`;
  copies.get(uuid)?.delete(key);
  if (copies.get(uuid)?.size === 0) copies.delete(uuid);
  show(uuid, cn, false);
  vms.apply({ type: 'delete', uuid: key });
}

/** A node shows a VM, or does not. */
function show(uuid, cn, isShown) {
  const on = shownOn.get(uuid) ?? new Set();
  if (isShown) on.add(cn);
  else on.delete(cn);
  if (on.size > 0) shownOn.set(uuid, on);
  else shownOn.delete(uuid);
  if (on.size > 1) isTwice.add(uuid);
  else isTwice.delete(uuid);
}

const take = {
  begin() {
    unsaid = new Set(vms.vms.keys());
  },
  feed({ lost, command }) {
    feed = { ...feed, lost, command, since: lost === null ? null : (feed.since ?? Date.now()) };
  },
  node({ age_ms: age, ...node }) {
    const before = nodes.get(node.cn);
    nodes.set(node.cn, { ...node, heard: Date.now() - age });
    grid.put(nodes.get(node.cn));
    if (before?.name !== node.name) {
      for (const [key, vm] of vms.vms) if (vm.cn === node.cn) vms.vms.set(key, { ...vm, node: node.name });
    }
    one.changed(node.cn);
  },
  forgotten({ cn }) {
    nodes.delete(cn);
    grid.remove(cn);
  },
  vm({ cn, vm }) {
    unsaid?.delete(`${cn} ${vm.uuid}`);
    put(cn, vm);
    if (!unsaid) one.changed(vm.uuid);
  },
  gone({ cn, uuid }) {
    remove(cn, uuid);
    one.changed(uuid);
  },
  ready() {
    const gone = [...(unsaid ?? [])];
    unsaid = null;
    for (const key of gone) remove(...key.split(' '));
    const isFirst = !feed.isComplete;
    feed = { ...feed, isComplete: true };
    vms.listed();
    if (isFirst) {
      draw();
      goTo();
    }
  },
  hole({ cn }) {
    feed = { ...feed, hole: cn ? `node ${nodeName(cn)}` : 'the servers lost it' };
  },
  tick() {},
};

follow('centre', {
  line(line) {
    take[line.type]?.(line);
    later();
  },
  state(text, isGood) {
    feed = { ...feed, text, isGood, since: isGood ? feed.since : (feed.since ?? Date.now()) };
    if (isGood && feed.lost === null) feed.since = null;
    later();
  },
});
// Silence is news, too.
setInterval(later, 1000);

/** Shows what the address says. */
function goTo() {
  vms.search.set(place.get('q'));
  if (place.get('vm')) one.openVm(place.get('vm'));
  else if (place.get('node')) one.openNode(place.get('node'));
  else one.close();
}
place.onReturn(goTo);
vms.search.set(place.get('q'));

document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href^="?vm="]');
  if (!link) return;
  event.preventDefault();
  one.openVm(new URLSearchParams(link.getAttribute('href').split('#')[0]).get('vm'));
});
document.addEventListener('keydown', (event) => {
  const isTyping = event.target.tagName === 'INPUT';
  if (event.key === 'Escape' && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || byId('vm').open) return;
  if (event.key === '/') { byId('search').focus(); event.preventDefault(); }
});

const known = await programs();
const has = (program) => known.includes(program);
byId('migrations').hidden = !has('migrations');
byId('volumes').hidden = !has('volumes');
/** The alarm of a service that does not answer. */
function silent(service, source) {
  const all = source.error ? [alarms.silent(service, source, 'Its panel shows what it said last.')] : [];
  alarms.set(service, all);
}

if (has('migrations')) {
  watch('/ui/agents/migrations/status', MIGRATIONS_MS, async (source) => {
    list = source.value;
    silent('migration-service', source);
    byId('migrations-body').classList.toggle('old', source.error !== null);
    if (!source.error) past = (await read('/ui/agents/migrations/history')).value ?? past;
    later();
  });
}
if (has('volumes')) {
  watch('/ui/agents/volumes/status', volumes.EVERY_MS, async (source) => {
    status = source.value;
    silent('volapi', source);
    byId('volumes-body').classList.toggle('old', source.error !== null);
    if (!source.error) records = (await read('/ui/agents/volumes/plan')).value ?? records;
    later();
  });
}
