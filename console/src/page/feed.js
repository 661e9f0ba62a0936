// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// A tab's end of the stream that all tabs of the browser share.

/** So often a tab says that it is there. */
const HERE_MS = 20000;

/**
 * Follows the stream `kind`, `node` or `centre`. Calls `on.line(line)` for each line and `on.state(text, isGood)` when
 * the connection changes.
 */
export async function follow(kind, on) {
  const take = ({ lines, state }) => {
    if (state) on.state(...state);
    for (const line of lines ?? []) on.line(line);
  };
  const tell = await joined(kind, take);
  const look = () => tell(document.hidden ? 'hidden' : 'shown');
  document.addEventListener('visibilitychange', look);
  window.addEventListener('pagehide', () => tell('gone'));
  window.addEventListener('pageshow', look);
  setInterval(look, HERE_MS);
  look();
}

/** Returns the function that tells the stream how this tab is. */
async function joined(kind, take) {
  if ('SharedWorker' in window) {
    const { port } = new SharedWorker('/ui/shared.js', { type: 'module', name: kind });
    port.onmessage = ({ data }) => take(data);
    return (how) => port.postMessage(how);
  }
  const { Shared } = await import('./shared.js');
  const [shared, tab] = [new Shared(kind), { postMessage: take }];
  return (how) => shared.heard(tab, how);
}
