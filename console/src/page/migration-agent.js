// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// migration-agent's panel: the migrations that this node has a part in, and how their streams go.

import { el, facts, note, table, tiles } from './dom.js';
import { bytes, counted, short, span } from './format.js';
import { command } from './needs.js';

/** Reasons whose names say little. */
const ENDS = { receipt: 'not confirmed by the other node', not_allowed: 'not allowed to the sender' };

/** How each VM's stream goes, as read last: the tab of all migrations shows it too. */
export const streams = new Map();

/** Its state in a word, and the colour of it. */
export function state(status) {
  const waits = open(status).filter((one) => one.waits).length;
  if (waits > 0) return [`${counted(waits, 'VM waits', 'VMs wait')} for migration-service`, 'warn'];
  const running = open(status).filter((one) => one.order?.state === 'running').length;
  return running > 0 ? [counted(running, 'order runs', 'orders run'), 'good'] : ['idle', 'good'];
}

const open = (status) => status.migrations ?? [];

/** The panel's contents. */
export function parts(status, plan, name) {
  streams.clear();
  for (const one of open(status)) if (one.order?.progress) streams.set(one.vm, one.order.progress);
  const rows = open(status).map((one) => [
    el('span', { title: one.vm }, short(name(one.vm), 40)), one.end, order(one.order), ...flow(one.order?.progress),
    words(one),
  ]);
  return [
    ...open(status).filter((one) => one.order?.state === 'failed').map((one) =>
      note('bad', short(name(one.vm), 40), short(one.order.error, 300))),
    ...status.last_error ? [note('', 'Last failure', short(status.last_error, 400))] : [],
    tiles([
      ['migrations', open(status).length, ''],
      ['net-agent held', open(status).filter((one) => one.held).length, ''],
      ['Mbit/s at most', status.mbps ?? 'no limit', ''],
    ]),
    facts(counts(status)),
    el('h3', {}, `Migrations of this node (${rows.length})`),
    rows.length === 0
      ? el('p', { class: 'soft' }, 'No VM moves to this node, or from it.')
      : table(['vm', 'this node is', 'order', 'sent', 'rate', 'left', 'also'], rows),
  ];
}

/** A stream that ends early is usual: it is sent again. A request is refused whose sender may not make it. */
function counts(status) {
  const list = (all) => Object.entries(all ?? {}).filter(([, count]) => count > 0)
    .map(([why, count]) => `${count} ${ENDS[why] ?? why.replaceAll('_', ' ')}`).join(', ') || 'none';
  return [['streams that failed', list(status.refused_streams)], ['requests refused', list(status.refused_requests)]];
}

/** What needs a person. */
export function alarms(status, plan, name) {
  const waiting = open(status).filter((one) => one.waits);
  if (waiting.length === 0) return [];
  const some = waiting.slice(0, 3).map((one) => short(name(one.vm), 40)).join(', ');
  const title = `${counted(waiting.length, 'VM does', 'VMs do')} not boot until migration-service answers (${some})`;
  const text = 'They may have been replaced by copies on other nodes while this node was away.';
  return [{ kind: 'warn', title, text, command: command('migration-agent-waits', { VM: waiting[0].vm }) }];
}

/** What it says about one VM. */
export function vm(uuid, status) {
  const one = open(status).find((migration) => migration.vm === uuid);
  if (!one) return [];
  const what = `${one.end} of a migration; ${order(one.order)}`;
  return [el('h3', {}, 'Migration'), el('p', { class: 'soft' }, [what, words(one)].filter(Boolean).join('; '))];
}

const order = (doing) => (doing ? `${doing.order?.name ?? '–'}: ${doing.state}` : 'no order yet');

const words = (one) => [
  one.held && 'net-agent held', one.hidden && 'hidden by it', one.waits && 'waits for migration-service',
].filter(Boolean).join(', ');

/** How much is sent, how fast, and how long the rest takes: three cells. */
export function flow(progress) {
  if (!progress) return ['–', '–', '–'];
  const { current, total, rate } = progress;
  if (!current && !total) return ['starting', '–', '–'];
  const percent = total > 0 ? `${Math.floor(Math.min(1, current / total) * 100)} %, ` : '';
  return [
    `${percent}${bytes(current)} of ${bytes(total)}`, `${bytes(rate)}/s`,
    rate > 0 ? span(((total - current) / rate) * 1000) : '–',
  ];
}
