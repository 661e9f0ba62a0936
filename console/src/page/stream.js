// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Reads a stream of lines for ever: after a break again, while somebody looks.

/** Lets a stream run while it is open. */
export class Gate {
  #stop = null;
  #opened = () => {};

  set(isOpen) {
    if (isOpen === (this.#stop !== null)) return;
    this.#stop?.abort();
    this.#stop = isOpen ? new AbortController() : null;
    if (isOpen) this.#opened();
  }

  /** Waits until it is open; returns the signal that it is closed. */
  async pass() {
    while (!this.#stop) await new Promise((resolve) => { this.#opened = resolve; });
    return this.#stop.signal;
  }
}

/**
 * Reads `source.path()` while the gate is open. Calls `source.begin()` where it begins anew, `source.line(line)` for each
 * line, `source.isOver(status)` for a refusal, which returns true where the next path is another one, and
 * `source.state(text, isGood)` when the connection changes. Waits `source.waits` ms after a break, at least and at most;
 * silence for `source.silence` ms is one. Never returns.
 */
export async function follow(gate, source) {
  const [least, most] = source.waits;
  let wait = least;
  for (;;) {
    const shut = await gate.pass();
    const silent = new AbortController();
    let timer = null;
    const alive = () => {
      clearTimeout(timer);
      if (source.silence) timer = setTimeout(() => silent.abort(new Error('it is silent')), source.silence);
    };
    try {
      alive();
      const signal = AbortSignal.any([shut, silent.signal]);
      const response = await fetch(source.path(), { cache: 'no-store', signal });
      if (source.isOver(response.status)) continue;
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      source.begin();
      source.state('live', true);
      wait = least;
      for await (const line of lines(response.body)) {
        alive();
        source.line(JSON.parse(line));
      }
      source.state('stream ended, reconnecting…', false);
    } catch (error) {
      // Nobody looks: that is no break.
      if (shut.aborted) continue;
      source.state(`no connection (${error.message}), trying again…`, false);
    } finally {
      clearTimeout(timer);
    }
    await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
    wait = Math.min(wait * 2, most);
  }
}

/** The lines of a response as they come. */
export async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  // Pieces are joined once per line: a snapshot's line may be many megabytes.
  let pieces = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = value.split('\n');
    for (const [at, part] of parts.entries()) {
      pieces.push(part);
      if (at === parts.length - 1) break;
      const line = pieces.join('');
      pieces = [];
      if (line) yield line;
    }
  }
}
