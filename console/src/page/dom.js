// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Elements are made only here, and only from text: what tenants wrote is never parsed as HTML. Also
// the formats in which values are shown.

/** An element: `attributes` by name (`on…` are listeners, `null` leaves one out), then children as text or elements. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** The element of this id. */
export const byId = (id) => document.getElementById(id);

/** Any JSON value in one short line; control characters are shown, not obeyed. */
export function short(value, longest = 120) {
  const text = typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value);
  const shown = text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
  return shown.length > longest ? `${shown.slice(0, longest)}…` : shown;
}

/** A span of time, two units at most: `3d 4h`. */
export function span(ms) {
  if (!Number.isFinite(ms)) return '';
  let seconds = Math.max(0, Math.floor(ms / 1000));
  const parts = [];
  for (const [unit, size] of [['y', 31536000], ['d', 86400], ['h', 3600], ['m', 60], ['s', 1]]) {
    if (seconds >= size || (unit === 's' && parts.length === 0)) {
      parts.push(`${Math.floor(seconds / size)}${unit}`);
      seconds %= size;
    }
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

/** Time since an ISO timestamp. */
export const since = (iso) => (iso ? span(Date.now() - Date.parse(iso)) : '');

/** MiB or GiB. */
export function mebibytes(mib) {
  if (!Number.isFinite(mib)) return '';
  return mib >= 1024 ? `${+(mib / 1024).toFixed(1)} GiB` : `${mib} MiB`;
}

/** The time of day of an ISO timestamp. */
export const clock = (iso) => (iso ? new Date(iso).toLocaleTimeString() : '');

/** The short one of two forms: `12.593138s (12.59s)`. */
export const brief = (text) => (text ?? '').replace(/^.*\((.*)\)$/, '$1');

/** Tiles with one number each: name, number, colour. */
export function tiles(all) {
  return el('div', { class: 'tiles' }, ...all.map(([name, value, kind]) =>
    el('div', { class: 'tile' }, el('b', { class: kind || null }, String(value ?? 0)), el('span', {}, name))));
}

/** A table that scrolls by itself; on a phone each row becomes a card. */
export function table(columns, rows) {
  const head = el('thead', {}, el('tr', {}, ...columns.map((name) => el('th', { scope: 'col' }, name))));
  const body = rows.map((cells) => el('tr', {}, ...cells.map((cell, at) => el('td', { 'data-label': columns[at] }, cell))));
  return el('div', { class: 'scroll' }, el('table', {}, head, el('tbody', {}, ...body)));
}

/** A list of names and values. */
export function facts(entries) {
  const list = el('dl');
  for (const [name, value] of entries) list.append(el('dt', {}, name), el('dd', {}, value));
  return list;
}
