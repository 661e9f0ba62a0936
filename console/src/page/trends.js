// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Sparklines of the last 15 minutes: events per second from the events, the rest from the programs' metrics
// since the page was opened.

import { byId, el } from './dom.js';
import { sparkline } from './drawing.js';
import * as history from './history.js';
import { read } from './source.js';

const WINDOW_MS = 15 * 60000;
/** Events are counted in steps of this length. */
const STEP_MS = 15000;
const SAMPLE_MS = 5000;
/** An older number is not shown as one of now. */
const LATE_MS = 30000;

const samples = new Map();
/** Sum, count and mean of each histogram when it was last read. */
const sums = new Map();

/** Reads the metrics for ever and draws. */
export async function watch() {
  for (;;) {
    const [hub, agent] = await Promise.all(['vminfod', 'net-agent'].map((name) => read(`/ui/agents/${name}/metrics`)));
    sample('refresh', number(hub, 'vminfod_last_refresh_duration_seconds'));
    mean('reading', hub, 'vminfod_load_duration_seconds');
    mean('napi', agent, 'net_agent_napi_request_duration_seconds');
    draw();
    await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
  }
}

/** The number of a metric without labels; `undefined` if it is not there. */
function number({ value }, name) {
  const line = (value ?? '').split('\n').find((one) => one.startsWith(`${name} `));
  return line && Number(line.slice(name.length));
}

function sample(name, value) {
  const now = Date.now();
  const all = (samples.get(name) ?? []).filter(([at]) => at > now - WINDOW_MS);
  if (Number.isFinite(value)) all.push([now, value]);
  samples.set(name, all);
}

/** Samples the mean of a histogram since the last time; where nothing was added, the last one again. */
function mean(name, page, metric) {
  const [sum, count] = [number(page, `${metric}_sum`), number(page, `${metric}_count`)];
  const last = sums.get(name) ?? { sum: 0, count: 0 };
  const began = count < last.count ? { sum: 0, count: 0 } : last;
  const value = count > began.count ? (sum - began.sum) / (count - began.count) : last.value;
  if (Number.isFinite(count)) sums.set(name, { sum, count, value });
  sample(name, Number.isFinite(count) ? value : undefined);
}

function eventRate(from, to) {
  const counts = new Array(Math.ceil((to - from) / STEP_MS)).fill(0);
  for (const event of history.all()) {
    const at = Math.floor((Date.parse(event.date) - from) / STEP_MS);
    if (at >= 0 && at < counts.length) counts[at] += 1;
  }
  return counts.map((count, at) => [from + (at + 0.5) * STEP_MS, count / (STEP_MS / 1000)]);
}

/** Draws all lines. */
export function draw() {
  const to = Date.now();
  const from = to - WINDOW_MS;
  const seconds = (value) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`);
  const perSecond = (value) => `${+value.toFixed(2)}/s`;
  const rows = [
    ['events', history.isFilled() ? eventRate(from, to) : [], perSecond],
    ['full refresh', samples.get('refresh') ?? [], seconds],
    ['reading a VM', samples.get('reading') ?? [], seconds],
    ['NAPI’s answers', samples.get('napi') ?? [], seconds],
  ];
  byId('trends').replaceChildren(...rows.map(([name, points, words]) => {
    const [at, value] = points.at(-1) ?? [];
    const last = at > to - LATE_MS ? words(value) : '–';
    const most = points.length > 0 ? words(Math.max(...points.map(([, one]) => one))) : '';
    const said = `${name}: ${last} now, at most ${most || 'nothing'} in 15 minutes`;
    return el('div', { class: 'trend' }, el('span', { class: 'soft' }, name), el('b', {}, last),
      sparkline(points, from, to, said), el('span', { class: 'soft' }, most && `most ${most}`));
  }));
}
