// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The tab of all migrations of the data centre: what runs, what waits and for what, what was forgotten.

import { ago, el, facts, link, note, opens, table, tiles } from './dom.js';
import { bytes, counted, short, span } from './format.js';
import { flow, streams } from './migration-agent.js';
import { command } from './needs.js';

const DAY_MS = 86_400_000;
/** A migration that is paused longer than this was forgotten; so was one that is not finalized. */
const PAUSED_MS = 3 * DAY_MS;
const UNFINALIZED_MS = 7 * DAY_MS;
/** Alarms of one kind that are named one by one. */
const NAMED = 3;
const TONES = { running: 'good', successful: 'good', failed: 'bad' };
const ORDER = ['failed', 'running', 'queued', 'paused', 'scheduled', 'successful'];

/** Its state in a word, and the colour of it. */
export function state(list) {
  const count = (name) => list.filter((one) => one.state === name).length;
  if (count('failed') > 0) return [`${count('failed')} failed`, 'bad'];
  return [`${count('running')} running`, forgotten(list).length > 0 ? 'warn' : 'good'];
}

/** The panel's contents. */
export function parts(list, plan, name) {
  const count = (...names) => list.filter((one) => names.includes(one.state)).length;
  const rank = (one) => ORDER.indexOf(one.state);
  const rows = [...list].sort((a, b) => rank(a) - rank(b)).map((one) => [
    opens(`migration ${one.vm_uuid}`, one.vm_uuid, short(name(one.vm_uuid), 40), ...whole(one, name)),
    el('b', { class: TONES[one.state] ?? '' }, `${one.phase} ${one.state}`),
    ...progress(one), node(one, 'source'), node(one, 'target'), waits(one),
    el('span', {}, ago(since(one))),
  ]);
  return [
    ...forgotten(list).map((one) => note('warn', short(name(one.vm_uuid), 40), words(one))),
    tiles([
      ['running', count('running'), ''],
      ['wait', count('queued', 'scheduled'), ''],
      ['paused', count('paused'), ''],
      ['failed', count('failed'), count('failed') > 0 ? 'bad' : ''],
      ['to finalize', count('successful'), ''],
    ]),
    rows.length === 0
      ? el('p', { class: 'soft' }, 'No migration.')
      : table(['vm', 'state', 'done', 'rate', 'left', 'from', 'to', 'waits for', 'for'], rows),
  ];
}

/** What a row opens: the VM, the nodes, what went wrong, each phase that ran. */
export function whole(one, name) {
  const steps = (one.progress_history ?? []).map((step) => [
    short(step.phase, 20), short(step.state, 20), step.duration_ms === undefined ? '–' : span(step.duration_ms),
    short(step.error ?? step.warning ?? step.message ?? '–', 300),
  ]);
  return [
    facts([
      ['vm', link(one.vm_uuid, short(name(one.vm_uuid), 40))],
      ['from', server(one, 'source')], ['to', server(one, 'target')],
      ['error', short(one.error ?? 'none', 400)],
      ['copy holds', Number.isFinite(one.held_bytes) ? bytes(one.held_bytes) : '–'],
    ]),
    table(['phase', 'state', 'took', 'message'], steps),
  ];
}

/** What needs a person: migration-service says of each what that means, and the command. */
export function alarms(list, plan, name) {
  const needy = list.flatMap((one) => (one.needs ?? []).map((need) => {
    const has = need.state.endsWith('-failed') ? 'failed' : 'waits for you';
    const why = one.error ? ` ${short(one.error, 200)}.` : '';
    return {
      kind: has === 'failed' ? 'bad' : 'warn', title: `The migration of ${short(name(one.vm_uuid), 40)} ${has}`,
      since: since(one), text: `${sentence(need.says)}${why}`, command: need.command,
    };
  }));
  const of = (kind) => needy.filter((one) => one.kind === kind);
  return [
    ...few(of('bad'), 'failed', command('migrations-failed')),
    ...few(of('warn'), 'waiting', command('migrations-wait')),
  ];
}

const sentence = (text) => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;

/** Names a few; of more it says how many. */
function few(all, what, typed) {
  if (all.length <= NAMED) return all;
  const rest = all.length - NAMED;
  const title = `${counted(rest, 'more migration')} ${what}`;
  return [...all.slice(0, NAMED), { kind: all[0].kind, title, text: 'The tab “migrations” has them.', command: typed }];
}

/** What it says about one VM. */
export function vm(uuid, list) {
  const one = list.find((migration) => migration.vm_uuid === uuid);
  if (!one) return [];
  const text = `${one.phase} ${one.state}, from ${place(one, 'source')} to ${place(one, 'target')}`;
  return [el('h3', {}, 'Its migration'), el('p', { class: one.state === 'failed' ? 'bad' : 'soft' }, text)];
}

/** Since when it is as it is: the end of what it did last, else the beginning of that. */
function since(one) {
  const last = (one.progress_history ?? []).at(-1) ?? {};
  return Date.parse(last.finished_timestamp ?? last.started_timestamp ?? one.created_timestamp);
}

const forgotten = (list) => list.filter((one) => {
  const age = Date.now() - since(one);
  return (one.state === 'paused' && age > PAUSED_MS) || (one.state === 'successful' && age > UNFINALIZED_MS);
});

/** Why a forgotten one is a cost. */
function words(one) {
  const held = Number.isFinite(one.held_bytes) ? bytes(one.held_bytes) : 'room';
  const age = span(Date.now() - since(one));
  return one.state === 'paused'
    ? `Paused for ${age}: its copy on ${place(one, 'target')} holds ${held}. Switch it, or abort it.`
    : `Not finalized for ${age}: its old copy on ${place(one, 'source')} holds ${held}.`;
}

/** Of a running one: how much is done, how fast, and how long the rest takes. */
function progress(one) {
  if (one.state !== 'running') return ['–', '–', '–'];
  // What was sent before says nothing of a step that is tried again.
  if (one.journal?.again) return ['–', '–', '–'];
  if (streams.has(one.vm_uuid)) return flow(streams.get(one.vm_uuid));
  const last = (one.progress_history ?? []).at(-1);
  return [last ? `${last.current_progress ?? 0} % ${short(last.message ?? '', 60)}` : '–', '–', '–'];
}

const waits = (one) => short(one.waits_for ?? '–', 200);

/** How people call one of its nodes: the service says its host name where CNAPI does. */
function place(one, end) {
  const uuid = one[`${end}_server_uuid`];
  return short(one[`${end}_server_hostname`] ?? (uuid ? short(uuid, 8) : '–'), 40);
}

const node = (one, end) => el('span', { title: one[`${end}_server_uuid`] ?? '' }, place(one, end));

/** The same with the uuid. */
function server(one, end) {
  const [name, uuid] = [one[`${end}_server_hostname`], one[`${end}_server_uuid`]];
  return name ? `${short(name, 40)} (${short(uuid, 40)})` : short(uuid ?? '–', 40);
}
