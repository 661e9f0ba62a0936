// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// net-agent's panel: whether it may write, what prevents it, and its plan, NIC by NIC.

import { ago, el, facts, note, table, tiles } from './dom.js';
import { approval, clock, counted, named, short, span } from './format.js';
import { command, says } from './needs.js';

/** Names of its counters; those that are 0 are not shown. */
const DONE = {
  backfilled: 'cn_uuid written', state_fixed: 'state written', claimed: 'claimed',
  mirrored: 'owner or primary written',
  reaped: 'deleted', already_gone: 'already gone', deferred: 'deferred', skipped: 'left alone',
  missing_in_napi: 'unknown to NAPI', foreign_owner: 'of a foreign owner', conflicts: 'conflicts', errors: 'failures',
  missed_events: 'missed events', streams_lost: 'streams lost', reported: 'only reported',
};
const TONES = { delete: 'bad', defer: 'warn', 'ask-vmapi': 'warn', look: 'soft', keep: 'soft' };

/** A pass comes every 24 h ± 25 %. */
const PASS_LATE_MS = 31 * 3600000;
export const HAS_PLAN = true;
/** Entries of its history that are shown, the newest first. */
const WRITTEN_SHOWN = 20;
/** Returns what changes with each entry of its history. */
export const written = (status) => WRITES.map((key) => status[key]).join();
const WRITES = ['backfilled', 'state_fixed', 'claimed', 'mirrored', 'reaped', 'already_gone'];

/** Its state in a word, and the colour of it. */
export function state(status) {
  if (status.brake) return ['brake', 'bad'];
  if (status.mute || holds(status).some((hold) => !hold.vm)) return ['writes nothing', 'warn'];
  return ['writing', 'good'];
}

/** What needs a person. */
export function alarms(status, plan) {
  const all = [];
  const add = (kind, title, text, typed, since) => all.push({ kind, title, text, command: typed, since });
  const id = plan?.approval?.id;
  if (status.brake) {
    const typed = id ? command('net-agent-approve', { ID: id }) : command('net-agent-brake');
    add('bad', 'net-agent’s brake is on', `${status.brake}.`, typed);
  }
  if (status.memory) add('bad', 'net-agent cannot keep its memory', status.memory, command('net-agent-memory'));
  const whole = holds(status).find((hold) => !hold.vm);
  if (whole) {
    const until = whole.until ? `until ${clock(whole.until)}` : 'until it is released';
    const text = `No NIC of this node is touched ${until}: ${whole.reason}.`;
    add('warn', 'The whole node is held', text, command('net-agent-held'), Date.parse(whole.since));
  } else if (status.mute && status.mode === 'on') {
    add('warn', 'net-agent writes nothing', `${status.mute}.`, command('net-agent-mute'));
  }
  const pass = Date.parse(status.last_pass ?? '');
  if (Date.now() - pass > PASS_LATE_MS) {
    add('warn', 'net-agent has not compared with NAPI', says('net-agent-pass-old'), command('net-agent-pass-old'), pass);
  }
  return all;
}

const holds = (status) => (Array.isArray(status.holds) ? status.holds : []);

/** The VMs that are held. */
export const held = (status) => holds(status).map((hold) => hold.vm).filter(Boolean);

/**
 * What it says about one VM: the holds that cover it, NAPI's record of each NIC with the verdicts, and what was
 * written and deleted.
 */
export function vm(uuid, status, plan, history) {
  const notes = holds(status).filter((hold) => !hold.vm || hold.vm === uuid)
    .map((hold) => holdNote(hold, hold.vm ? 'this VM' : 'the whole node'));
  const nics = (plan?.decisions ?? []).filter((one) => one.vm === uuid);
  const rows = nics.map((one) => [el('code', {}, one.mac), short(one.napi || 'no record', 200), ...judged(one)]);
  const title = el('h3', {}, plan?.made ? `NICs in NAPI, as of ${clock(plan.made)}` : 'NICs in NAPI');
  const none = el('p', { class: 'soft' }, 'net-agent’s last plan has no NIC of this VM.');
  const now = nics.map((one) => `net-agent nic ${one.mac}`).join('; ');
  const ask = now ? [el('p', { class: 'soft' }, 'NAPI, the node and VMAPI now: ', el('code', {}, now))] : [];
  const records = rows.length > 0 ? table(['nic', 'NAPI’s record', 'action', 'why', 'became'], rows) : none;
  return [...notes, title, records, ...ask, ...past((history ?? []).filter((one) => one.vm === uuid))];
}

/** The panel's contents. */
export function parts(status, plan, name, history) {
  const decisions = plan?.decisions ?? [];
  const drift = decisions.filter((one) => one.action !== 'keep');
  const open = drift.filter((one) => one.outcome !== 'done');
  const count = holds(status).length;
  return [
    ...notes(status, plan, name),
    tiles([
      ['NICs in NAPI’s last list', status.listed, ''],
      ['open differences', open.length, open.length > 0 ? 'warn' : ''],
      ['settled', drift.length - open.length, ''],
      ['leak candidates', status.candidates, status.candidates > 0 ? 'warn' : ''],
      ['left the node', status.departed?.length ?? 0, ''],
      ['holds', count, count > 0 ? 'warn' : ''],
    ]),
    facts([
      ['last pass', lastPass(status)],
      ['since its start', `${done(status)} (${counted(status.requests, 'request')})`],
      ['up for', ago(Date.now() - status.now / 1000)],
      ['mode', status.mode],
    ]),
    ...departed(status, name),
    ...planned(plan, drift, decisions.length, name),
    ...past(history ?? [], name),
  ];
}

