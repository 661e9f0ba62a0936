// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// kvmd's panel: the monitors it reads, and who turned which VM off.

import { clock, el, facts, short, span, table } from './dom.js';

/** Verdicts shown, the newest first. */
const SHOWN = 20;
const SURE = { high: 'good', medium: 'warn', low: 'soft' };

/** Its state in a word, and the colour of it. */
export function state(status) {
  const queued = Object.values(status.instances ?? {}).filter((one) => one.state === 'queued').length;
  return queued > 0 ? [`${queued} monitors held by others`, 'warn'] : ['listening', 'good'];
}

/** The panel's contents. */
export function parts(status) {
  const counts = status.counts ?? {};
  const all = Object.entries(status.instances ?? {});
  const contents = [facts([
    ['verdicts', `${counts.verdicts ?? 0}, ${counts.users ?? 0} of them users’ wishes`],
    ['monitors', `${all.length} heard now, ${counts.connections ?? 0} since its start ${span((status.up_s ?? 0) * 1000)} ago`],
    ['rule', status.rule],
  ])];
  if (counts.markers_failed > 0) {
    contents.unshift(el('p', { class: 'note bad' }, `${counts.markers_failed} markers could not be written or removed.`));
  }
  if (all.length > 0) {
    const rows = all.map(([name, one]) => [
      short(name, 60), el('span', { class: one.state === 'watching' ? 'good' : 'warn' }, one.state),
      short(one.qemu ?? '–', 30), one.reachable ? 'yes' : el('b', { class: 'bad' }, 'no'),
    ]);
    contents.push(el('h3', {}, `Instances (${all.length})`), table(['instance', 'state', 'qemu', 'reachable'], rows));
  }
  const verdicts = [...(status.verdicts ?? [])].reverse();
  if (verdicts.length > 0) {
    const rows = verdicts.slice(0, SHOWN).map((one) => [
      el('span', { class: 'soft' }, clock(one.date)), short(one.name, 60),
      el('b', {}, `${one.initiator} / ${one.kind}${one.user ? ', the user’s wish' : ''}`),
      el('span', { class: SURE[one.confidence] ?? '' }, one.confidence), short((one.evidence ?? []).join(', '), 200),
    ]);
    contents.push(el('h3', {}, `Verdicts (${verdicts.length})`), table(['at', 'instance', 'who / how', 'sure', 'evidence'], rows));
  }
  return contents;
}
