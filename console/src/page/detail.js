// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// One VM: what is wrong with it and why, its NICs, its verdicts, its events, its fields.

import * as agents from './agents.js';
import { ago, byId, el, note, redraw } from './dom.js';
import { timeline } from './drawing.js';
import { entry } from './events.js';
import * as fields from './fields.js';
import { clock, counted, short } from './format.js';
import * as history from './history.js';
import { read } from './source.js';

const SHOWN = 20;
const REREAD_MS = 3000;

/** The view; `find(uuid)` returns the VM or undefined, `on.opened(uuid)` and `on.closed()` keep the address. */
export function view(find, on) {
  const box = byId('vm');
  let uuid = null;
  let why = null;

  async function reread() {
    const asked = uuid;
    if (!asked) return;
    const answer = await read(`/ui/agents/vminfod/why?vm=${encodeURIComponent(asked)}`);
    if (asked === uuid) {
      why = { ...answer, at: Date.now() };
      draw();
    }
  }
  setInterval(reread, REREAD_MS);

  function draw() {
    const vm = find(uuid);
    byId('vm-title').textContent = short(vm?.alias ?? history.alias(uuid) ?? uuid, 80);
    const events = history.of(uuid);
    const gone = note('bad', 'Gone', 'vminfod has no such VM. Its events are below.');
    redraw(byId('vm-body'), [
      ...(vm ? troubles(vm, why) : [gone]),
      ...agents.aboutVm(uuid),
      ...past(events),
      ...(vm ? fields.parts(vm, why, events, history.all()[0]?.date) : []),
    ]);
  }

  box.addEventListener('close', () => {
    uuid = null;
    on.closed();
  });
  byId('vm-close').addEventListener('click', () => box.close());

  return {
    /** Shows this VM. */
    open(wanted) {
      [uuid, why] = [wanted, null];
      draw();
      if (!box.open) box.showModal();
      on.opened(wanted);
      reread();
    },
    close: () => box.close(),
    /** Draws again if this VM is shown. */
    changed: (changed) => { if (uuid && changed === uuid) draw(); },
  };
}

function troubles(vm, why) {
  const all = [];
  if (why?.error) all.push(note('bad', 'How fresh this is cannot be said', short(why.error, 300)));
  const sources = Object.entries(why?.value?.sources ?? {});
  for (const [name, source] of sources.filter(([, one]) => one.error)) {
    const read = Number.isFinite(source.read_ms_ago) ? [ago(why.at - source.read_ms_ago), ' ago'] : ['never'];
    const text = el('span', {}, `${short(source.error, 400)} (last read `, ...read, ')');
    all.push(note('bad', `Stale: ${name}`, text));
  }
  const waiting = sources.filter(([, one]) => one.stale && !one.error).map(([name]) => name);
  if (waiting.length > 0) {
    all.push(note('', `Stale: ${waiting.join(', ')}`, 'something signalled a change, and the reading is not done.'));
  }
  if (vm.do_not_inventory) all.push(note('', 'Hidden', 'do_not_inventory is set: agents report nothing about it.'));
  if (all.length === 0) {
    const words = why ? ['Every source of this VM is fresh, asked ', ago(why.at), ' ago.'] : ['Asking…'];
    all.push(el('p', { class: 'soft' }, ...words));
  }
  return all;
}

function past(events) {
  const title = el('h3', {}, `Events (${events.length})`);
  if (events.length === 0) return [title, el('p', { class: 'soft' }, 'None in vminfod’s journal.')];
  const [from, to] = [Date.parse(events[0].date), Date.now()];
  const marks = events.map((event) => [Date.parse(event.date), kind(event), `${clock(event.date)} ${words(event)}`]);
  const label = `${counted(events.length, 'event')} since ${clock(from)}`;
  const list = events.slice(-SHOWN).reverse().map((event) => entry(event, null));
  return [title, timeline(marks, from, to, label), el('p', { class: 'soft ends' }, clock(from), el('span', {}, 'now')),
    el('ol', { class: 'events' }, ...list)];
}

const state = (event) => (event.changes ?? []).find((change) => change.prettyPath === 'state')?.newValue;

function kind(event) {
  if (event.type === 'create' || state(event) === 'running') return 'good';
  if (event.type === 'delete' || state(event) === 'failed') return 'bad';
  return state(event) ? 'warn' : 'soft';
}

function words(event) {
  const paths = (event.changes ?? []).map((change) => change.prettyPath);
  return state(event) ? `state ${state(event)}` : `${event.type} ${short(paths.join(', '), 100)}`;
}