function lastPass(status) {
  if (!status.last_pass) return 'none yet: the first comes 2 to 10 minutes after the start';
  return el('span', {}, ago(Date.parse(status.last_pass)), ` ago, number ${status.pass}`);
}

/** What prevents it from writing or needs a person, worst first. */
function notes(status, plan, name) {
  const all = [];
  if (status.brake) {
    const id = plan?.approval?.id;
    const help = id ? `Approve with: ${command('net-agent-approve', { ID: id })}` : 'net-agent plan lists what it blocks.';
    all.push(note('bad', 'Brake', `${short(status.brake, 400)}. ${help}`));
  }
  if (status.approved) all.push(note('', 'Approved', approval(status.approved, 'records')));
  if (status.memory) all.push(note('bad', 'Memory', short(status.memory, 400)));
  if (status.mute) all.push(note('', 'Writes nothing', short(status.mute, 400)));
  for (const what of status.waiting_for ?? []) all.push(note('', 'Waits for', short(named(what, name), 300)));
  for (const hold of holds(status)) all.push(holdNote(hold, hold.vm ? `VM ${name(hold.vm)}` : 'the whole node'));
  if (status.last_error) all.push(note('', 'Last failure', short(status.last_error, 400)));
  return all;
}

function holdNote(hold, what) {
  const until = hold.until ? `for ${span(Date.parse(hold.until) - Date.now())} more` : 'until released';
  return note('', 'Hold', `${short(what, 60)}, ${until}: ${short(hold.reason, 300)}`);
}

function done(status) {
  const written = Object.entries(DONE).filter(([key]) => status[key] > 0);
  return written.map(([key, words]) => `${status[key]} ${words}`).join(', ') || 'nothing written';
}

/** The NICs that left the node, and when each is checked. */
function departed(status, name) {
  const all = status.departed ?? [];
  if (all.length === 0) return [];
  const rows = all.map((one) => {
    const tries = one.tries > 0 ? `, tried ${counted(one.tries, 'time')}` : '';
    const due = one.due_in_ms > 0 ? `in ${span(one.due_in_ms)}` : 'now';
    return [el('code', {}, one.mac), titled(one.vm, name), short(named(one.why, name), 200), due + tries];
  });
  return [el('h3', {}, `Left the node (${all.length})`), table(['nic', 'vm', 'why', 'checked'], rows)];
}

function planned(plan, drift, all, name) {
  if (!plan?.made) return [el('h3', {}, 'Plan'), el('p', { class: 'soft' }, 'None yet.')];
  const title = el('h3', {}, `Plan of ${clock(plan.made)}: ${drift.length} of ${all} NICs differ`);
  if (drift.length === 0) return [title, el('p', { class: 'soft' }, 'NAPI’s records agree with the node.')];
  const rows = drift.map((one) => [el('code', {}, one.mac), titled(one.vm, name), ...judged(one)]);
  return [title, table(['nic', 'vm', 'action', 'why', 'became'], rows)];
}

/** What was written and deleted, by which rule, old and new value. */
function past(entries, name) {
  if (entries.length === 0) return [];
  const vm = (uuid) => (name ? [titled(uuid, name)] : []);
  const rows = entries.slice(-WRITTEN_SHOWN).reverse().map((one) => [
    el('span', { class: 'soft' }, clock(one.at)), el('code', {}, one.mac), ...vm(one.vm),
    el('b', { class: one.new ? 'good' : 'bad' }, one.outcome), short(change(one), 200), short(named(one.why, name), 300),
  ]);
  const title = el('h3', {}, `Written and deleted, the last ${rows.length} of ${entries.length}`);
  return [title, table(['at', 'nic', ...(name ? ['vm'] : []), 'what', 'change', 'why'], rows)];
}

function change({ old, new: now }) {
  const value = (one) => String(one ?? '–');
  if (!now) return `was ${['state', 'ip', 'cn_uuid'].filter((key) => old?.[key]).map((key) => old[key]).join(', ')}`;
  return Object.entries(now).map(([key, one]) => `${key} ${value(old?.[key])} → ${value(one)}`).join(', ');
}

/** Action, reason with the guards' verdicts, and what became of it. */
const judged = (one) => [
  el('b', { class: TONES[one.action] ?? 'good' }, one.action),
  el('div', {}, short(one.reason, 300), evidence(one)),
  el('span', { class: one.outcome === 'done' ? 'good' : one.outcome ? 'warn' : 'soft' },
    short(one.outcome ?? (one.action === 'keep' ? '–' : 'open'), 200)),
];

const titled = (uuid, name) => el('span', { title: uuid }, uuid ? short(name(uuid), 40) : '–');

function evidence(decision) {
  if (!decision.evidence?.length) return null;
  const items = decision.evidence.map((one) => [one.guard, `${one.answer}: ${short(one.said, 200)}`]);
  return el('details', { 'data-key': decision.mac }, el('summary', {}, 'evidence'), facts(items));
}
