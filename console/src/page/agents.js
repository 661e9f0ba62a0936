// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// A tab for each agent of console's configuration, refreshed every 3 s. The module of the agent draws
// its contents; an agent without a module shows its status as it is.

import { byId, el, facts, short } from './dom.js';
import * as kvmd from './kvmd.js';
import * as netAgent from './net-agent.js';
import * as tabs from './tabs.js';
import * as vmAgent from './vm-agent.js';

/** Refreshes the panels; `name(uuid)` returns the alias of a VM. */
export async function watch(name) {
  const names = await read('/ui/agents');
  if (!Array.isArray(names)) return;
  const panels = names.filter((agent) => agent !== 'vminfod').map((agent) => {
    const [state, body] = [el('span', { class: 'pill' }, '…'), el('div')];
    const panel = el('section', { id: `panel-${agent}`, class: 'panel', tabindex: 0 },
      el('div', { class: 'bar' }, el('h2', {}, agent), state), body);
    byId('agents').append(panel);
    return { base: `/ui/agents/${agent}`, mark: tabs.add(agent, panel), state, body };
  });
  for (;;) {
    await Promise.all(panels.map((panel) => refresh(panel, name)));
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

async function refresh(panel, name) {
  const page = (which) => read(`${panel.base}/${which}`);
  const status = await page('status');
  if (!status) {
    draw(panel, ['does not answer', 'soft'], [el('p', { class: 'soft' }, 'Not running, or not on this node.')]);
  } else if ('pass' in status) {
    draw(panel, netAgent.state(status), netAgent.parts(status, await page('plan'), name));
  } else if ('last_puts' in status) {
    draw(panel, vmAgent.state(status), vmAgent.parts(status, await page('plan'), name));
  } else if ('verdicts' in status) {
    draw(panel, kvmd.state(status), kvmd.parts(status));
  } else {
    draw(panel, ['answers', 'good'], [facts(Object.entries(status).map(([key, value]) => [key, short(value, 200)]))]);
  }
}

/** Redraws a panel; opened details stay open and the focus stays. */
function draw(panel, [text, kind], parts) {
  panel.state.textContent = text;
  panel.state.className = `pill ${kind}`;
  panel.mark(kind, text);
  const opened = [...panel.body.querySelectorAll('details[open]')].map((one) => one.dataset.key);
  const focused = document.activeElement?.closest?.('details')?.dataset.key;
  const here = panel.body.contains(document.activeElement);
  const scrolled = panel.body.querySelector('.scroll')?.scrollTop ?? 0;
  panel.body.replaceChildren(...parts);
  for (const one of panel.body.querySelectorAll('details')) {
    one.open = opened.includes(one.dataset.key);
    if (here && one.dataset.key === focused) one.querySelector('summary').focus({ preventScroll: true });
  }
  const scroll = panel.body.querySelector('.scroll');
  if (scroll) scroll.scrollTop = scrolled;
}

async function read(path) {
  try {
    const response = await fetch(path, { cache: 'no-store' });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}
