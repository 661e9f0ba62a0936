// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// A panel for each agent that the daemon's configuration names; net-agent's has its plan, NIC by NIC.

import { byId, el, facts, short, span } from './dom.js';

/** Keeps the panels fresh. */
export async function watch() {
  const names = await read('/ui/agents');
  if (!Array.isArray(names)) return;
  const panels = names.map((name) => {
    const body = el('div');
    byId('agents').append(el('section', { class: 'panel', 'aria-label': name },
      el('h2', {}, name), body));
    return { name, body, quiet: true };
  });
  for (;;) {
    await Promise.all(panels.map(refresh));
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

async function refresh(panel) {
  const base = `/ui/agents/${panel.name}`;
  const [status, plan, holds] = await Promise.all(['status', 'plan', 'holds'].map((page) => read(`${base}/${page}`)));
  // Redrawing would close what somebody opened to read.
  if (panel.body.querySelector('details[open]')) return;
  if (!status) {
    panel.body.replaceChildren(el('p', { class: 'soft' }, 'does not answer: not running, or not on this node'));
    return;
  }
  const parts = [...notes(status, holds), figures(status)];
  if (plan?.decisions) parts.push(...decisions(plan));
  panel.body.replaceChildren(...parts);
}

async function read(path) {
  try {
    const response = await fetch(path, { cache: 'no-store' });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

function notes(status, holds) {
  const all = [];
  if (status.brake) all.push(el('p', { class: 'note bad' }, el('b', {}, 'Brake: '), short(status.brake, 400)));
  if (status.mute) all.push(el('p', { class: 'note' }, short(status.mute, 400)));
  for (const what of status.waiting_for ?? []) all.push(el('p', { class: 'note' }, `waits for ${short(what, 300)}`));
  for (const hold of Array.isArray(holds) ? holds : []) {
    all.push(el('p', { class: 'note' }, el('b', {}, 'Hold: '), short(hold, 300)));
  }
  if (status.last_error) all.push(el('p', { class: 'note' }, `last error: ${short(status.last_error, 400)}`));
  return all;
}

/** Every number that is not zero, and the words, as they are called. */
function figures(status) {
  const left = new Set(['brake', 'mute', 'waiting_for', 'last_error', 'init_history', 'holds', 'now']);
  const told = Object.entries(status).filter(([name, value]) =>
    !left.has(name) && value !== null && value !== 0 && !(typeof value === 'object' && Object.keys(value).length === 0));
  const up = Number.isFinite(status.now) ? [['up for', span(status.now / 1000)]] : [];
  return facts([...up, ...told.map(([name, value]) => [name.replaceAll('_', ' '), short(value, 200)])]);
}

function decisions(plan) {
  const drift = plan.decisions.filter((decision) => decision.action !== 'keep');
  const rows = drift.map((decision) => el('tr', {},
    el('td', { 'data-label': 'nic' }, el('code', {}, decision.mac)),
    el('td', { 'data-label': 'vm' }, el('code', { title: decision.vm }, short(decision.vm ?? '', 8))),
    el('td', { 'data-label': 'action' }, el('b', { class: decision.action === 'delete' ? 'bad' : 'warn' }, decision.action)),
    el('td', { 'data-label': 'why' }, el('div', {}, short(decision.reason, 300), evidence(decision)))));
  const kept = plan.decisions.length - drift.length;
  const title = el('h3', {}, `Plan: ${drift.length} of ${plan.decisions.length} NICs differ`);
  if (rows.length === 0) return [title, el('p', { class: 'soft' }, `${kept} records agree with the node`)];
  const head = el('thead', {}, el('tr', {}, ...['nic', 'vm', 'action', 'why'].map((name) => el('th', { scope: 'col' }, name))));
  return [title, el('div', { class: 'scroll' }, el('table', {}, head, el('tbody', {}, ...rows)))];
}

function evidence(decision) {
  if (!decision.evidence?.length) return null;
  const items = decision.evidence.map((one) => [one.guard, `${one.answer}: ${short(one.said, 200)}`]);
  return el('details', {}, el('summary', {}, 'evidence'), facts(items));
}
