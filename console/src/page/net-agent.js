// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// net-agent's panel: whether it may write, what prevents it, and its plan, NIC by NIC.

import { clock, el, facts, short, since, span, table, tiles } from './dom.js';

/** Names of its counters; those that are 0 are not shown. */
const DONE = {
  backfilled: 'cn_uuid written', state_fixed: 'state written', claimed: 'claimed', mirrored: 'owner or primary written',
  reaped: 'deleted', already_gone: 'already gone', deferred: 'deferred', skipped: 'left alone',
  missing_in_napi: 'unknown to NAPI', foreign_owner: 'of a foreign owner', conflicts: 'conflicts', errors: 'failures',
  missed_events: 'missed events', streams_lost: 'streams lost', reported: 'only reported',
};
const TONES = { delete: 'bad', defer: 'warn', 'ask-vmapi': 'warn', look: 'soft', keep: 'soft' };

/** Its state in a word, and the colour of it. */
export function state(status) {
  if (status.brake) return ['brake', 'bad'];
  if (status.mute) return ['writes nothing', 'warn'];
  return ['writing', 'good'];
}

/** The panel's contents. */
export function parts(status, plan, name) {
  const decisions = plan?.decisions ?? [];
  const drift = decisions.filter((one) => one.action !== 'keep');
  const open = drift.filter((one) => one.outcome !== 'done');
  const held = Array.isArray(status.holds) ? status.holds.length : 0;
  return [
    ...notes(status, plan, name),
    tiles([
      ['NICs in NAPI’s last list', status.listed, ''],
      ['open differences', open.length, open.length > 0 ? 'warn' : ''],
      ['settled', drift.length - open.length, ''],
      ['leak candidates', status.candidates, status.candidates > 0 ? 'warn' : ''],
      ['left the node', status.departed?.length ?? 0, ''],
      ['holds', held, held > 0 ? 'warn' : ''],
    ]),
    facts([
      ['last pass', status.last_pass ? `${since(status.last_pass)} ago, number ${status.pass}` : 'none yet: the first comes 2 to 10 minutes after the start'],
      ['since its start', `${done(status)} (${span(status.now / 1000)}, ${status.requests} requests)`],
      ['mode', status.mode],
    ]),
    ...departed(status, name),
    ...planned(plan, drift, decisions.length, name),
  ];
}

/** What prevents it from writing or needs a person, worst first. */
function notes(status, plan, name) {
  const note = (kind, title, text) => el('p', { class: `note ${kind}` }, el('b', {}, `${title}: `), text);
  const all = [];
  if (status.brake) {
    const id = plan?.approval?.id;
    all.push(note('bad', 'Brake', `${short(status.brake, 400)}. ${id ? `Approve with: net-agent approve ${id}` : 'net-agent plan lists what it blocks.'}`));
  }
  if (status.memory) all.push(note('bad', 'Memory', short(status.memory, 400)));
  if (status.mute) all.push(note('', 'Writes nothing', short(status.mute, 400)));
  for (const what of status.waiting_for ?? []) all.push(note('', 'Waits for', short(what, 300)));
  for (const hold of Array.isArray(status.holds) ? status.holds : []) {
    const what = hold.vm ? `VM ${name(hold.vm)}` : 'the whole node';
    const until = hold.until ? `for ${span(Date.parse(hold.until) - Date.now())} more` : 'until released';
    all.push(note('', 'Hold', `${short(what, 60)}, ${until}: ${short(hold.reason, 300)}`));
  }
  if (status.last_error) all.push(note('', 'Last failure', short(status.last_error, 400)));
  return all;
}

function done(status) {
  const written = Object.entries(DONE).filter(([key]) => status[key] > 0).map(([key, words]) => `${status[key]} ${words}`);
  return written.join(', ') || 'nothing written';
}

/** The NICs that left the node, and when each is checked. */
function departed(status, name) {
  const all = status.departed ?? [];
  if (all.length === 0) return [];
  const rows = all.map((one) => [
    el('code', {}, one.mac), vm(one.vm, name), short(one.why, 200),
    el('span', {}, one.due_in_ms > 0 ? `in ${span(one.due_in_ms)}` : 'now', one.tries > 0 ? `, tried ${one.tries} times` : ''),
  ]);
  return [el('h3', {}, `Left the node (${all.length})`), table(['nic', 'vm', 'why', 'checked'], rows)];
}

function planned(plan, drift, all, name) {
  if (!plan?.made) return [el('h3', {}, 'Plan'), el('p', { class: 'soft' }, 'None yet.')];
  const title = el('h3', {}, `Plan of ${clock(plan.made)}: ${drift.length} of ${all} NICs differ`);
  if (drift.length === 0) return [title, el('p', { class: 'soft' }, 'NAPI’s records agree with the node.')];
  const rows = drift.map((one) => [
    el('code', {}, one.mac), vm(one.vm, name), el('b', { class: TONES[one.action] ?? 'good' }, one.action),
    el('div', {}, short(one.reason, 300), evidence(one)),
    el('span', { class: one.outcome === 'done' ? 'good' : one.outcome ? 'warn' : 'soft' }, short(one.outcome ?? 'open', 200)),
  ]);
  return [title, table(['nic', 'vm', 'action', 'why', 'became'], rows)];
}

const vm = (uuid, name) => el('span', { title: uuid }, uuid ? short(name(uuid), 40) : '–');

function evidence(decision) {
  if (!decision.evidence?.length) return null;
  const items = decision.evidence.map((one) => [one.guard, `${one.answer}: ${short(one.said, 200)}`]);
  return el('details', { 'data-key': decision.mac }, el('summary', {}, 'evidence'), facts(items));
}
