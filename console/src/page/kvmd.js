// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// kvmd's panel: the monitors it reads, and who turned which VM off.

import { ago, el, facts, note, table } from './dom.js';
import { clock, counted, short } from './format.js';
import { command } from './needs.js';

/** Verdicts shown, the newest first. */
const SHOWN = 20;
const SURE = { high: 'good', medium: 'warn', low: 'soft' };

/** What tells who turned a VM off, by the name of the rule. */
const RULES = { reason: 'the reason that QEMU gives', ganeti: 'the shipped daemon’s rule' };

/** Its state in a word, and the colour of it. */
export function state(status) {
  const count = queued(status);
  return count > 0 ? [`${counted(count, 'monitor')} held by other clients`, 'warn'] : ['listening', 'good'];
}

/** What needs a person. */
export function alarms(status) {
  const count = queued(status);
  if (count === 0) return [];
  const text = 'Another client is connected to these monitors: kvmd cannot know who turns these VMs off.';
  const title = `${counted(count, 'monitor is', 'monitors are')} held by other clients`;
  return [{ kind: 'warn', title, text, command: command('kvmd-taken') }];
}

const queued = (status) => Object.values(status.instances ?? {}).filter((one) => one.state === 'queued').length;

/** What it says about one VM. */
export function vm(uuid, status) {
  const all = (status.verdicts ?? []).filter((one) => one.name === uuid);
  if (all.length === 0) return [];
  return [el('h3', {}, 'Who turned it off'), verdictTable(all)];
}

/** The panel's contents. */
export function parts(status, plan, name) {
  const counts = status.counts ?? {};
  const all = Object.entries(status.instances ?? {});
  const [verdicts, connections] = [counts.verdicts ?? 0, counts.connections ?? 0];
  const contents = [facts([
    ['verdicts', `${verdicts}, ${counts.users ?? 0} of them users’ wishes`],
    ['monitors', `${all.length} connected now, ${connections} since its start`],
    ['up for', ago(Date.now() - (status.up_s ?? 0) * 1000)],
    ['judged by', RULES[status.rule] ?? status.rule],
  ])];
  if (counts.markers_failed > 0) {
    contents.unshift(note('bad', 'Markers', `${counts.markers_failed} could not be written or removed.`));
  }
  if (all.length > 0) {
    const rows = all.map(([uuid, one]) => [
      called(uuid, name), el('span', { class: one.state === 'watching' ? 'good' : 'warn' }, one.state),
      short(one.qemu ?? '–', 30), one.reachable ? 'yes' : el('b', { class: 'bad' }, 'no'),
    ]);
    contents.push(el('h3', {}, `Instances (${all.length})`), table(['instance', 'state', 'qemu', 'reachable'], rows));
  }
  const latest = [...(status.verdicts ?? [])].reverse();
  if (latest.length > 0) {
    contents.push(el('h3', {}, `Verdicts (${latest.length})`), verdictTable(latest.slice(0, SHOWN), name));
  }
  return contents;
}

/** Its alias, where it is the zone of a VM. */
const called = (instance, name) => el('span', { title: instance }, short(name?.(instance) ?? instance, 60));

function verdictTable(verdicts, name) {
  const rows = verdicts.map((one) => [
    el('span', { class: 'soft' }, clock(one.date)), called(one.name, name),
    el('b', {}, `${one.initiator} / ${one.kind}${one.user ? ', the user’s wish' : ''}`),
    el('span', { class: SURE[one.confidence] ?? '' }, one.confidence), short((one.evidence ?? []).join(', '), 200),
  ]);
  return table(['at', 'instance', 'who / how', 'sure', 'evidence'], rows);
}
