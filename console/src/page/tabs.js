// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// One tab per program. The chosen one stands in the address (`#net-agent`), so that a link opens it.

import { byId, el } from './dom.js';

const tabs = [];

/** Adds a tab that shows `panel`; returns a function that colours its mark: good, warn, bad, soft. */
export function add(name, panel) {
  const mark = el('span', { class: 'mark soft', 'aria-hidden': 'true' });
  const button = el('button', {
    type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': panel.id, onclick: () => choose(name),
  }, mark, name);
  panel.setAttribute('role', 'tabpanel');
  panel.setAttribute('aria-labelledby', button.id);
  tabs.push({ name, button, panel });
  byId('tabs').append(button);
  show();
  return (kind, text) => {
    mark.className = `mark ${kind}`;
    button.title = text;
  };
}

/** Shows the tab at this place, counted from 0. */
export const at = (place) => { if (tabs[place]) choose(tabs[place].name); };

function choose(name) {
  history.replaceState(null, '', `#${name}`);
  show();
}

function show() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const chosen = tabs.find((tab) => tab.name === wanted) ?? tabs[0];
  for (const tab of tabs) {
    const is = tab === chosen;
    tab.panel.hidden = !is;
    tab.button.setAttribute('aria-selected', String(is));
    tab.button.tabIndex = is ? 0 : -1;
    // On a phone not all of them are seen at once.
    if (is) tab.button.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }
}

window.addEventListener('hashchange', show);
// A phone that is turned, a window that becomes narrow.
window.addEventListener('resize', show);
byId('tabs').addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const now = tabs.findIndex((tab) => tab.button === document.activeElement);
  const next = tabs[(now + step + tabs.length) % tabs.length];
  choose(next.name);
  next.button.focus();
});
