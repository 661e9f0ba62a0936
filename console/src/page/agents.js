// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// A tab for each agent of console's configuration, read every 3 s. The view of an agent draws its contents;
// an agent without a view shows its status as it is.

import * as alarms from './alarms.js';
import { ago, byId, el, facts, redraw } from './dom.js';
import { clock, short } from './format.js';
import * as kvmd from './kvmd.js';
import * as migrationAgent from './migration-agent.js';
import * as migrations from './migrations.js';
import * as netAgent from './net-agent.js';
import { programs, read, watch as watchSource } from './source.js';
import * as tabs from './tabs.js';
import * as vmAgent from './vm-agent.js';
import * as volumes from './volumes.js';

const EVERY_MS = 3000;

/**
 * The views by the agent's name in the configuration. A view exports `state(status)`, a word and its colour;
 * `parts(status, plan, name, history)`, the contents of its panel; and, if it has them: `alarms(status, plan)`, what
 * needs a person; `vm(uuid, status, plan, history)`, what it says about one VM; `held(status)`, the VMs that it leaves
 * alone; `HAS_PLAN`, if the agent serves `/plan`; `written(status)`, if it serves `/history`: what changes with it;
 * `EVERY_MS`, if it is read less often.
 */
const VIEWS = {
  kvmd, 'net-agent': netAgent, 'vm-agent': vmAgent, 'migration-agent': migrationAgent, migrations, volumes,
};

const GENERIC = {
  state: () => ['answers', 'good'],
  parts: (status) => [facts(Object.entries(status).map(([key, value]) => [key, short(value, 200)]))],
};

const agents = [];

/** Refreshes the panels for ever; `name(uuid)` returns the alias of a VM, `onRead` is called after each reading. */
export async function watch(name, onRead) {
  for (const agent of (await programs()).filter((one) => one !== 'vminfod')) {
    const [state, body] = [el('span', { class: 'pill soft' }, '…'), el('div')];
    const panel = el('section', { id: `panel-${agent}`, class: 'panel', tabindex: 0 },
      el('div', { class: 'bar' }, el('h2', {}, agent), state), body);
    byId('agents').append(panel);
    const mark = tabs.add(agent, panel);
    const one = { name: agent, view: VIEWS[agent] ?? GENERIC, status: null, plan: null, history: null };
    agents.push(one);
    watchSource(`/ui/agents/${agent}/status`, one.view.EVERY_MS ?? EVERY_MS, async (source) => {
      one.status = source.value;
      if (source.error && one.isOther === undefined) {
        one.isOther = (await read(`/ui/agents/${agent}/whose`)).value?.is_other;
      }
      if (!source.error) one.isOther = undefined;
      if (!source.error && one.view.HAS_PLAN) one.plan = (await read(`/ui/agents/${agent}/plan`)).value ?? one.plan;
      if (!source.error && one.view.written) await reread(one);
      show(one, source, { state, body, mark }, name);
      onRead();
    });
  }
}

/** Reads the history if something was written since. */
async function reread(agent) {
  const written = agent.view.written(agent.status);
  if (agent.written === written) return;
  const { value } = await read(`/ui/agents/${agent.name}/history`);
  if (value) [agent.history, agent.written] = [value, written];
}

function show(agent, source, { state, body, mark }, name) {
  const { view, status, plan, history } = agent;
  const silence = agent.isOther ? 'another one runs' : 'does not answer';
  const [text, kind] = source.error ? [silence, 'bad'] : view.state(status);
  state.replaceChildren(text, source.at ? ', read ' : '', source.at ? ago(source.at) : '', source.at ? ' ago' : '');
  state.className = `pill ${kind}`;
  mark(kind, text);
  alarms.set(agent.name, source.error ? [silent(agent, source)] : view.alarms?.(status, plan, name) ?? []);
  const none = [el('p', { class: 'soft' }, 'Not running, or not on this node.')];
  redraw(body, status ? view.parts(status, plan, name, history) : none);
  body.classList.toggle('old', source.error !== null);
}

function silent({ name, isOther }, source) {
  if (isOther) return alarms.another(name, source);
  const never = 'If it is not on this node, leave it out of console.json.';
  return alarms.silent(name, source, source.at ? `Its tab shows what it said at ${clock(source.at)}.` : never);
}

/** What the agents say about one VM. */
export const aboutVm = (uuid) =>
  agents.flatMap(({ view, status, plan, history }) => (
    status && view.vm ? view.vm(uuid, status, plan, history) : []));

/** Returns true if an agent leaves this VM alone because an operator said so. */
export const isHeld = (uuid) => agents.some(({ view, status }) => status && view.held?.(status).includes(uuid));
