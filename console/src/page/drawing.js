// This Source Code Form is subject to the terms of the Mozilla Public
// License, v. 2.0. If a copy of the MPL was not distributed with this
// file, You can obtain one at https://mozilla.org/MPL/2.0/.

// Small drawings: sparklines and the timeline of a VM.

const NAMESPACE = 'http://www.w3.org/2000/svg';
const WIDTH = 240;
const HEIGHT = 32;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** A line through `points` (`[time, number]`, oldest first) over the time `from`–`to`; `label` says it in words. */
export function sparkline(points, from, to, label) {
  const most = Math.max(...points.map(([, number]) => number), Number.MIN_VALUE);
  const x = (time) => (((time - from) / (to - from)) * WIDTH).toFixed(1);
  const y = (number) => (HEIGHT - 2 - (number / most) * (HEIGHT - 4)).toFixed(1);
  const line = points.map(([time, number]) => `${x(time)},${y(number)}`).join(' ');
  return svg('svg', {
    class: 'spark', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label,
  }, svg('polyline', { points: line }));
}

/** One mark per event (`[time, colour, words]`) over the time `from`–`to`. */
export function timeline(marks, from, to, label) {
  const x = (time) => 6 + ((time - from) / Math.max(to - from, 1)) * (WIDTH * 3 - 12);
  const dots = marks.map(([time, kind, words]) =>
    svg('circle', { cx: x(time).toFixed(1), cy: 10, r: 5, class: kind }, svg('title', {}, words)));
  const axis = svg('line', { x1: 0, x2: WIDTH * 3, y1: 10, y2: 10 });
  const box = { class: 'timeline', viewBox: `0 0 ${WIDTH * 3} 20`, role: 'img', 'aria-label': label };
  return svg('svg', box, axis, ...dots);
}
