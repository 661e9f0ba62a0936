// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The tab of all volumes of the data centre: their state, who uses them, and how their storage VMs are.

import { ago, el, facts, link, note, opens, table, tiles } from './dom.js';
import { counted, mebibytes, short } from './format.js';
import { command } from './needs.js';

export const HAS_PLAN = true;

/** A data centre has thousands of them. */
export const EVERY_MS = 20_000;

/** Volumes that are shown, those that need a person first. */
const SHOWN = 200;
/** Users of one volume that are named. */
const NAMED = 3;
const TONES = { ready: 'good', failed: 'bad' };
const ORDER = ['failed', 'deleting', 'creating', 'ready'];

const degraded = (status) => status.degraded ?? [];
const failed = (status) => status.failed ?? [];

/** Its state in a word, and the colour of it. */
export function state(status) {
  const [waits] = status.waiting_for ?? [];
  if (waits) return [`waits for ${short(waits, 80)}`, 'warn'];
  const all = { degraded: degraded(status).length, failed: status.volumes?.failed ?? 0 };
  const ill = Object.entries(all).filter(([, count]) => count > 0).map(([word, count]) => `${count} ${word}`);
  return ill.length > 0 ? [ill.join(', '), 'bad'] : [`${status.volumes?.ready ?? 0} ready`, 'good'];
}

/** The panel's contents; `volumes` are the records; `where(uuid)` says on which node a VM is, where that is known. */
export function parts(status, volumes, name, written, where) {
  const ill = new Map(degraded(status).map((one) => [one.vm_uuid, one]));
  const broken = new Map(failed(status).map((one) => [one.volume, one]));
  const place = (one) => (ill.has(one.vm_uuid) ? -1 : ORDER.indexOf(one.state));
  const all = [...(volumes ?? [])].sort((a, b) => place(a) - place(b) || (a.name < b.name ? -1 : 1));
  const count = (of) => status.volumes?.[of] ?? 0;
  const far = status.out_of_reach ?? 0;
  const rows = all.slice(0, SHOWN).map((one) => [
    opens(`volume ${one.uuid}`, one.uuid, short(one.name, 40), ...whole(one, ill.get(one.vm_uuid), broken.get(one.uuid), name, where)),
    el('b', { class: ill.has(one.vm_uuid) ? 'bad' : TONES[one.state] ?? '' }, ill.has(one.vm_uuid) ? 'degraded' : one.state),
    mebibytes(one.size), el('span', { title: one.owner_uuid }, short(one.owner_uuid, 8)), users(one, name),
    zone(one, ill.get(one.vm_uuid)), short(one.filesystem_path ?? '–', 60),
  ]);
  return [
    ...degraded(status).slice(0, SHOWN).map((one) => note('bad', short(one.name ?? one.vm_uuid, 40), words(one, name))),
    ...failed(status).slice(0, SHOWN).map((one) => note('bad', short(one.name, 40), reason(one))),
    tiles([
      ['ready', count('ready'), ''],
      ['degraded', ill.size, ill.size > 0 ? 'bad' : ''],
      ['creating', count('creating'), ''],
      ['deleting', count('deleting'), ''],
      ['failed', count('failed'), count('failed') > 0 ? 'bad' : ''],
    ]),
    facts([
      ['this instance', status.runs_timers ? 'looks after storage VMs' : 'leaves storage VMs to another one'],
      ['last called', el('span', {}, ago(Date.parse(status.last_calls)), ' ago')],
      ['out of reach', far === 0 ? 'none' : `${counted(far, 'storage VM')} cannot be called from volapi’s zone`],
    ]),
    rows.length === 0
      ? el('p', { class: 'soft' }, 'No volume.')
      : table(['name', 'state', 'size', 'owner', 'users', 'storage vm', 'path'], rows),
    all.length > SHOWN
      ? el('p', { class: 'soft' }, `${all.length - SHOWN} more: sdc-voladm list-volume-zones`)
      : null,
  ].filter(Boolean);
}

/** What a row opens: what is wrong, where its files are, links to its storage VM and its users. */
function whole(one, ill, broken, name, where) {
  const all = (one.refs ?? []).slice(0, SHOWN).map((uuid) => el('div', {}, link(uuid, short(name(uuid), 40))));
  return [facts([
    ['uuid', short(one.uuid, 40)], ['owner', short(one.owner_uuid ?? '–', 40)],
    ['storage vm', link(one.vm_uuid, short(name(one.vm_uuid), 40))],
    ...(where ? [['node', where(one.vm_uuid)]] : []),
    ['why it cannot be used', ill ? words(ill, name) : broken ? reason(broken) : short(one.failure ?? '–', 300)],
    ['users', all.length > 0 ? el('div', {}, ...all) : '–'],
  ])];
}

/** What needs a person. */
export function alarms(status, volumes, name) {
  return [
    ...alarm(degraded(status), ['is degraded', 'are degraded'], (one) => words(one, name)),
    ...alarm(failed(status), ['has failed', 'have failed'], reason),
  ];
}

/** One for all that are so; the first is told in words, and its command. */
function alarm(all, [is, are], say) {
  if (all.length === 0) return [];
  const [first] = all;
  const named = short(first.name ?? first.vm_uuid, 40);
  const title = all.length === 1 ? `The volume ${named} ${is}` : `${all.length} volumes ${are}`;
  const since = Math.min(...all.map((one) => Date.parse(one.since)));
  const typed = first.command ?? command('volumes-failed');
  return [{ kind: 'bad', title, since, text: say(first), command: typed }];
}

/** Why a volume has failed. */
const reason = (one) => `${short(one.why ?? 'the reason is not known', 300)}.`;

/** What it says about one VM. */
export function vm(uuid, status, volumes) {
  const mine = (volumes ?? []).filter((one) => (one.refs ?? []).includes(uuid) || one.vm_uuid === uuid);
  if (mine.length === 0) return [];
  const say = (one) => `${one.vm_uuid === uuid ? 'serves' : 'uses'} ${short(one.name, 40)}, ${one.state}`;
  return [el('h3', {}, 'Volumes'), el('p', { class: 'soft' }, mine.map(say).join('; '))];
}

/** How a storage VM is that keeps its volume from being used. */
function words(one, name) {
  const why = one.why ? `: ${short(one.why, 200)}` : '';
  const state = one.storage_vm === 'stopped' ? 'is stopped' : 'runs and does not serve';
  return `its storage VM ${short(name(one.vm_uuid), 40)} ${state}${why}.`;
}

function zone(one, ill) {
  const shown = el('span', { title: one.vm_uuid }, short(one.vm_uuid, 8));
  return ill ? el('span', {}, shown, ` ${short(ill.storage_vm, 20)} for `, ago(Date.parse(ill.since))) : shown;
}

function users(one, name) {
  const all = one.refs ?? [];
  const some = all.slice(0, NAMED).map((uuid) => short(name(uuid), 30)).join(', ');
  return all.length > NAMED ? `${some} and ${all.length - NAMED} more` : some || '–';
}
