// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Elements are made only here and in drawing.js, and only from text: what tenants wrote is never parsed
// as HTML.

import { clock, span } from './format.js';

/**
 * An element: `attributes` by name (`on…` are listeners, `null` leaves one out), then children as text or
 * elements.
 */
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

/** The time since `at`, in milliseconds since 1970. It keeps counting, whether or not anything is read. */
export function ago(at) {
  if (!Number.isFinite(at)) return el('span', {}, '–');
  return el('time', { 'data-at': at, title: clock(at) }, span(Date.now() - at));
}

setInterval(() => {
  for (const one of document.querySelectorAll('time[data-at]')) {
    const text = span(Date.now() - Number(one.dataset.at));
    if (one.textContent !== text) one.textContent = text;
  }
}, 1000);

/** Tiles with one number each: name, number, colour; a tile with `act` is a button, pressed or not. */
export function tiles(all) {
  return el('div', { class: 'tiles' }, ...all.map(([name, value, kind, act]) => {
    const inside = [el('b', { class: kind || null }, String(value ?? '–')), el('span', {}, name)];
    if (!act) return el('div', { class: 'tile' }, ...inside);
    const pressed = String(act.pressed);
    return el('button', { type: 'button', class: 'tile', 'aria-pressed': pressed, onclick: act.press }, ...inside);
  }));
}

/** A table that scrolls by itself; on a phone each row becomes a card. What `opens` shows is a row of its own below. */
export function table(columns, rows) {
  const head = el('thead', {}, el('tr', {}, ...columns.map((name) => el('th', { scope: 'col' }, name))));
  const cell = (content, at) => el('td', { 'data-label': columns[at] }, content);
  const body = rows.flatMap((cells) => {
    const row = el('tr', {}, ...cells.map(cell));
    const more = row.querySelector('details.opens > .more');
    return more ? [row, el('tr', { class: 'more' }, el('td', { colspan: columns.length }, more))] : [row];
  });
  const whole = el('table', {}, head, el('tbody', {}, ...body));
  return el('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': columns.join(', ') }, whole);
}

/** A name that opens what is behind it; `key` keeps it open when it is drawn anew. */
export const opens = (key, title, name, ...parts) =>
  el('details', { 'data-key': key, class: 'opens' },
    el('summary', { title }, name), el('div', { class: 'more' }, ...parts));

/** A link to a VM. */
export const link = (uuid, text) => el('a', { href: `?vm=${encodeURIComponent(uuid)}#vminfod`, title: uuid }, text);

/** A list of names and values. */
export function facts(entries) {
  const list = el('dl');
  for (const [name, value] of entries) list.append(el('dt', {}, name), el('dd', {}, value));
  return list;
}

/** A sentence with a coloured edge, after its title. */
export const note = (kind, title, text) => el('p', { class: `note ${kind}` }, el('b', {}, `${title}: `), text);

/**
 * Replaces the contents, unless text in them is selected. Opened details (by `data-key`) stay open; the focus
 * and the scrolling stay.
 */
export function redraw(box, parts) {
  const selection = getSelection();
  if (!selection.isCollapsed && box.contains(selection.anchorNode)) return;
  const opened = [...box.querySelectorAll('details')].map((one) => [one.dataset.key, one.open]);
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.closest('details')?.dataset.key;
  const place = focused ? [...box.querySelectorAll('button, [tabindex]')].indexOf(focused) : -1;
  const scrolled = [...box.querySelectorAll('.scroll')].map((one) => one.scrollTop);
  box.replaceChildren(...parts);
  const before = new Map(opened);
  for (const one of box.querySelectorAll('details')) one.open = before.get(one.dataset.key) ?? one.open;
  for (const [at, one] of box.querySelectorAll('.scroll').entries()) one.scrollTop = scrolled[at] ?? 0;
  const same = key
    ? box.querySelector(`details[data-key="${CSS.escape(key)}"] summary`)
    : box.querySelectorAll('button, [tabindex]')[place];
  same?.focus({ preventScroll: true });
}
