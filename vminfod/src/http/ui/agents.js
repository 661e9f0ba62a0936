// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// A panel for each agent that the daemon's configuration names, kept fresh. What is in it is drawn
// by the module that knows the agent; any other shows its status as it is.

import { byId, el, facts, short } from './dom.js';
import * as kvmd from './kvmd.js';
import * as netAgent from './net-agent.js';

/** Keeps the panels fresh; `name(uuid)` gives what people call a VM. */
export async function watch(name) {
  const names = await read('/ui/agents');
  if (!Array.isArray(names)) return;
  const panels = names.map((agent) => {
    const [state, body] = [el('span', { class: 'pill' }, '…'), el('div')];
    byId('agents').append(el('section', { class: 'panel', 'aria-label': agent },
      el('div', { class: 'bar' }, el('h2', {}, agent), state), body));
    return { base: `/ui/agents/${agent}`, state, body };
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
  } else if ('verdicts' in status) {
    draw(panel, kvmd.state(status), kvmd.parts(status));
  } else {
    draw(panel, ['answers', 'good'], [facts(Object.entries(status).map(([key, value]) => [key, short(value, 200)]))]);
  }
}

/** Draws a panel anew; what somebody opened stays open, and the focus stays where it was. */
function draw(panel, [text, kind], parts) {
  panel.state.textContent = text;
  panel.state.className = `pill ${kind}`;
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
