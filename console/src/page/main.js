// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Connects the parts: the event stream feeds the table and the list of events, vminfod's status the rest.

import * as agents from './agents.js';
import * as detail from './detail.js';
import { byId, tiles } from './dom.js';
import * as events from './events.js';
import * as health from './health.js';
import { follow } from './stream.js';
import * as tabs from './tabs.js';
import { table, tone } from './vms.js';

let shown = null;
let status = {};

function open(uuid) {
  shown = uuid;
  detail.fill(vms.vms.get(uuid) ?? null);
  if (!byId('vm').open) byId('vm').showModal();
}

const mark = tabs.add('vminfod', byId('hub'));
const vms = table(open);
const name = (uuid) => vms.vms.get(uuid)?.alias ?? uuid.slice(0, 8);
const log = events.list((event) => event.vm?.alias ?? name(event.uuid), open);

function summary() {
  const states = new Map();
  for (const vm of vms.vms.values()) states.set(vm.state, (states.get(vm.state) ?? 0) + 1);
  const all = [['VMs', vms.vms.size, '']];
  for (const [state, count] of [...states].sort()) all.push([state, count, tone(state)]);
  const stale = Object.keys(status.errors ?? {}).length;
  all.push(['stale', stale, stale > 0 ? 'bad' : '']);
  all.push(['listeners', Object.keys(status.eventsListeners ?? {}).length, '']);
  byId('summary').replaceChildren(tiles(all));
  const [any] = vms.vms.values();
  if (any) byId('node').textContent = [any.datacenter_name, any.server_uuid].filter(Boolean).join(' ');
}

async function watchStatus() {
  for (;;) {
    try {
      const response = await fetch('/ui/agents/vminfod/status', { cache: 'no-store' });
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      status = await response.json();
      health.draw(status);
      vms.mark(Object.keys(status.errors ?? {}));
      summary();
    } catch {
      // The state of the stream shows that vminfod does not answer.
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

document.addEventListener('keydown', (event) => {
  const typing = ['INPUT', 'SELECT'].includes(event.target.tagName);
  if (event.key === 'Escape' && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || byId('vm').open) return;
  if (event.key === '/') { byId('search').focus(); event.preventDefault(); }
  if (event.key === 'p') log.toggle();
  if (/^[1-9]$/.test(event.key)) tabs.at(Number(event.key) - 1);
});
byId('vm-close').addEventListener('click', () => byId('vm').close());
byId('vm').addEventListener('close', () => { shown = null; });

watchStatus();
agents.watch(name);
follow({
  ready(list) {
    vms.reset(list);
    summary();
  },
  event(event) {
    log.push(event);
    vms.apply(event);
    if (shown === event.uuid) detail.fill(vms.vms.get(event.uuid) ?? null);
    summary();
  },
  state(text, good) {
    byId('stream').textContent = text;
    byId('stream').className = `pill ${good ? 'good' : 'bad'}`;
    mark(good ? 'good' : 'bad', text);
  },
});
