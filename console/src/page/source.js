// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Reads what the programs say about themselves. A program that does not answer in time is no answer.

/** After this time without an answer, a program counts as one that does not answer. */
export const PATIENCE_MS = 5000;

/** Between two tries to read console's configuration. */
const AGAIN_MS = 3000;

/** The error where an answer is not what its tab can show. */
const ODD = 'an answer that is not understood';

/** The error where the page's own server is gone, or this browser has no connection to it left. */
export const NO_CONSOLE = 'this page cannot reach console, the program that serves it';

let asked = null;

/** Whether console answers this page, asked once by all who want to know at a time. */
function reaches() {
  const ask = async () => {
    try {
      return (await fetch('/ping', { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) })).ok;
    } catch {
      return false;
    } finally {
      asked = null;
    }
  };
  asked ??= ask();
  return asked;
}

/** Returns `{ value }`, or `{ error }` in words. Never throws. A request that waits in the browser blames no program. */
export async function read(path) {
  if (!await reaches()) return { error: NO_CONSOLE };
  try {
    const response = await fetch(path, { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
    const value = await response.json();
    return response.ok ? { value } : { error: value.message ?? `HTTP ${response.status}` };
  } catch (error) {
    const isLate = error.name === 'TimeoutError';
    return { error: isLate ? `no answer within ${PATIENCE_MS / 1000} s` : NO_CONSOLE };
  }
}

/**
 * Reads `path` for ever, with a pause of `every` ms, and calls `on` after each try with
 * `{ value, at, error, since }`: the last good answer, its time, why there is no newer one, since when. An answer with
 * which `on` fails is none: it is not kept.
 */
export async function watch(path, every, on) {
  let state = { value: null, at: null, error: null, since: Date.now() };
  for (;;) {
    const { value, error } = await read(path);
    const now = Date.now();
    const without = (why) => ({ ...state, error: why, since: state.error ? state.since : (state.at ?? now) });
    const next = error ? without(error) : { value, at: now, error: null, since: now };
    state = await shows(on, next) ? next : without(ODD);
    if (state !== next) await shows(on, state);
    await new Promise((resolve) => setTimeout(resolve, every));
  }
}

/** Returns the names in console's configuration. A page that is opened at a bad moment asks until it has them. */
export async function programs() {
  for (;;) {
    const { value } = await read('/ui/agents');
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Returns false if what was read cannot be shown. */
async function shows(on, state) {
  try {
    await on(state);
    return true;
  } catch {
    return false;
  }
}
