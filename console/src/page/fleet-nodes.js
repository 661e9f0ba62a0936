// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The nodes as a grid: those that need a person first, each in words.

import { ago, byId, el, facts, note, table } from './dom.js';
import { short } from './format.js';
import { sortable } from './vms.js';

/** Alarms of one kind that are named one by one. */
const NAMED = 3;
/** Lists them on the command line. */
const ALL_NODES = 'sdc-fleet nodes --all-well';
/** Of more nodes than these, one that is well is a square. */
const CARDS = 60;
/** Nodes whose order may be that old, in ms: a heartbeat changes it seldom. */
const ORDER_MS = 1000;

/** Returns true if the node was heard within three heartbeats. */
export const isUp = (node) => Date.now() - node.heard <= 3000 * node.every_s;

/**
 * What needs a person on a node: a few words, a sentence, a command. `twice` are the VMs that another one shows too.
 */
export function needs(node, twice) {
  const all = [];
  if (!isUp(node)) all.push({ words: 'not heard', text: 'Nothing is known of it since.', command: node.not_heard });
  for (const need of node.needs) {
    all.push({ words: `${need.program} ${need.what}`, text: need.text, command: need.command });
  }
  for (const vm of twice) {
    const text = 'Another node shows this VM, too: one copy must not run.';
    all.push({ words: `${vm.name} on two nodes`, text, command: `sdc-fleet vm ${vm.uuid}` });
  }
  return all;
}

/** What asks the feed is typed anywhere, everything else on the node. */
const where = (node, { command }) => (command.startsWith('sdc-fleet ') ? '' : ` On ${short(node.name, 40)}:`);

/** The alarms of all nodes: of many alike it says how many. */
export function alarms(nodes, needsOf) {
  const kinds = new Map();
  for (const node of nodes) {
    for (const need of needsOf(node)) {
      const kind = need.words.endsWith('on two nodes') ? need.words : need.words.split(' ').slice(-2).join(' ');
      kinds.set(kind, [...(kinds.get(kind) ?? []), { node, need }]);
    }
  }
  return [...kinds].flatMap(([kind, all]) => {
    const some = all.slice(0, NAMED).map(({ node, need }) => ({
      kind: 'bad', title: `${short(node.name, 40)}: ${short(need.words, 60)}`,
      text: short(need.text, 200) + where(node, need),
      since: need.words === 'not heard' ? node.heard : null, command: need.command,
    }));
    const rest = all.length - NAMED;
    if (rest <= 0) return some;
    const title = `${rest} more nodes: ${short(kind, 60)}`;
    return [...some, { kind: 'bad', title, text: 'They are first among the nodes below.', command: ALL_NODES }];
  });
}

/** The grid; `open(cn)` shows a node, `needsOf(node)` is what needs a person there. */
export function grid(open, needsOf) {
  const box = byId('nodes');
  const cells = new Map();
  let [timer, shown] = [null, () => true];
  box.addEventListener('click', (event) => {
    const cell = event.target.closest('[data-cn]');
    if (cell) open(cell.dataset.cn);
  });

  function fill(cell, node) {
    const all = needsOf(node);
    const kind = all.length > 0 ? 'bad' : node.waits ? 'warn' : 'good';
    const words = all.length > 0 ? all.map((need) => need.words).join(', ') : node.waits ?? '';
    const state = JSON.stringify([kind, node.name, node.vms, node.version, words]);
    if (cell.state !== state) {
      cell.state = state;
      cell.className = `node ${kind === 'good' ? '' : kind}`;
      cell.title = [short(node.name, 40), words && short(words, 120)].filter(Boolean).join(': ');
      cell.replaceChildren(
        el('b', { class: `mark ${kind}` }, short(node.name, 40)),
        el('span', { class: 'soft' }, `${node.vms ?? '–'} VMs, heard `, ago(node.heard), ' ago'),
        words ? el('span', { class: kind }, short(words, 120)) : '',
      );
    } else {
      const time = cell.querySelector('time');
      if (time) time.dataset.at = node.heard;
    }
    cell.order = `${all.length > 0 ? 0 : node.waits ? 1 : 2} ${sortable(node.name)}`;
  }

  /** Puts them in order, not for each heartbeat. */
  function order(nodes) {
    timer ??= setTimeout(() => {
      timer = null;
      for (const node of nodes.values()) put(node);
      const all = [...cells].filter(([cn]) => shown(nodes.get(cn))).map(([, cell]) => cell);
      all.sort((a, b) => (a.order < b.order ? -1 : Number(a.order > b.order)));
      const focused = document.activeElement;
      if (all.length !== box.children.length || all.some((cell, at) => box.children[at] !== cell)) {
        box.replaceChildren(...all);
        if (all.includes(focused)) focused.focus({ preventScroll: true });
      }
      const [found, known] = [all.length, nodes.size];
      box.classList.toggle('squares', found > CARDS);
      byId('nodes-count').textContent = found === known ? `${known}` : `${found} of ${known}`;
    }, cells.size === nodes.size ? ORDER_MS / 4 : 0);
  }

  function put(node) {
    if (!cells.has(node.cn)) cells.set(node.cn, el('button', { type: 'button', 'data-cn': node.cn }));
    fill(cells.get(node.cn), node);
  }

  return {
    put,
    order,
    remove: (cn) => cells.delete(cn),
    /** Shows only those that pass. */
    filter(test) { shown = test; },
  };
}

/** One node, whole. */
export function whole(node, all) {
  const programs = node.programs.map((one) => [
    short(one.name, 40), short(one.version ?? '–', 20), one.version ? String(one.holds) : '–',
  ]);
  const link = node.page
    ? el('a', { href: node.page, rel: 'noreferrer' }, 'its own page')
    : el('code', {}, `ssh -L 5310:127.0.0.1:5310 ${short(node.name, 60)}`);
  return [
    ...all.map(({ words, text, command }) => (
      note('bad', short(words, 80), el('span', {}, `${short(text, 300)} `, el('code', {}, command))))),
    ...(node.waits ? [note('', 'Its feed waits', short(node.waits, 300))] : []),
    facts([
      ['uuid', el('code', {}, node.cn)], ['heard', el('span', {}, ago(node.heard), ' ago')],
      ['version', short(node.version, 40)],
      ['VMs', String(node.vms ?? '–')], ['page', link], ['feed', short(node.position ?? '–', 80)],
      ['machine', short(node.machine, 60)], ...(node.rival ? [['also claimed by', short(node.rival, 60)]] : []),
    ]),
    el('h3', {}, 'Programs'),
    programs.length === 0 ? el('p', { class: 'soft' }, '–') : table(['program', 'version', 'holds'], programs),
  ];
}
