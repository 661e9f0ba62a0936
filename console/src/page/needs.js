// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The states that need a person: what each means, and its command. The table is the programs' own.

import { NEEDS } from './table-of-needs.js';

/** The command for the state of this name; `words` are what its words in capitals stand for. */
export const command = (name, words = {}) => (NEEDS[name]?.command ?? '').split(' ')
  .map((word) => words[word] ?? word).join(' ');

/** What it means, as a sentence. */
export function says(name) {
  const text = NEEDS[name]?.says ?? '';
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}
