// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The one stream of a browser: a worker that all tabs share, since a browser gives a host six connections and a stream
// never ends. It keeps what the lines came to, for a tab that is opened later, and reads while a tab is looked at. A
// browser without shared workers runs it in the tab.

import { Gate, follow } from './stream.js';

/** vminfod's events: a snapshot, then each change. Goes on behind the last one, or with a new snapshot. */
class Node {
  waits = [1000, 30000];
  #place = null;
  #vms = new Map();

  path() {
    const at = this.#place;
    return `/ui/agents/vminfod/events${at ? `?epoch=${encodeURIComponent(at.epoch)}&since=${at.seq}` : ''}`;
  }

  isOver(status) {
    if (status !== 410) return false;
    this.#place = null;
    return true;
  }

  /** Takes a line in; returns what the tabs are told. */
  take(line) {
    if (line.type === 'ready') {
      this.#vms = new Map(JSON.parse(line.vms).map((vm) => [vm.uuid, vm]));
      this.#place = { epoch: line.epoch, seq: line.seq };
      return this.said();
    }
    if (line.type === 'delete') this.#vms.delete(line.uuid);
    else if (line.vm) this.#vms.set(line.uuid, line.vm);
    if (this.#place && Number.isFinite(line.seq)) this.#place.seq = line.seq;
    return line.type === 'resume' ? [] : [line];
  }

  /** Where the lines begin anew. */
  anew() { return []; }

  /** What a tab is told that comes now. */
  said() {
    return this.#place ? [{ type: 'ready', vms: [...this.#vms.values()], place: { ...this.#place } }] : [];
  }
}

/**
 * The feed of the data centre: a line for each node and VM, then each line that changes. After a break it begins anew:
 * what is gone meanwhile is not in the new lines.
 */
class Centre {
  waits = [500, 10000];
  /** console says every 5 s that it is there; silence for longer is a connection that nobody has closed. */
  silence = 20000;
  #lines = new Map();

  path() { return '/ui/fleet/feed'; }

  isOver() { return false; }

  take(line) {
    const { type, cn, uuid = line.vm?.uuid } = line;
    if (type === 'gone') this.#lines.delete(`vm ${cn} ${uuid}`);
    else if (type === 'forgotten') this.#lines.delete(`node ${cn}`);
    else if (type !== 'tick') this.#lines.set([type, cn, uuid].filter(Boolean).join(' '), line);
    return [line];
  }

  anew() {
    this.#lines.clear();
    return this.said();
  }

  said() { return [{ type: 'begin' }, ...this.#lines.values()]; }
}

/** A tab that is silent for so long is gone: one that is closed may not say so. A hidden one speaks once a minute. */
const LEASE_MS = 150000;

const KINDS = { node: Node, centre: Centre };

/** One stream and its tabs. A tab is what has `postMessage`: it gets `{ lines }` and `{ state: [text, isGood] }`. */
export class Shared {
  #tabs = new Map();
  #gate = new Gate();
  #state = ['connecting…', false];
  #unsaid = [];
  #timer = null;
  #name;
  #kind;

  constructor(name) {
    this.#name = name;
    this.#kind = new KINDS[name]();
    const { waits, silence } = this.#kind;
    follow(this.#gate, {
      waits,
      silence,
      path: () => this.#kind.path(),
      isOver: (status) => this.#kind.isOver(status),
      begin: () => this.#says(this.#kind.anew()),
      line: (line) => this.#says(this.#kind.take(line)),
      state: (text, isGood) => this.#is(text, isGood),
    });
  }

  /** A tab says how it is, again and again: `shown`, `hidden`, or `gone`. One that comes is told everything. */
  heard(tab, how) {
    this.#flush();
    const isNew = !this.#tabs.has(tab);
    const now = Date.now();
    if (how === 'gone') this.#tabs.delete(tab);
    else this.#tabs.set(tab, { isShown: how === 'shown', until: now + LEASE_MS });
    for (const [other, { until }] of this.#tabs) if (until < now) this.#tabs.delete(other);
    if (isNew && how !== 'gone') {
      tab.postMessage({ lines: this.#kind.said() });
      tab.postMessage({ state: this.#state });
    }
    const isOpen = [...this.#tabs.values()].some((it) => it.isShown);
    this.#gate.set(isOpen);
    if (!isOpen) this.#is('paused while nobody looks', true);
    // The browser keeps pages that were left, and the worker with them: a new page knows nothing of what they showed.
    if (this.#tabs.size === 0) {
      this.#kind = new KINDS[this.#name]();
      this.#state = ['connecting…', false];
    }
  }

  #is(...state) {
    this.#state = state;
    this.#flush();
    this.#tell({ state });
  }

  /** Tells lines, those of one piece of the stream at once: ten thousand messages take seconds. */
  #says(lines) {
    for (const line of lines) this.#unsaid.push(line);
    this.#timer ??= setTimeout(() => this.#flush(), 0);
  }

  #flush() {
    clearTimeout(this.#timer);
    const lines = this.#unsaid;
    [this.#timer, this.#unsaid] = [null, []];
    if (lines.length > 0) this.#tell({ lines });
  }

  #tell(message) {
    for (const tab of this.#tabs.keys()) tab.postMessage(message);
  }
}

if ('SharedWorkerGlobalScope' in globalThis) {
  const shared = new Shared(globalThis.name);
  globalThis.onconnect = ({ ports: [tab] }) => {
    tab.onmessage = ({ data }) => shared.heard(tab, data);
  };
}
