// What a person without a mouse or with weak eyes would miss on the page, as a list of sentences. It runs in
// the page: names of controls, ids, what scrolls, contrast of text (WCAG 2, level AA).
(() => {
  const wrong = [];
  const visible = [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility());
  const called = (one) => `${one.tagName.toLowerCase()}#${one.id}.${one.getAttribute('class') ?? ''}`;
  const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
  for (const id of ids.filter((one, at) => ids.indexOf(one) !== at)) wrong.push(`the id ${id} is there twice`);
  for (const name of ['aria-labelledby', 'aria-controls', 'aria-describedby']) {
    for (const one of document.querySelectorAll(`[${name}]`)) {
      if (!document.getElementById(one.getAttribute(name))) wrong.push(`${called(one)}: ${name} leads nowhere`);
    }
  }
  const named = 'button, a, input, summary, [role=tab], [role=img], [role=group], dialog';
  for (const one of visible.filter((each) => each.matches(named))) {
    const label = one.getAttribute('aria-label') ?? one.getAttribute('aria-labelledby') ?? one.textContent.trim();
    if (!label) wrong.push(`${called(one)} has no name`);
  }
  for (const one of visible) {
    const scrolls = /auto|scroll/.test(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1;
    const reachable = one.tabIndex >= 0 || one.querySelector('button, a, input, summary, [tabindex]');
    if (scrolls && !reachable) wrong.push(`${called(one)} scrolls, but not with keys`);
    if (one.tabIndex > 0) wrong.push(`${called(one)} has its own place in the order of tabs`);
  }
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (colour) => [...rgba(colour)].slice(0, 3)
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => {
    for (let node = one; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (rgba(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const seen = new Set();
  for (const one of visible) {
    const hasText = [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText) continue;
    const [ink, paper] = [getComputedStyle(one).color, ground(one)];
    const [high, low] = [light(ink), light(paper)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const key = `${ink} ${paper}`;
    if (ratio < 4.5 && !seen.has(key)) wrong.push(`${called(one)}: contrast ${ratio.toFixed(2)}, ${ink} on ${paper}`);
    seen.add(key);
  }
  return wrong;
})();
