// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// vm-agent's panel: whether it may write, what prevents it, what waits, and what it wrote last.

import { ago, el, facts, note, table, tiles } from './dom.js';
import { approval, clock, short, span } from './format.js';
import { command } from './needs.js';

/** Names of its counters; those that are 0 are not shown. */
const DONE = {
  puts: 'records written', vms_batched: 'written together', vms_destroyed: 'reported destroyed',
  turns_same: 'found the same', deferrals: 'deferred', writes_reported: 'only reported', errors: 'failures',
  streams_lost: 'streams lost',
};
/** How a record was written. */
const PUT = { put: 'written', batch: 'written with others' };
const TONES = { destroyed: 'bad', wait: 'warn', put: 'good', nothing: 'soft' };

export const HAS_PLAN = true;

/** Its state in a word, and the colour of it. */
export function state(status) {
  if (status.brake) return ['brake', 'bad'];
  if (status.mute) return ['writes nothing', 'warn'];
  return ['writing', 'good'];
}

/** The panel's contents. */
export function parts(status, plan, name) {
  const decisions = (plan?.decisions ?? []).filter((one) => one.action !== 'nothing');
  return [
    ...notes(status, plan),
    tiles([
      ['VMs', status.vms, ''],
      ['hidden', status.hidden, ''],
      ['in the queue', status.queue, ''],
      ['held', status.held, status.held > 0 ? 'warn' : ''],
      ['gone, not settled', status.gone, status.gone > 0 ? 'warn' : ''],
    ]),
    facts([
      ['compared with VMAPI’s list', compared(status)],
      ['since its start', `${done(status)} (${span(status.uptime_s * 1000)})`],
      ['mode', status.mode],
    ]),
    ...queued(plan, name),
    ...decided(decisions, name),
    ...written(status, name),
  ];
}

/** What needs a person. */
export function alarms(status, plan) {
  const all = [];
  const add = (kind, title, text, typed) => all.push({ kind, title, text, command: typed });
  const id = plan?.approval?.id;
  if (status.brake) {
    const typed = id ? command('vm-agent-approve', { ID: id }) : command('vm-agent-brake');
    add('bad', 'vm-agent’s brake is on', `${status.brake}.`, typed);
  }
  if (status.memory) add('bad', 'vm-agent cannot keep its memory', status.memory, command('vm-agent-memory'));
  if (status.mute && status.mode === 'on') {
    add('warn', 'vm-agent writes nothing', `${status.mute}.`, command('vm-agent-mute'));
  }
  return all;
}

/** What it says about one VM: what was decided last, and why. */
export function vm(uuid, status, plan) {
  const one = (plan?.decisions ?? []).find((decision) => decision.vm === uuid);
  if (!one) return [];
  const what = `${one.action}: ${short(one.reason, 300)}`;
  const title = el('h3', {}, `VMAPI’s record, as of ${clock(one.at)}`);
  return [title, el('p', { class: one.waits ? 'warn' : 'soft' }, what)];
}

/** What prevents it from writing or needs a person, worst first. */
function notes(status, plan) {
  const all = [];
  if (status.brake) {
    const id = plan?.approval?.id;
    const help = id ? `Approve with: ${command('vm-agent-approve', { ID: id })}` : 'vm-agent plan lists what it blocks.';
    all.push(note('bad', 'Brake', `${short(status.brake, 400)}. ${help}`));
  }
  if (status.approved) all.push(note('', 'Approved', approval(status.approved, 'VMs')));
  if (status.memory) all.push(note('bad', 'Memory', short(status.memory, 400)));
  if (status.mute) all.push(note('', 'Writes nothing', short(status.mute, 400)));
  for (const what of status.waiting_for ?? []) all.push(note('', 'Waits for', short(what, 300)));
  if (status.last_error) all.push(note('', 'Last failure', short(status.last_error, 400)));
  return all;
}

function compared({ last_start: at }) {
  return at ? el('span', {}, ago(Date.parse(at)), ' ago') : 'not yet: within five minutes of the start';
}

function done(status) {
  const counted = Object.entries(DONE).filter(([key]) => status[key] > 0)
    .map(([key, words]) => `${status[key]} ${words}`);
  return counted.join(', ') || 'nothing written';
}

/** The VMs that are to have a turn, and when. */
function queued(plan, name) {
  const all = plan?.queue ?? [];
  if (all.length === 0) return [];
  const due = (one) => (one.due_in_ms > 0 ? `in ${span(one.due_in_ms)}` : 'now');
  const rows = all.slice(0, 100).map((one) => [alias(one.vm, name), due(one)]);
  return [el('h3', {}, `Queue (${all.length})`), table(['vm', 'due'], rows)];
}

function decided(decisions, name) {
  const title = el('h3', {}, `Differs or waits (${decisions.length})`);
  if (decisions.length === 0) return [title, el('p', { class: 'soft' }, 'VMAPI’s records agree with the node.')];
  const rows = decisions.map((one) => [
    clock(one.at), alias(one.vm, name), el('b', { class: TONES[one.action] ?? 'good' }, one.action),
    short(one.reason, 300), el('span', { class: one.waits ? 'warn' : 'good' }, one.waits ? 'held' : 'done'),
  ]);
  return [title, table(['at', 'vm', 'action', 'why', 'became'], rows)];
}

function written(status, name) {
  const rows = (status.last_puts ?? []).map((one) => [clock(one.at), alias(one.vm, name), PUT[one.what] ?? one.what]);
  return rows.length === 0 ? [] : [el('h3', {}, 'Last written'), table(['at', 'vm', 'what'], rows)];
}

const alias = (uuid, name) => el('span', { title: uuid }, uuid ? short(name(uuid), 40) : '–');
