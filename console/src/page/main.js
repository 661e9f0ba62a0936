// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Connects the parts: the event stream feeds the table and the list of events, vminfod's status the rest.

import * as agents from './agents.js';
import * as alarms from './alarms.js';
import * as detail from './detail.js';
import { ago, byId } from './dom.js';
import * as events from './events.js';
import { follow } from './feed.js';
import { counted } from './format.js';
import * as health from './health.js';
import * as history from './history.js';
import * as place from './place.js';
import { watch } from './source.js';
import * as summary from './summary.js';
import * as tabs from './tabs.js';
import * as trends from './trends.js';
import { table } from './vms.js';

const STATUS_MS = 2000;

let hub = { value: null, at: null, error: null };
let stream = { text: 'connecting…', isGood: false };
let stale = new Set();
/** The VMs were listed once: before, nothing is known of them. */
let isListed = false;

function words(vm) {
  const all = [vm.do_not_inventory && 'hidden', agents.isHeld(vm.uuid) && 'held', stale.has(vm.uuid) && 'stale'];
  return all.filter(Boolean);
}

const mark = tabs.add('vminfod', byId('hub'));
const vms = table((uuid) => one.open(uuid), words, (text) => {
  place.set('q', text);
  drawSummary();
});
const one = detail.view((uuid) => vms.vms.get(uuid), {
  opened: (uuid) => place.set('vm', uuid, true),
  closed: () => place.set('vm', ''),
});
const name = (uuid) => vms.vms.get(uuid)?.alias ?? history.alias(uuid) ?? uuid.slice(0, 8);
const log = events.list(name, (uuid) => one.open(uuid));

function drawSummary() {
  summary.draw(vms.vms, words, vms.search, hub, isListed);
}

/** The connection, the bar, the tab's mark: what depends on both the status and the stream. */
function drawState() {
  const [pill, kind] = [byId('stream'), stream.isGood && !hub.error ? 'good' : 'bad'];
  pill.replaceChildren(...(hub.error ? ['no answer for ', ago(hub.since)] : [stream.text]));
  pill.className = `pill ${kind}`;
  mark(kind, pill.textContent);
  byId('hub').classList.toggle('old', hub.error !== null);
  if (hub.at || hub.error) alarms.set('vminfod', health.alarms(hub, stream.isGood ? null : stream.text));
  const isKnown = kind === 'good' && isListed;
  alarms.well(isKnown ? [`${counted(vms.vms.size, 'VM')} · read `, ago(hub.at), ' ago'] : null);
}

/** Shows what the address says. */
function goTo() {
  vms.search.set(place.get('q'));
  if (place.get('vm')) one.open(place.get('vm'));
  else one.close();
}

document.addEventListener('keydown', (event) => {
  const isTyping = event.target.tagName === 'INPUT';
  if (event.key === 'Escape' && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || byId('vm').open) return;
  if (event.key === '/') { byId('search').focus(); event.preventDefault(); }
  if (event.key === 'p') log.toggle();
  if (/^[1-9]$/.test(event.key)) tabs.at(Number(event.key) - 1);
});
place.onReturn(goTo);
vms.search.set(place.get('q'));

watch('/ui/agents/vminfod/status', STATUS_MS, (source) => {
  hub = source;
  if (!source.error) summary.learn().then(drawSummary);
  stale = new Set(Object.keys(source.value?.errors ?? {}).map((vm) => vm.split(' ')[0]));
  health.draw(source);
  vms.draw();
  drawSummary();
  drawState();
});
agents.watch(name, () => {
  vms.draw();
  drawSummary();
});
trends.watch();
follow('node', {
  line(event) {
    if (event.type === 'ready') list(event.vms, event.place);
    else change(event);
  },
  state(text, isGood) {
    stream = { text, isGood };
    drawState();
  },
});

function list(all, seen) {
  vms.reset(all);
  isListed = true;
  drawSummary();
  goTo();
  history.fill(seen).then(() => {
    log.fill(history.all());
    trends.draw();
    one.changed(place.get('vm'));
  });
}

function change(event) {
  history.keep(event);
  log.push(event);
  vms.apply(event);
  one.changed(event.uuid);
  drawSummary();
}
