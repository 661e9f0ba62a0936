// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// What is shown stands in the address, so that a link shows the same: `?q=` the search, `?vm=` the open
// VM, `#` the tab.

const asked = () => new URLSearchParams(location.search);

/** The value of this name, empty if there is none. */
export const get = (name) => asked().get(name) ?? '';

/** Sets a value; the browser's back button undoes it if `isStep`. */
export function set(name, value, isStep = false) {
  if (get(name) === value) return;
  const all = asked();
  if (value) all.set(name, value);
  else all.delete(name);
  const query = all.size > 0 ? `?${all}` : '';
  history[isStep ? 'pushState' : 'replaceState'](null, '', `${location.pathname}${query}${location.hash}`);
}

/** Calls `listener` when the browser goes back or forward. */
export const onReturn = (listener) => window.addEventListener('popstate', listener);
