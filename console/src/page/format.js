// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// The formats in which values are shown. There is one format for times (UTC, as in the logs) and one for
// spans of time.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** Any JSON value in one short line; control characters are shown, not obeyed. */
export function short(value, longest = 120) {
  const text = typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value);
  const shown = text.replace(HIDDEN, '\ufffd');
  return shown.length > longest ? `${shown.slice(0, longest)}…` : shown;
}

const UNITS = [['y', 31536000], ['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];

/** A span of time in its largest unit and the next one: `3d 4h`, `3d`. */
export function span(ms) {
  if (!Number.isFinite(ms)) return '';
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const largest = Math.max(0, UNITS.findIndex(([unit, size]) => seconds >= size || unit === 's'));
  const [[unit, size], next] = UNITS.slice(largest);
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return `${Math.floor(seconds / size)}${unit}${rest > 0 ? ` ${rest}${next[0]}` : ''}`;
}

/** A number of things: `1 order`, `2 orders`. */
export const counted = (count, one, more = `${one}s`) => `${count} ${count === 1 ? one : more}`;

/** A time in UTC: `12:03:04Z`, with its date if that is not today. */
export function clock(time) {
  const date = new Date(time ?? NaN);
  if (Number.isNaN(date.getTime())) return '';
  const [day, rest] = date.toISOString().split('T');
  const now = `${rest.slice(0, 8)}Z`;
  return day === new Date().toISOString().slice(0, 10) ? now : `${day} ${now}`;
}

/** A number of MiB in its largest unit. */
export const mebibytes = (mib) => (Number.isFinite(mib) ? bytes(mib * 1048576) : '');

/** A number of bytes in its largest unit: `1.5 GiB`. */
export function bytes(count) {
  if (!Number.isFinite(count)) return '–';
  let [size, at] = [count, 0];
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  while (size >= 1024 && at + 1 < units.length) {
    size /= 1024;
    at += 1;
  }
  return `${+size.toFixed(1)} ${units[at]}`;
}

/** The milliseconds of vminfod's spans of time: `12.593138s (12.59s)`. */
export const milliseconds = (text) => Number.parseFloat(text ?? '') * 1000;

/** Who approved how many `what`, when, and how many are left. */
export const approval = ({ by, ago_s: seconds, count, left }, what) =>
  `${count} ${what} by ${short(by, 60)} ${span(seconds * 1000)} ago, ${left} of them left`;

const UUID = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** A sentence of a program, with the aliases of the VMs that it names. */
export const named = (text, name) => String(text ?? '').replace(UUID, (uuid) => name?.(uuid) ?? uuid);
